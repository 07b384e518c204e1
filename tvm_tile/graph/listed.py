"""Which chunks of a summed axis a product needs, where some are zeros: lists that a table tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

WORD = 32  # chunks that a number of a table tells of
_FINEST = 8  # columns that a tile has at least


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
