"""Which tiles of an axis there are, and where they lie, if these are not all, side by side.

Of a summed axis those are left out that constants have nothing but zeros for: *listed* chunks
(SparTA, OSDI'22). Rows of a product lie together that data tell the same matrix for: *groups*. Of a
product ``y[s, n] = sum over k of x[s, k] * w[ids[s], n, k]`` no order among the rows ``s`` matters.
So those of equal ``ids`` may be computed side by side, as a dense tile against one matrix, wherever
they lie (PIT, SOSP'23, section 3.1): an expert's tokens, say.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tvm_tile.graph.tile_graph import Axis

WORD = 32  # chunks that a number of a table tells of
_FINEST = 8  # columns that a tile has at least
_DEVIATIONS = 8  # of a group's size from its mean, beyond which it is taken to be never


@dataclass(frozen=True, slots=True)
class Grouped:
    """Rows that share the value of an index that is data.

    A table of *slots* says which rows make a tile: of a group that begins behind ``first`` rows of
    others, tile ``t`` is in slot ``group + first // size + t``. No two tiles share a slot, as
    ``first // size + ceil(count / size) <= 1 + (first + count) // size``, so that each group's are
    known from its own begin and end alone; slots between these are empty.

    Attributes:
        axis: the groups; not an axis of the output.
        rows: axes of the output that number the rows, the last the fastest.
    """

    axis: Axis
    rows: tuple[Axis, ...]

    @property
    def place(self) -> Axis:
        """Places of rows in a list in which those of a group are side by side; of a tile the
        first."""
        return Axis(f"{self.axis.name}.place", self.count)

    @property
    def held(self) -> str:
        """Name of the number of a tile's rows, as of an axis."""
        return f"{self.axis.name}.held"

    @property
    def count(self) -> int:
        """Rows of all groups."""
        return math.prod(axis.extent for axis in self.rows)

    def slots(self, size: int) -> int:
        """Slots for tiles of ``size`` rows, whatever the groups are."""
        return self.axis.extent + self.count // size

    def tiles(self, size: int) -> float:
        """Tiles of ``size`` rows, on the average, where each row's group is any one alike."""
        return expected_tiles(self.count, self.axis.extent, size)

    @property
    def met(self) -> float:
        """Groups of one row or more, on the average, where each row's group is any one alike."""
        return self.tiles(self.count)


@functools.lru_cache(maxsize=1 << 10)
def expected_tiles(rows: int, groups: int, size: int) -> float:
    """Tiles of ``size`` rows that groups of random sizes fill, on the average.

    Args:
        rows: rows, each of any group alike.
        groups: number of groups.
        size: most rows of a tile, which are of one group.
    """
    if groups == 1:
        return math.ceil(rows / size)
    mean, spread = rows / groups, math.sqrt(rows / groups)
    share = 1 / groups
    low = max(1, math.floor(mean - _DEVIATIONS * spread))
    high = min(rows, math.ceil(mean + _DEVIATIONS * (spread + 1)))
    total = 0.0
    for count in range(low, high + 1):
        ways = math.lgamma(rows + 1) - math.lgamma(count + 1) - math.lgamma(rows - count + 1)
        chance = ways + count * math.log(share) + (rows - count) * math.log1p(-share)
        total += math.exp(chance) * math.ceil(count / size)
    return groups * total


