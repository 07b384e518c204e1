"""How long a step takes: the least time in which all of its operators fit on the vEUs.

In a time T, a vEU runs ``floor(T / seconds)`` rTasks of an operator, so that the operator takes
``tasks / floor(T / seconds)`` vEUs. Each operator runs in the way that takes the fewest; a step
takes the least T for which all of them together take no more vEUs than there are. So an operator
that is alone in its step runs fast and wide, and one among many thriftily (Rammer, section 4:
the interplay of scheduling inside operators and among them).

All T of a grid are looked at together: ``veus`` has a row a kind and a column a T.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tvm_tile.plan.ways import Way

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_GRID_POINTS = 256
_MOST_EXACT = 256  # times of rTasks that are themselves points of the grid
# vEUs that an operator takes where none of its rTasks ends in time: more than any device has, and
# small enough to be added and subtracted exactly enough.
_NEVER = 1e9
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Fits:
    """A table of what every kind of operator takes in every time of a grid.

    Attributes:
        grid: times in seconds, ascending, shape (points,).
        veus: shape (kinds, points); falls along the grid.
        best: number of the way that takes the fewest vEUs, shape (kinds, points).
        num_veus: number of vEUs.
    """

    grid: Floats
    veus: Floats
    best: Ints
    num_veus: int

    def points(self, taken: Floats) -> Ints:
        """The first point of the grid where vEUs fit that are taken in each time."""
        late = np.count_nonzero(taken > self.num_veus * (1 + _ROUNDING), axis=-1)
        return np.minimum(late, len(self.grid) - 1)


def fits(ways: Sequence[tuple[Way, ...]], counts: Sequence[int], num_veus: int) -> Fits:
    """The table for kinds with these ways, none of them empty, and ``counts`` operators of each."""
    seconds = np.unique([way.seconds for several in ways for way in several])
    work = (min(way.tasks * way.seconds for way in several) for several in ways)
    total = sum(count * seconds for count, seconds in zip(counts, work, strict=True))
    # A list schedule of all operators in one step takes no longer than this.
    longest = 2 * (total / num_veus + seconds[-1])
    exact = seconds if len(seconds) <= _MOST_EXACT else seconds[:1]
    grid = np.union1d(np.geomspace(seconds[0], longest, _GRID_POINTS), exact)
    rows = [_row(several, grid) for several in ways]
    return Fits(
        grid, np.stack([veus for veus, _ in rows]), np.stack([b for _, b in rows]), num_veus
    )


def _row(ways: tuple[Way, ...], grid: Floats) -> tuple[Floats, Ints]:
    """For each time of the grid, the fewest vEUs that a kind needs, and by which way."""
    seconds = np.array([way.seconds for way in ways])
    tasks = np.array([way.tasks for way in ways], np.float64)
    rounds = np.floor(grid / seconds[:, None] * (1 + _ROUNDING))
    veus = np.where(rounds > 0, tasks[:, None] / np.maximum(rounds, 1), _NEVER)
    # Equal ones in the order of the ways, whose first are the fastest alone.
    best = np.argmin(veus, axis=0)
    return veus[best, np.arange(len(grid))], best
