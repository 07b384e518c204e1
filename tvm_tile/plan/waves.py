"""Which operators run in the same step.

Topological levels come first: no order of steps is shorter than the longest chain. Then operators
that have slack move to steps where they cost less: into one with room, or with one that takes as
long; a step that all have left is gone (Rammer's waves, section 4, beyond its breadth-first ones).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tvm_tile.plan.fit import Fits, Floats, Ints

_SWEEPS = 2
_WINDOW = 48  # steps that an operator may move at once


def levels(dependences: Sequence[tuple[int, ...]]) -> Ints:
    """Length of the longest chain of operators that leads to each operator."""
    found: list[int] = []
    for before in dependences:
        found.append(1 + max((found[number] for number in before), default=-1))
    return np.array(found, np.int64)


def step_points(fits: Fits, kinds: Ints, steps: Ints) -> Ints:
    """Point of the grid, for each step, at which its operators fit."""
    counts = np.zeros((int(steps.max()) + 1, len(fits.veus)))
    np.add.at(counts, (steps, kinds), 1)
    return fits.points(counts @ fits.veus)


def form_steps(
    fits: Fits, kinds: Ints, dependences: Sequence[tuple[int, ...]], step_seconds: float
) -> Ints:
    """The step of each operator.

    Args:
        fits: times of the kinds of operators.
        kinds: kind of each operator.
        dependences: for each operator, those that it reads from; all have lower numbers.
        step_seconds: seconds of each step beside its operators.
    """
    waves = _Forming(fits, kinds, dependences, step_seconds)
    for _ in range(_SWEEPS):
        moved = [waves.move(number, late=True) for number in reversed(range(len(kinds)))]
        moved += [waves.move(number, late=False) for number in range(len(kinds))]
        if not any(moved):
            break
    # Numbers without gaps.
    return np.unique(waves.steps, return_inverse=True)[1].astype(np.int64)


class _Forming:
    """Steps while they are formed, and what each takes at every point of the grid."""

    def __init__(
        self,
        fits: Fits,
        kinds: Ints,
        dependences: Sequence[tuple[int, ...]],
        step_seconds: float,
    ) -> None:
        self._fits, self._kinds, self._before = fits, kinds, dependences
        self._step_seconds = step_seconds
        self._after: list[list[int]] = [[] for _ in kinds]
        for number, before in enumerate(dependences):
            for earlier in before:
                self._after[earlier].append(number)
        self.steps = levels(dependences)
        self._members = np.bincount(self.steps)
        self._taken = np.zeros((len(self._members), len(fits.grid)))
        np.add.at(self._taken, self.steps, fits.veus[kinds])

    def move(self, number: int, *, late: bool) -> bool:
        """Put an operator into the step where it costs least; whether that is a cheaper one.

        Of equal ones, the step where it is, or the last where ``late``, to make room for those
        before it.
        """
        here = int(self.steps[number])
        first, last = self._range(number, here)
        if first == last:
            return False
        veus = self._fits.veus[self._kinds[number]]
        self._taken[here] -= veus
        self._members[here] -= 1
        added = self._added(slice(first, last + 1), veus)
        least = added.min() + 1e-12
        staying = added[here - first]
        there = here
        if late:
            there = first + int(np.flatnonzero(added <= least)[-1])
        elif staying > least:
            there = first + int(np.argmin(added))
        self._taken[there] += veus
        self._members[there] += 1
        self.steps[number] = there
        return bool(staying > least)

    def _range(self, number: int, here: int) -> tuple[int, int]:
        """The steps where it could be."""
        steps = self.steps
        first = max((int(steps[n]) + 1 for n in self._before[number]), default=0)
        last = min((int(steps[n]) - 1 for n in self._after[number]), default=len(self._members) - 1)
        return max(first, here - _WINDOW), min(last, here + _WINDOW)

    def _added(self, window: slice, veus: Floats) -> Floats:
        """The seconds that an operator adds to each step of ``window``."""
        fits, taken = self._fits, self._taken[window]
        used = self._members[window] > 0
        now = np.where(used, fits.grid[fits.points(taken)] + self._step_seconds, 0)
        then = fits.grid[fits.points(taken + veus)] + self._step_seconds
        return np.asarray(then - now, np.float64)