@dataclass(frozen=True, slots=True)
class Listed:
    """For each group of a matrix's columns the chunks that are not zeros, one at least.

    The columns are those of a product's right operand; of a left one, they are its rows.

    Attributes:
        source: name of the tensor that has the lists as bits, see :meth:`table`.
        step: columns of a group.
        chunk: elements of the summed axis in a chunk.
        chunks: number of chunks.
        groups: for each group a number whose bit ``c`` says that chunk ``c`` is listed.
    """

    source: str
    step: int
    chunk: int
    chunks: int
    groups: tuple[int, ...]

    @property
    def words(self) -> int:
        """Numbers of a group in the table."""
        return -(-self.chunks // WORD)

    @property
    def share(self) -> float:
        """Share of all chunks that is listed for the groups: of what has to be read."""
        listed = sum(group.bit_count() for group in self.groups)
        return listed / (len(self.groups) * self.chunks)

    @property
    def shape(self) -> tuple[int, int]:
        """The table's."""
        return len(self.groups), self.words + 1

    @property
    def order(self) -> list[int]:
        """The groups by how many chunks they list, the longest first: blocks that take tiles in
        turns, there and back, then have as much to do each."""
        return sorted(range(len(self.groups)), key=lambda n: -self.groups[n].bit_count())

    def is_ordered(self, size: int, extent: int) -> bool:
        """Whether tiles of ``size`` of ``extent`` columns are walked in that order: parts of groups
        are, unions are not."""
        is_whole = extent == len(self.groups) * self.step and self.step % size == 0
        return is_whole or size == self.step

    def counts(self, size: int, extent: int) -> list[int]:
        """How many chunks each tile of ``size`` columns walks, those of any of its groups, in the
        order that tiles are walked in."""
        if self.is_ordered(size, extent):
            each = self.step // size
            return [self.groups[n].bit_count() for n in self.order for _ in range(each)]
        found = []
        for first in range(0, extent, size):
            bits = 0
            for group in self.groups[first // self.step : -(-(first + size) // self.step)]:
                bits |= group
            found.append(bits.bit_count())
        return found

    def table(self) -> np.ndarray:
        """The lists as their tensor has them, uint32: of each group its bits, in words the lowest
        first; behind them not the group's own, but one number of :attr:`order`."""
        size = self.words * WORD // 8
        rows = b"".join(group.to_bytes(size, "little") for group in self.groups)
        bits = np.frombuffer(rows, "<u4").reshape(len(self.groups), self.words)
        return np.hstack([bits, np.array(self.order, np.uint32)[:, None]])

    def kept(self) -> np.ndarray:
        """Whether each chunk of each group is listed."""
        table = np.ascontiguousarray(self.table()[:, : self.words]).view(np.uint8)
        return np.unpackbits(table, axis=1, bitorder="little")[:, : self.chunks] > 0


def listed_chunks(values: np.ndarray, chunk: int, source: str) -> Listed:
    """The chunks of a matrix that are not zeros.

    Args:
        values: columns by the summed axis.
        chunk: elements of the summed axis in a chunk.
        source: name of the table.

    Returns:
        Lists of groups that are as large as they can be without more being listed. A group of
        zeros has its first chunk.
    """
    if values.flags.c_contiguous:
        kept = _boxes_with_numbers(values, _FINEST, chunk)
    else:
        kept = _boxes_with_numbers(np.ascontiguousarray(values.T), chunk, _FINEST).T.copy()
    kept[~kept.any(axis=1), 0] = True
    step = _FINEST
    while len(kept) % 2 == 0 and np.array_equal(kept[::2], kept[1::2]):
        kept, step = kept[::2], 2 * step
    return Listed(source, step, chunk, kept.shape[1], tuple(_number(row) for row in kept))


def _boxes_with_numbers(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Whether the boxes of a contiguous matrix have other numbers than zeros, of either sign."""
    bits = values.view(f"u{values.itemsize}")
    if len(bits) % rows:
        bits = np.pad(bits, ((0, -len(bits) % rows), (0, 0)))
    found = np.bitwise_or.reduce(bits.reshape(-1, rows, bits.shape[1]), axis=1)
    if values.dtype.kind not in "iub" and "fnuz" not in values.dtype.name:
        found <<= 1  # the sign
    return np.logical_or.reduceat(found != 0, np.arange(0, found.shape[1], columns), axis=1)


def _number(bits: Sequence[bool]) -> int:
    """A number with these bits, the lowest first."""
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")
