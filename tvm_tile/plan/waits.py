"""Counters that the rTasks of a persistent kernel wait for, and the values to wait for.

Every rTask adds one to a counter at its end. With flags, there is a counter for each operator;
with barriers, for each step. Those that add to the same counter wait for the same. The kernel's
table (:mod:`tvm_tile.plan.records`) holds these waits.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tile.plan.execution_plan import ExecutionPlan, QueuedTask, ROperator, dependences


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait for a counter to come to ``target``, the number of rTasks that add to it."""

    counter: int
    target: int


Waits = tuple[tuple[Wait, ...], ...]
"""Of each counter of a plan, what the rTasks that add to it wait for before they begin."""


def counter_of(plan: ExecutionPlan, task: QueuedTask) -> int:
    """The counter that a rTask adds to."""
    return task.operator if plan.uses_flags else task.step


def count_counters(operators: tuple[ROperator, ...], plan: ExecutionPlan) -> int:
    """How many counters a plan takes."""
    return len(operators) if plan.uses_flags else len(plan.steps)


def waits(operators: tuple[ROperator, ...], plan: ExecutionPlan) -> Waits:
    """Counters that the rTasks of a plan wait for.

    Args:
        operators: the operators that were planned.
        plan: their plan.
    """
    if not plan.uses_flags:
        return _for_steps(plan)
    return tuple(
        tuple(Wait(number, plan.tasks(operators, number)) for number in numbers)
        for numbers in latest(dependences(operators))
    )


def _for_steps(plan: ExecutionPlan) -> Waits:
    """For each step, waits for all rTasks of the last step before it that has any.

    These have themselves waited for the step before theirs, and so for all earlier ones. A vEU
    that has no rTasks takes no part.
    """
    found: list[tuple[Wait, ...]] = []
    last: tuple[Wait, ...] = ()
    for number, step in enumerate(plan.steps):
        found.append(last)
        count = sum(p.tasks.stop - p.tasks.start for p in step.placements)
        if count:
            last = (Wait(number, count),)
    return tuple(found)


def latest(before: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """For each operator, those that it depends on and that no other one stands between.

    Who sees the later counter sees what was written before the earlier one.

    Args:
        before: dependences, as found by :func:`~tvm_tile.plan.execution_plan.dependences`.
    """
    # Bit n is set where operator n comes before, on any path.
    ancestors: list[int] = []
    found = []
    for direct in before:
        behind = 0
        for number in direct:
            behind |= ancestors[number]
        found.append(tuple(number for number in direct if not behind >> number & 1))
        ancestors.append(behind | sum(1 << number for number in direct))
    return tuple(found)
