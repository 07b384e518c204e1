"""Small rOperators of a loop on vEUs that run nothing else in it.

A vEU runs an iteration before the next one. So whatever a small rOperator shares a vEU with, it
cannot be further ahead than that: a row that the first layer of a recurrence waits for, fetched by
a vEU of the last layer, would hold all layers together. Those that the loop leaves idle are free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tvm_tile.device.device import Device
from tvm_tile.plan.execution_plan import ExecutionPlan, Placement, PlanStep, ROperator, RTasks
from tvm_tile.plan.fit import Floats
from tvm_tile.plan.rprogram import Item, Repeat, RProgram, Series, While, inner
from tvm_tile.plan.ways import rtask_seconds


def with_idle_veus(
    plan: ExecutionPlan, operators: tuple[ROperator, ...], program: RProgram, device: Device
) -> ExecutionPlan:
    """A plan in which the small rOperators of each loop are where nothing else of it is.

    They go where that makes no vEU busier than the busiest is.

    Args:
        plan: a plan of the operators.
        operators: operators of the program.
        program: program whose outermost loops are looked at.
        device: the device that it is made for.
    """
    moved: dict[int, tuple[Placement, ...]] = {}
    for members in _loops(program.items):
        moved |= _moved(plan, operators, sorted(members), device)
    steps = []
    for step in plan.steps:
        done = {p.tasks.operator for p in step.placements}
        kept = [p for p in step.placements if p.tasks.operator not in moved]
        kept += [placement for number in sorted(done) for placement in moved.pop(number, ())]
        steps.append(PlanStep(tuple(kept)))
    return replace(plan, steps=tuple(step for step in steps if step.placements))


def _moved(
    plan: ExecutionPlan, operators: tuple[ROperator, ...], members: Sequence[int], device: Device
) -> Mapping[int, tuple[Placement, ...]]:
    """New places of those rOperators of a loop that are moved."""
    seconds = {
        number: rtask_seconds(
            plan.choice(operators, number), plan.copies[number], plan.veus_per_processor, device
        )
        for number in members
    }
    load: Floats = np.zeros(plan.num_veus)
    for step in plan.steps:
        for placement in step.placements:
            tasks = placement.tasks
            for task in range(tasks.start, tasks.stop) if tasks.operator in seconds else ():
                load[placement.veu(task)] += seconds[tasks.operator]
    idle, most = np.flatnonzero(load == 0), float(load.max())
    found: dict[int, tuple[Placement, ...]] = {}
    for number in members:
        count = plan.tasks(operators, number)
        if plan.residents[number] or count > len(idle):
            continue
        veus = idle[np.argsort(load[idle], kind="stable")[:count]].tolist()
        if max(load[veu] for veu in veus) + seconds[number] > most:
            continue
        load[veus] += seconds[number]
        found[number] = tuple(
            Placement(RTasks(number, task, task + 1), veu, 1) for task, veu in enumerate(veus)
        )
    return found


def _loops(items: Sequence[Item]) -> Iterator[set[int]]:
    """The rOperators of each of the outermost loops."""
    for item in items:
        if isinstance(item, Repeat | While):
            yield set(_all(item.body))
        else:
            for body in inner(item):
                yield from _loops(body)


def _all(items: Sequence[Item]) -> Iterator[int]:
    """Numbers of all operators in the items, at any depth."""
    for item in items:
        if isinstance(item, Series):
            yield from item.operators
        for body in inner(item):
            yield from _all(body)
