"""Bands of a matrix: what its diagonals say, so that a mask need not be read from memory.

A causal mask keeps ``j <= i``, a sliding window ``i - w < j <= i``: whether an element is kept is
a matter of its diagonal ``j - i`` only, and the kept diagonals are neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_MATRIX = 2  # dimensions


@dataclass(frozen=True, slots=True)
class Band:
    """The elements ``(i, j)`` with ``lower <= j - i <= upper``; ``None`` where nothing bounds them.

    Attributes:
        lower: the first diagonal.
        upper: the last one; 0 is the main diagonal.
    """

    lower: int | None
    upper: int | None

    def reaches_all_rows(self, rows: int, columns: int) -> bool:
        """Whether each row of a matrix has an element in the band."""
        first_ends = self.upper is None or self.upper >= 0
        last_begins = self.lower is None or rows - 1 + self.lower < columns
        return first_ends and last_begins

    def within(self, other: Band) -> Band:
        """The band of what is in both."""
        lowers, uppers = (self.lower, other.lower), (self.upper, other.upper)
        return Band(
            max((d for d in lowers if d is not None), default=None),
            min((d for d in uppers if d is not None), default=None),
        )

    def of(self, rows: int, columns: int) -> Band:
        """The band as far as it bounds a matrix."""
        lower = None if self.lower is not None and self.lower <= 1 - rows else self.lower
        upper = None if self.upper is not None and self.upper >= columns - 1 else self.upper
        return Band(lower, upper)

    def holds(self, diagonal: Any) -> list[Any]:
        """Conditions on ``j - i`` that hold for elements in the band."""
        bounds = []
        if self.lower is not None:
            bounds.append(diagonal >= self.lower)
        if self.upper is not None:
            bounds.append(diagonal <= self.upper)
        return bounds

    def crosses(self, diagonal: Any, rows: int, columns: int) -> list[Any]:
        """Conditions on a tile's first ``j - i``, each of which puts elements out of the band."""
        bounds = []
        if self.lower is not None:
            bounds.append(diagonal - (rows - 1) < self.lower)
        if self.upper is not None:
            bounds.append(diagonal + (columns - 1) > self.upper)
        return bounds

    def tiles(
        self,
        row: Any,
        rows: int,
        columns: int,
        tile: int,
        smaller: Callable[[Any, Any], Any] = min,
        larger: Callable[[Any, Any], Any] = max,
    ) -> tuple[Any, Any]:
        """Range of the tiles of columns in which some rows have elements within the band.

        The range has at least one tile, though the rows may have no elements at all.

        Args:
            row: the first of the rows: a number, or an expression of integers.
            rows: how many rows there are.
            columns: how many columns the matrix has.
            tile: how many columns a tile has.
            smaller: function that gives the smaller of two expressions.
            larger: function that gives the larger of two expressions.

        Returns:
            Number of the first tile, and of the one behind the last.
        """
        end = (columns + tile - 1) // tile
        last: Any = columns - 1
        if self.upper is not None:
            last = larger(smaller(row + (rows - 1 + self.upper), columns - 1), 0)
            end = last // tile + 1
        first = 0
        if self.lower is not None:
            first = smaller(larger(row + self.lower, 0), last) // tile
        return first, end

    def kept_tiles(self, shape: tuple[int, int], tile: tuple[int, int]) -> tuple[int, ...]:
        """How many tiles each block of rows walks through, from the first block on."""
        pairs = (self.tiles(row, tile[0], shape[1], tile[1]) for row in range(0, shape[0], tile[0]))
        return tuple(end - first for first, end in pairs)


EVERYWHERE = Band(None, None)


@dataclass(frozen=True, slots=True)
class Banded:
    """A matrix of two values.

    Attributes:
        band: band whose elements have the value ``inside``.
        inside: the value there.
        outside: the value everywhere else.
    """

    band: Band
    inside: Any
    outside: Any


def find_banded(values: np.ndarray) -> Banded | None:
    """A constant as a band over its last two axes, the same at all places of those before them.

    Returns:
        ``None`` for anything else: three values, a value that is no number, one value only.
    """
    if values.ndim < _MATRIX or min(values.shape, default=0) < 1:
        return None
    matrix = values[(0,) * (values.ndim - _MATRIX)]
    ends = matrix[-1, 0], matrix[0, -1]
    inside = matrix == ends[0]
    # Most constants are told from a band by their first two rows.
    for top in (inside[:_MATRIX], inside):
        if not np.array_equal(top[1:, 1:], top[:-1, :-1]):
            return None
    diagonals = np.concatenate([inside[::-1, 0], inside[0, 1:]])
    if not diagonals[0]:  # no number
        return None
    if diagonals[-1]:
        inside, diagonals = ~inside, ~diagonals
    runs = find_runs(diagonals.tolist())
    if len(runs) != 1:
        return None
    within, without = matrix[inside], matrix[~inside]
    if not np.all(within == within[0]) or not np.all(without == without[0]):
        return None
    if not np.array_equal(values, np.broadcast_to(matrix, values.shape)):
        return None
    (first, last), lowest = runs[0], 1 - matrix.shape[0]
    band = Band(
        None if first == 0 else lowest + first,
        None if last == len(diagonals) - 1 else lowest + last,
    )
    return Banded(band, within[0], without[0])


def find_runs(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """First and last places of neighbours that are all set."""
    edges = np.flatnonzero(np.diff([0, *map(int, flags), 0]))
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]
