"""When each rTask of an execution plan runs, as predicted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvm_tile.device.device import Device
from tvm_tile.plan.execution_plan import ExecutionPlan, ROperator, dependences
from tvm_tile.plan.place import flag_seconds
from tvm_tile.plan.ways import rtask_seconds


@dataclass(frozen=True, slots=True)
class Slot:
    """rTasks of one operator that run at the same time on neighbouring vEUs.

    Attributes:
        step: number of their step.
        operator: number of their operator.
        first_veu: vEU of the first of them.
        num_veus: number of rTasks, each on a vEU.
        begin: seconds from the start of the first step; when they have waited.
        end: when they are done.
    """

    step: int
    operator: int
    first_veu: int
    num_veus: int
    begin: float
    end: float


def timeline(
    operators: tuple[ROperator, ...], plan: ExecutionPlan, device: Device
) -> tuple[Slot, ...]:
    """All rTasks of a plan, step by step."""
    flag = flag_seconds(device)
    barrier = device.grid_barrier_latency or 0.0
    before = dependences(operators)
    free = [0.0] * plan.num_veus
    visible = [0.0] * len(operators)
    begin = 0.0
    spans: list[Slot] = []
    for number, step in enumerate(plan.steps):
        if not plan.uses_flags and number:
            begin = max(free) + barrier
        for placement in step.placements:
            operator = placement.tasks.operator
            choice, copies = plan.choice(operators, operator), plan.copies[operator]
            seconds = rtask_seconds(choice, copies, plan.veus_per_processor, device)
            if plan.uses_flags:
                begin = max((visible[n] for n in before[operator]), default=0.0)
            for task in range(placement.tasks.start, placement.tasks.stop):
                veu = placement.veu(task)
                start = max(free[veu], begin)
                free[veu] = start + seconds
                spans.append(Slot(number, operator, veu, 1, start, free[veu]))
                visible[operator] = max(visible[operator], free[veu] + flag)
    return tuple(_merged(spans))


def _merged(spans: list[Slot]) -> Iterator[Slot]:
    """Neighbours at the same time become one."""
    last = None
    for span in spans:
        if last is not None and _continues(last, span):
            last = replace(last, num_veus=last.num_veus + 1)
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last


def _continues(last: Slot, span: Slot) -> bool:
    """Whether rTasks continue a slot: at the same time, on the next vEUs."""
    same = last.operator == span.operator and last.begin == span.begin
    return same and last.first_veu + last.num_veus == span.first_veu
