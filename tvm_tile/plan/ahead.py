"""Weights that a persistent kernel prefetches, and queues of rTasks with prefetches and waits.

A vEU that waits leaves memory idle. So before it waits for a step, it asks the second-level cache
for its share of the weights that the step's operators read, whoever reads them: who has no rTask in
the step asks, too, as soon as those it depends on may begin, so that no vEU is more than a step
ahead of the others and throws out of the cache what they still need.

Why that changes no result: a prefetch is no access, and weights are constants, which nobody writes.
Why all vEUs still end: an entry waits for counters of earlier steps only, as rTasks do. Of all
entries that are left, one of the earliest step waits for none that is left, so that it goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm_tile.device.device import Device
from tvm_tile.plan.execution_plan import ExecutionPlan, QueuedTask, ROperator, dependences
from tvm_tile.plan.waits import Wait, Waits, counter_of

LINE = 128  # bytes that are asked for at once


@dataclass(frozen=True, slots=True)
class Ask:
    """A vEU's share of a constant that it asks the second-level cache for.

    Attributes:
        operator: operator that reads the constant.
        constant: number of the constant among the operator's.
        start: bytes from the constant's start, a multiple of :data:`LINE`.
        lines: number of lines; the last may be partly behind the constant's end.
    """

    operator: int
    constant: int
    start: int
    lines: int


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A vEU's next entry: it asks for constants, then waits, then runs a rTask.

    Attributes:
        task: rTask that it runs; ``None`` where it runs none.
        waits: counters that it waits for.
        asks: constants that it asks for.
    """

    task: QueuedTask | None
    waits: tuple[Wait, ...]
    asks: tuple[Ask, ...] = ()


def shares(sizes: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Divide the bytes that may be asked for ahead among several parts, the largest first.

    Args:
        sizes: bytes of each part.
        most: bytes that may be asked for, of all parts together.

    Returns:
        Bytes to be asked for of each part, in the order of ``sizes``.
    """
    left, found = most, [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        found[number] = min(left, sizes[number])
        left -= found[number]
    return tuple(found)


def ahead_bytes(
    operators: tuple[ROperator, ...], plan: ExecutionPlan, device: Device
) -> tuple[int, ...]:
    """How many bytes of each operator's constants are asked for ahead.

    The operators of a step share what the device's record says is worth it. Those that depend on
    none run at once, so that nothing is ahead; weights that stay in shared memory are there.

    Args:
        operators: the operators that were planned.
        plan: their plan.
        device: the device that it runs on.

    Returns:
        One number an operator; no numbers where nothing was measured of kernels that stream.
    """
    stream = device.times.persistent.stream
    if stream is None:
        return ()
    before = dependences(operators)
    found = [0] * len(operators)
    for step in plan.steps:
        members = {p.tasks.operator for p in step.placements}
        waiting = sorted(n for n in members if before[n] and not plan.residents[n])
        sizes = tuple(operators[n].constant_bytes for n in waiting)
        for number, size in zip(waiting, shares(sizes, stream.ahead_bytes), strict=True):
            found[number] = size
    return tuple(found)


def entries(
    operators: tuple[ROperator, ...], plan: ExecutionPlan, waited: Waits
) -> tuple[tuple[QueueEntry, ...], ...]:
    """The queue of each vEU with what it asks and waits for.

    Args:
        operators: the operators that were planned.
        plan: their plan.
        waited: counters that rTasks wait for.
    """
    asked = [_asked(operators, plan, veu) for veu in range(plan.num_veus)]
    return tuple(
        tuple(_entries(queue, plan, waited, own))
        for queue, own in zip(plan.queues(), asked, strict=True)
    )


def _asked(
    operators: tuple[ROperator, ...], plan: ExecutionPlan, veu: int
) -> list[tuple[Ask, ...]]:
    """Lines of each constant that a vEU asks for in each step."""
    found: list[tuple[Ask, ...]] = []
    for step in plan.steps:
        asks: list[Ask] = []
        for number in sorted({p.tasks.operator for p in step.placements}):
            sizes = operators[number].constants
            share = shares(sizes, plan.ahead[number]) if plan.ahead else (0,) * len(sizes)
            for constant, size in enumerate(share):
                lines = -(-size // LINE)
                each = -(-lines // plan.num_veus)
                own = min(each, lines - veu * each)
                if own > 0:
                    asks.append(Ask(number, constant, veu * each * LINE, own))
        found.append(tuple(asks))
    return found


def _entries(
    queue: Sequence[QueuedTask],
    plan: ExecutionPlan,
    waited: Waits,
    asked: Sequence[tuple[Ask, ...]],
) -> list[QueueEntry]:
    """The queue of one vEU: rTasks with their waits, and the asks of each step ahead of them."""
    found: list[QueueEntry] = []
    position = 0
    for number, asks in enumerate(asked):
        left = asks
        while position < len(queue) and queue[position].step == number:
            task = queue[position]
            found.append(QueueEntry(task, waited[counter_of(plan, task)], left))
            left = ()
            position += 1
        if left:
            counters = sorted({a.operator for a in left}) if plan.uses_flags else [number]
            direct = {wait.counter for counter in counters for wait in waited[counter]}
            early = {wait: None for counter in sorted(direct) for wait in waited[counter]}
            found += [QueueEntry(None, tuple(early)), QueueEntry(None, (), left)]
    return found
