"""Tiles for Hopper's warpgroup instructions: their extents and what follows of them.

:mod:`tvm_tile.tile.products.ring` fits them to a device and predicts what they take,
:mod:`tvm_tile.tile.products.warpgroup` and :mod:`tvm_tile.tile.coded.warpgroup` find and rank them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

from tvm_tile.graph.sparsity import PLACES_DEPTH, PLACES_ROWS, PLACES_WORDS, Sparsity
from tvm_tile.tile.tile import Tile
from tvm_tile.tile.units.sum_layout import (
    CORNER_COLUMNS,
    CORNER_PITCH,
    CORNER_ROWS,
    MMA_SUMS,
    QUAD,
    SumLayout,
    turned_sums,
)

LINE = 128  # bytes of a swizzled row: the depth of a chunk, or the columns of a transposed one
WARPGROUP = 128  # threads
ROWS = 64  # of one instruction
STEP_BYTES = 32  # of its depth
BARRIER_BYTES = 2048  # bytes kept free for the barriers and for aligning the ring
# Floats behind a row of a block's part of a split sum: neighbouring rows begin on different banks.
PARTIAL_PADDING = 8
_WORD = 4  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RingTile(Tile):
    """A tile whose sums warpgroups make of chunks that lie in a ring of stages.

    Attributes:
        depth: elements of the summed axis in a chunk.
        consumers: warpgroups that multiply; one more fills the ring.
        alternates: whether consumers take tiles in turns, so that one stores its sums while the
            other multiplies; otherwise they share the rows of each tile.
        instructions: rows of a warpgroup, in instructions of 64.
        width: columns of an instruction.
        splits: blocks, a cluster, that share the sum of a tile.
        blocks: blocks that share a multiprocessor.
        tiles: tiles of the whole output.
        chunks: chunks of a tile's whole sum.
        walked: share of these that the busiest multiprocessor walks, where lists tell some.
        raster: tiles of rows that are walked before the next tile of columns.
        stages: chunks that the ring holds.
        grid: blocks, each of which takes tiles until none is left.
        division: registers of a producer's and of a consumer's thread; None as launched. The model
            reckons those of a consumer.
    """

    depth: int
    consumers: int
    alternates: bool = False
    instructions: int = 1
    width: int
    splits: int
    blocks: int
    tiles: int
    chunks: int
    raster: int
    stages: int = 0
    grid: int = 0
    walked: float = 1.0
    division: tuple[int, int] | None = None

    @property
    def sharers(self) -> int:
        """Consumers that share the rows of one tile."""
        return 1 if self.alternates else self.consumers

    @property
    def block_rows(self) -> int:
        """Rows that the instructions make for one tile; boxes may fill fewer."""
        return ROWS * self.instructions * self.sharers

    @property
    def chunks_each(self) -> int:
        """Chunks of every block but the last that share the sum of a tile."""
        return -(-self.chunks // self.splits)

    @property
    @abstractmethod
    def stage_bytes(self) -> int:
        """Bytes of a stage: all that a chunk is made of."""

    @property
    @abstractmethod
    def store_shape(self) -> tuple[int, ...]:
        """Sums that go out together: the block's part of them, or a corner a warp.

        Their padding keeps what neighbouring threads store on different banks.
        """

    @property
    def fixed_bytes(self) -> int:
        """Bytes of shared memory besides the stages: of sums that go out, and of barriers."""
        return math.prod(self.store_shape) * 4 + BARRIER_BYTES

    @property
    def block_size(self) -> int:
        """Threads: the consumers' and the producer's warpgroup."""
        return WARPGROUP * (self.consumers + 1)

    def describe(self) -> str:
        """The ring and those who work on it, for people."""
        split = f", {self.splits} blocks a sum" if self.splits > 1 else ""
        shared = f", {self.blocks} blocks a multiprocessor" if self.blocks > 1 else ""
        groups = f"{self.consumers} warpgroups{' in turns' if self.alternates else ''}"
        walked = f", {self.walked:.1%} of the chunks" if self.walked < 1 else ""
        return f"depth {self.depth}, {self.stages} stages, {groups}{split}{shared}{walked}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpgroupTile(RingTile):
    """How warpgroups compute the tile of a product.

    Attributes:
        rows: extent of each of the left operand's free axes in a block's tile.
        columns: the same for the right operand's columns.
        sum_dtype: type of the sums, four bytes each.
        sparsity: how many of a row's neighbours the left operand has; ``None`` where all.
        is_turned: whether neighbours in the output are rows, not columns.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    sum_dtype: str
    sparsity: Sparsity | None = None
    is_turned: bool = False

    @property
    def lines(self) -> int:
        """Lines of the right operand's columns that meet one of the left operand's rows."""
        return 1 if self.sparsity is None else self.sparsity.of // self.sparsity.kept

    @property
    def places_start(self) -> int:
        """Bytes of a stage ahead of the words that tell which numbers the left operand has."""
        return (self.block_rows + self.width * self.lines) * LINE

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage: a chunk of either operand, and of such words."""
        if self.sparsity is None:
            return self.places_start
        words = self.block_rows // PLACES_ROWS * self.depth // PLACES_DEPTH * PLACES_WORDS
        return self.places_start + words * _WORD

    @property
    def together(self) -> int:
        """Columns whose sums a warp stores together, where rows are neighbours."""
        return math.gcd(self.width, CORNER_COLUMNS)

    @property
    def layout(self) -> SumLayout:
        """How the sums that a warp stores together lie in its registers."""
        return turned_sums(self.together) if self.is_turned else MMA_SUMS

    @property
    def warp_sums(self) -> tuple[int, int]:
        """Extents of a warp's sums as they are stored, neighbours the last."""
        across, down = CORNER_ROWS, self.instructions * self.width
        return (down, across) if self.is_turned else (across * self.instructions, self.width)

    @property
    def store_shape(self) -> tuple[int, ...]:
        """Sums that go out together: the block's part of them, or a corner a warp.

        Their padding keeps neighbouring rows, or columns, on different banks.
        """
        if self.is_turned:
            if self.splits > 1:
                return (self.width, self.block_rows + QUAD)
            return (4 * self.consumers, self.together, CORNER_ROWS + QUAD)
        if self.splits > 1:
            return (self.block_rows, self.width + PARTIAL_PADDING)
        return (4 * self.consumers, CORNER_ROWS, CORNER_PITCH)

    def describe(self) -> str:
        """The tile in one line, for people."""
        rows, columns = ("x".join(map(str, box)) for box in (self.rows, self.columns))
        kept = "" if self.sparsity is None else f", {self.sparsity} of the rows"
        return f"block {rows} by {columns}, {RingTile.describe(self)}{kept}"
