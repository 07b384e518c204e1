"""The ranked schedules of one function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeVar

from tvm_tile import compat
from tvm_tile.schedule.contraction import schedule_contraction
from tvm_tile.schedule.elementwise import schedule_elementwise
from tvm_tile.schedule.reduction import schedule_reduction
from tvm_tile.schedule.rows import schedule_rows
from tvm_tile.schedule.rule import Rule, Scheduled, Task
from tvm_tile.schedule.window import schedule_window

# The first rule that can write a tile takes the function.
RULES: tuple[Rule, ...] = (
    schedule_rows,
    schedule_contraction,
    schedule_window,
    schedule_reduction,
    schedule_elementwise,
)
T = TypeVar("T")
_SPARE = 3  # further choices, for those that TVM cannot write


def candidates(task: Task, topk: int) -> tuple[Scheduled, ...]:
    """At most ``topk`` schedules of a function, best first; empty if no rule takes it."""
    for rule in RULES:
        found = tuple(islice(_written(rule, task, topk + _SPARE), topk))
        if found:
            return found
    return ()


def candidates_at(task: Task, ranks: tuple[int, ...]) -> dict[int, Scheduled]:
    """Those of the first rule's choices that stand at ``ranks``, where TVM can write them."""
    for rule in RULES:
        choices = rule(task, max(ranks) + 1)
        if choices:
            written = {rank: choices[rank]() for rank in ranks if rank < len(choices)}
            return {rank: done for rank, done in written.items() if done is not None}
    return {}


def _written(rule: Rule, task: Task, count: int) -> Iterator[Scheduled]:
    """A rule that trips over a function, or over a tile, has not taken it."""
    choices = _attempt(lambda: rule(task, count))
    for choice in choices or ():
        done = _attempt(choice)
        if done is not None:
            yield done


def _attempt(call: Callable[[], T]) -> T | None:
    try:
        return call()
    except compat.TVM_ERRORS:
        return None
