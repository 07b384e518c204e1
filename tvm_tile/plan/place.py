"""Which vEU runs which rTasks, and when they are done: a list schedule.

Between barriers, rTasks go to the vEUs that are free first. With flags, an operator starts when
the counters of those it reads from are visible, step by step in the order of the plan. Weights
that stay in shared memory have a home, the same for all operators that read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tvm_tile.device.device import Device
from tvm_tile.plan.execution_plan import Placement, PlanStep, ROperator, RTasks
from tvm_tile.plan.fit import Floats, Ints
from tvm_tile.plan.ways import Way

_ROUNDING = 1e-9
# What a resident byte counts beside seconds, where vEUs are equally busy: enough to prefer vEUs
# that hold less.
_BYTE_SECONDS = 1e-15


def flag_seconds(device: Device) -> float:
    """Seconds from the addition to a counter until those who spin on it have seen it and go on."""
    return device.times.persistent.flag_cycles / device.clock


@dataclass(frozen=True, slots=True)
class Placed:
    """Steps with their placements.

    Attributes:
        steps: steps in their order.
        uses_flags: whether rTasks wait for flags, not for barriers between the steps.
        seconds: when the last rTask is done, from the start of the first.
    """

    steps: tuple[PlanStep, ...]
    uses_flags: bool
    seconds: float


def spread(busy_until: Floats, tasks: int, seconds: float, most: Ints | None = None) -> Ints:
    """Number of equal rTasks that each vEU gets, so that the last ends soonest.

    Args:
        busy_until: for each vEU, the time until which it is busy, in seconds; infinite where it
            takes none.
        tasks: number of rTasks, with at least one vEU that takes them.
        seconds: seconds of each rTask.
        most: the most rTasks that each vEU takes; none of them are left over only if there is room.

    Returns:
        Counts, shape (veus,); their sum is ``tasks``, or less where ``most`` leaves no room.
    """
    counts = np.zeros(len(busy_until), np.int64)
    free = busy_until.copy()
    while (left := tasks - int(counts.sum())) > 0 and np.isfinite(free).any():
        counts += _spread(
            np.where(np.isfinite(free), free + counts * seconds, np.inf), left, seconds
        )
        if most is None:
            break
        counts = np.minimum(counts, most)
        free[counts >= most] = np.inf
    return counts


def _spread(busy_until: Floats, tasks: int, seconds: float) -> Ints:
    """Number of equal rTasks for each vEU, filling those first that are free earliest."""
    order = np.argsort(busy_until, kind="stable")
    sorted_until = busy_until[order]
    finite = sorted_until[np.isfinite(sorted_until)]
    # The level that so much work reaches if it flows to the lowest: the first few vEUs are below.
    levels = (np.cumsum(finite) + tasks * seconds) / np.arange(1, len(finite) + 1)
    level = levels[np.flatnonzero(levels >= finite * (1 - _ROUNDING))[-1]]
    whole = np.floor(np.maximum(level - busy_until, 0) / seconds * (1 + _ROUNDING))
    counts = whole.astype(np.int64)
    left = tasks - int(counts.sum())
    if left > 0:
        ends = busy_until + (counts + 1) * seconds
        # Ends that differ by rounding alone are equal, so that neighbours are taken.
        counts[np.argsort(np.round(ends / seconds, 6), kind="stable")[:left]] += 1
    elif left < 0:
        counts[np.argsort(-counts, kind="stable")[:-left]] -= 1
    return counts


def placements(operator: int, counts: Ints) -> tuple[Placement, ...]:
    """Placements of an operator's rTasks, given each vEU's count; equal neighbours are one."""
    edges = np.flatnonzero(np.diff(counts)) + 1
    starts = [0, *map(int, edges)]
    ends = [*map(int, edges), len(counts)]
    found, task = [], 0
    for first, end in zip(starts, ends, strict=True):
        number = int(counts[first]) * (end - first)
        if number:
            tasks = RTasks(operator, task, task + number)
            found.append(Placement(tasks, first, end - first))
            task += number
    return tuple(found)


def homes(
    operators: tuple[ROperator, ...], chosen: Sequence[Way], steps: Ints, num_veus: int, room: int
) -> dict[int, Ints] | None:
    """For each of the weights that stay, the number of rTasks whose parts each vEU holds.

    Weights that are read in the same steps go to different vEUs as far as there are enough.

    Args:
        operators: operators of the kernel.
        chosen: how each is run.
        steps: the step of each.
        num_veus: number of vEUs.
        room: bytes for resident parts on each.

    Returns:
        By weights, counts of shape (veus,); None where the room does not do.
    """
    ways: dict[int, Way] = {}
    used: dict[int, set[int]] = {}
    for operator, way, step in zip(operators, chosen, steps.tolist(), strict=True):
        if way.resident_bytes and operator.weights is not None:
            ways[operator.weights] = way
            used.setdefault(operator.weights, set()).add(step)
    found: dict[int, Ints] = {}
    held = np.zeros(num_veus, np.int64)
    for weights, way in ways.items():
        busy = held * _BYTE_SECONDS
        for other, counts in found.items():
            if used[weights] & used[other]:
                busy = busy + counts * ways[other].seconds
        most = (room - held) // way.resident_bytes
        counts = spread(np.where(most > 0, busy, np.inf), way.tasks, way.seconds, most)
        if counts.sum() < way.tasks:
            return None
        found[weights] = counts
        held += counts * way.resident_bytes
    return found


@dataclass(frozen=True, slots=True)
class Placer:
    """Places the operators of a kernel.

    Attributes:
        operators: operators of the kernel.
        chosen: how each is run.
        dependences: for each operator, those that it reads from.
        homes: number of rTasks whose parts each vEU holds, by the weights that stay.
        num_veus: number of vEUs.
        flag_seconds: seconds from the addition to a counter until those who wait for it go on.
    """

    operators: tuple[ROperator, ...]
    chosen: Sequence[Way]
    dependences: Sequence[tuple[int, ...]]
    homes: dict[int, Ints]
    num_veus: int
    flag_seconds: float

    def with_barriers(self, steps: Sequence[Sequence[int]], barrier_seconds: float) -> Placed:
        """Place rTasks in steps; all vEUs wait for one another between two steps."""
        placed, total = [], barrier_seconds * (len(steps) - 1)
        for members in steps:
            free = np.zeros(self.num_veus)
            found: list[Placement] = []
            for number in sorted(members, key=self._longest_first):
                counts = self._counts(number, free)
                free += counts * self.chosen[number].seconds
                found += placements(number, counts)
            placed.append(PlanStep(tuple(found)))
            total += float(free.max())
        return Placed(tuple(placed), False, total)

    def with_flags(self, steps: Sequence[Sequence[int]]) -> Placed:
        """Place rTasks so that each waits, by flags, for the operators that it reads from."""
        placed = []
        free = np.zeros(self.num_veus)
        visible = np.zeros(len(self.operators))
        for members in steps:
            starts = {
                number: max((float(visible[n]) for n in self.dependences[number]), default=0.0)
                for number in members
            }
            found: list[Placement] = []
            for number in sorted(members, key=lambda n: (starts[n], self._longest_first(n))):
                ready = np.maximum(free, starts[number])
                counts = self._counts(number, ready)
                ends = ready + counts * self.chosen[number].seconds
                free = np.where(counts > 0, ends, free)
                visible[number] = ends[counts > 0].max() + self.flag_seconds
                found += placements(number, counts)
            placed.append(PlanStep(tuple(found)))
        return Placed(tuple(placed), True, float(free.max()))

    def _longest_first(self, number: int) -> tuple[bool, float, int]:
        """The order in a step: weights that have a home cannot give way; then the longest."""
        way = self.chosen[number]
        return not way.resident_bytes, -way.seconds, number

    def _counts(self, number: int, busy_until: Floats) -> Ints:
        """Number of an operator's rTasks on each vEU, where its weights are if these stay."""
        way, weights = self.chosen[number], self.operators[number].weights
        if way.resident_bytes and weights is not None:
            return self.homes[weights]
        return spread(busy_until, way.tasks, way.seconds)
