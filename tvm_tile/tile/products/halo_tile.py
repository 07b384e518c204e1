"""Products with windows between them, and the tiles by which a block computes them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm_tile.tile.tile import Tile
from tvm_tile.tile.units.product import Product
from tvm_tile.tile.units.slab import FRAGMENT, UNIT
from tvm_tile.tile.units.sum_layout import CORNER_PITCH, CORNER_ROWS

WARP = 32  # threads
WARPS = 8


@dataclass(frozen=True, slots=True)
class Row:
    """A dimension of the places, all but the channels.

    Attributes:
        extent: places along it that windows are summed for.
        taps: taps of a window.
        step: step from one window to the next.
        spread: distance from one tap to the next.
    """

    extent: int
    taps: int = 1
    step: int = 1
    spread: int = 1

    def reach(self, count: int) -> int:
        """Places that ``count`` neighbouring windows reach."""
        return (count - 1) * self.step + (self.taps - 1) * self.spread + 1


@dataclass(frozen=True, slots=True)
class Halo:
    """A product, what reads its values, and perhaps a second product.

    Attributes:
        first: the first product; its left operand has the places, its right one the channels.
        rows: the places' dimensions.
        channels: channels of the windows' sums, which are the second product's depth.
        parts: first channel of each of the values of one channel that are read of the first
            product; more than one where a value gates another.
        has_window: whether windows are summed.
        second: the second product, which takes the windows' sums; ``None`` where they are the
            output.
        inner_operations: operations of one value of the first product, behind it.
        outer_operations: operations on one value behind the windows.
        traffic: bytes that cross global memory at least.
    """

    first: Product
    rows: tuple[Row, ...]
    channels: int
    parts: tuple[int, ...]
    has_window: bool
    second: Product | None
    inner_operations: int
    outer_operations: int
    traffic: int

    @property
    def taps(self) -> int:
        """Elements of a window."""
        return math.prod(row.taps for row in self.rows)

    @property
    def columns(self) -> int:
        """Columns of the second product; 0 without one."""
        return self.second.right.extent if self.second else 0

    @property
    def kept_parts(self) -> int:
        """Values of one channel that are handed on to the windows; else a value is made of all."""
        return len(self.parts) if self.has_window else 1


@dataclass(frozen=True, slots=True)
class HaloTile(Tile):
    """How products with windows between them are computed.

    Attributes:
        box: windows along each of the places' dimensions.
        chunk: channels at a time.
        turns: chunks that a block takes, one after the other.
        warps: warps of the second product, along its rows and its columns.
        halo: places that the box's windows reach along each dimension.
        depth: depth of the first product, in whole instructions.
        columns: columns of the first product that are computed at a time.
        width: columns of the second product, in whole warps.
        kept: columns of the first product's values that are kept at a time.
        taps: taps of a window; 0 where there is none.
        grid: blocks.
    """

    box: tuple[int, ...]
    chunk: int
    turns: int
    warps: tuple[int, int]
    halo: tuple[int, ...]
    depth: int
    columns: int
    width: int
    kept: int
    taps: int
    grid: int = 0

    @property
    def block_size(self) -> int:
        """Threads of a block."""
        return WARP * WARPS

    @property
    def places(self) -> int:
        """Rows of the first product, in whole instructions."""
        return whole(math.prod(self.halo), FRAGMENT)

    @property
    def windows(self) -> int:
        """Rows of the second product, in whole warps."""
        return whole(math.prod(self.box), FRAGMENT * self.warps[0])

    @property
    def depth_pitch(self) -> int:
        """Elements from one row of the first product's operands to the next.

        An odd number of 16-byte units: the eight rows that a warp loads at once lie on all banks.
        """
        return self.depth + UNIT

    @property
    def kept_pitch(self) -> int:
        """Elements from one row to the next, of the values that are handed to the windows."""
        return self.kept + UNIT

    @property
    def chunk_pitch(self) -> int:
        """Elements from one row to the next, of the second product's operands."""
        return self.chunk + UNIT

    @property
    def channel_warps(self) -> int:
        """Warps that sum windows of channels of their own, sixteen each."""
        return self.chunk // FRAGMENT

    @property
    def fragments(self) -> int:
        """Fragments of 16 windows that a warp sums."""
        return -(-self.windows // FRAGMENT // (WARPS // self.channel_warps))

    @property
    def has_spare_fragments(self) -> bool:
        """Whether warps have more fragments than there are."""
        return self.fragments * (WARPS // self.channel_warps) * FRAGMENT > self.windows

    @property
    def stages(self) -> int:
        """Chunks of weights in shared memory: the next one comes while one is read."""
        return min(2, self.turns)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements of each part of shared memory, in the order of :meth:`start`.

        The first product's left operand, values handed on, windows' sums, the weights of both
        products by stages, and those of the windows.
        """
        is_summed = self.taps > 0
        return (
            self.places * self.depth_pitch,
            max(self.places, 0 if is_summed else self.windows) * self.kept_pitch,
            self.windows * self.chunk_pitch if is_summed else 0,
            self.stages * self.columns * self.depth_pitch,
            self.stages * self.width * self.chunk_pitch,
            2 * whole(self.taps * self.kept * self.turns, UNIT),
        )

    def start(self, part: int) -> int:
        """Elements before a part of shared memory."""
        return sum(self.sizes[:part])

    @property
    def corners(self) -> tuple[int, int, int]:
        """Floats through which the second product's sums go out, where all else was."""
        return (WARPS, CORNER_ROWS, CORNER_PITCH)

    def describe(self) -> str:
        """The tile in one line, for people."""
        box = "x".join(map(str, self.box))
        return f"box {box}, {self.chunk} channels at a time, {self.turns} times"


def whole(number: int, unit: int) -> int:
    """``number`` rounded up to a multiple of ``unit``."""
    return -(-number // unit) * unit
