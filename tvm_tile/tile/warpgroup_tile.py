"""One tile of a product for Hopper's warpgroup instructions: its extents and what follows of them.

:mod:`tvm_tile.tile.warpgroup` finds and ranks such tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tvm_tile.tile.sum_layout import CORNER_PITCH, CORNER_ROWS
from tvm_tile.tile.tile import Tile

LINE = 128  # bytes of a swizzled row: the depth of a chunk, or the columns of a transposed one
WARPGROUP = 128  # threads
ROWS = 64  # of one instruction
BARRIER_BYTES = 2048  # bytes kept free for the barriers and for aligning the ring
# Floats behind a row of a block's part of a split sum: neighbouring rows begin on different banks.
PARTIAL_PADDING = 8


@dataclass(frozen=True, slots=True)
class WarpgroupTile(Tile):
    """How warpgroups compute the tile of a product.

    Attributes:
        rows: extent of each of the left operand's free axes in a block's tile.
        columns: the same of the right operand's.
        depth: elements of the summed axis in a chunk.
        stages: chunks that the ring holds.
        consumers: warpgroups that multiply.
        alternates: whether consumers take tiles in turns, so that one stores its sums while the
            other multiplies; otherwise they share the rows of each tile.
        instructions: rows of a warpgroup, in instructions of 64.
        width: columns of an instruction.
        splits: blocks, a cluster, that share the sum of a tile.
        blocks: that share a multiprocessor.
        raster: tiles of rows that are walked before the next tile of columns.
        sum_dtype: of the sums, four bytes each.
        grid: blocks, each of which takes tiles until none is left.
        tiles: of the whole output.
        division: of registers, what producer's and consumers' threads have; None as launched.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    depth: int
    stages: int
    consumers: int
    alternates: bool
    instructions: int
    width: int
    splits: int
    blocks: int
    raster: int
    sum_dtype: str
    grid: int = field()
    tiles: int
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
    def stage_bytes(self) -> int:
        """Bytes of a stage: a chunk of either operand."""
        return (self.block_rows + self.width) * LINE

    @property
    def store_shape(self) -> tuple[int, ...]:
        """Sums that go out together: the block's part of them, or a corner a warp.

        Their padding keeps neighbouring rows on different banks.
        """
        if self.splits > 1:
            return (self.block_rows, self.width + PARTIAL_PADDING)
        return (4 * self.consumers, CORNER_ROWS, CORNER_PITCH)

    @property
    def block_size(self) -> int:
        """Threads: the consumers' and the producer's warpgroup."""
        return WARPGROUP * (self.consumers + 1)

    def describe(self) -> str:
        """The tile in one line, for people."""
        rows, columns = ("x".join(map(str, box)) for box in (self.rows, self.columns))
        ring = f"depth {self.depth}, {self.stages} stages"
        split = f", {self.splits} blocks a sum" if self.splits > 1 else ""
        shared = f", {self.blocks} blocks a multiprocessor" if self.blocks > 1 else ""
        turns = " in turns" if self.alternates else ""
        groups = f"{self.consumers} warpgroups{turns}"
        return f"block {rows} by {columns}, {ring}, {groups}{split}{shared}"
