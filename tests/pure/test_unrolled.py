"""Plans of programs with loops: those of some iterations written out, folded."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from rprograms import random_program

from tvm_tile.device import find_device
from tvm_tile.plan.coschedule import coschedule
from tvm_tile.plan.execution_plan import (
    ExecutionPlan,
    Placement,
    PlanStep,
    RKernel,
    ROperator,
    RTasks,
)
from tvm_tile.plan.idle_veus import with_idle_veus
from tvm_tile.plan.rprogram import Branch, Footprint, Repeat, RProgram, Series, While
from tvm_tile.plan.unrolled import Durations, fold, seconds_of, unroll

H200 = find_device("nvidia/h200")
NONE = Footprint(frozenset(), frozenset())


def test_the_middle_iteration_stands_for_all() -> None:
    sides = Branch(0, 2, (Series((2,)),), 3, (Series((3,)),))
    program = RProgram(
        (Series((0,)), Repeat(1, 40, (Series((1,)), sides)), Series((4,))), (NONE,) * 5, (0,)
    )
    line = unroll(program)
    assert line.iterations == 16
    assert line.operators == (0, *(1, 2, 3) * 16, 4)
    assert line.kept == (0, 25, 26, 27, 49)
    assert seconds_of(program, line, Durations((1, 0, 0, 0, 2))) == 3
    assert seconds_of(program, line, Durations((0, 1, 0, 0, 0))) == 40
    assert seconds_of(program, line, Durations((0, 0, 1, 3, 0), 5, 1)) == 40 * (2 + 5 + 2)


def test_every_second_iteration_is_no_branch() -> None:
    """As many iterations as are planned, where nobody knows how many there are."""
    second = Branch(1, 3, (Series((1,)),), 4, (Series((2,)),), turn_of=1)
    program = RProgram((While(1, 2, 0, (Series((0,)), second)),), (NONE,) * 3, (0, 0))
    line = unroll(program)
    assert seconds_of(program, line, Durations((1, 1, 100))) == 32
    assert seconds_of(program, line, Durations((0, 0, 0), 2)) == 64


@pytest.mark.parametrize("seed", range(20))
def test_every_operator_is_placed_whole(seed: int) -> None:
    found = random_program(random.Random(seed))
    line = unroll(found.program)
    names = [replace(found.operators[n], reads=(), writes=()) for n in line.operators]
    plan = coschedule(tuple(names), H200)
    assert plan is not None
    folded = fold(plan, line)
    placed: dict[int, int] = {}
    for step in folded.steps:
        for placement in step.placements:
            tasks = placement.tasks
            placed[tasks.operator] = placed.get(tasks.operator, 0) + tasks.stop - tasks.start
    for number in range(len(found.operators)):
        assert placed[number] == folded.tasks(found.operators, number)


def test_layers_are_on_vector_units_of_their_own_one_iteration_apart() -> None:
    """Four layers of a recurrence: each reads its own last value and the layer below's."""
    layers = 4
    kernel = RKernel(32, 128, 0, 32, 2e-6, 2e-6)
    resident = replace(kernel, block_seconds=1e-6, busy_seconds=1e-6, resident_bytes=128 << 10)
    body = tuple(range(layers))
    program = RProgram((While(1, 2, 0, (Series(body),)),), (NONE,) * layers, (0,))
    line = unroll(program)
    operators, last = [], dict.fromkeys(range(-1, layers), -1)
    for position, number in enumerate(line.operators):
        reads = last[number], last[number - 1]
        own = f"layer {number}", (kernel, resident), reads, (position,), 2e-6
        operators.append(ROperator(*own, weights=number))
        last[number] = position
    plan = coschedule(tuple(operators), H200)
    assert plan is not None
    folded = fold(plan, line)
    assert all(folded.residents)
    units = [
        {placement.veu(task) for task in range(placement.tasks.start, placement.tasks.stop)}
        for step in folded.steps
        for placement in step.placements
    ]
    assert sum(map(len, units)) == len(set().union(*units)) == 32 * layers
    assert plan.seconds < 0.5 * len(line.operators) * 1e-6 + 50e-6


def test_small_operators_of_a_loop_are_where_nothing_else_of_it_is() -> None:
    """One that fills all vEUs but two, and three small ones; one stays, or a vEU had too much."""
    large, small = (RKernel(blocks, 128, 0, 32, 2e-6, 2e-6) for blocks in (130, 1))
    kernels = large, small, small, small
    operators = tuple(ROperator(f"o{n}", (k,), (), (), 2e-6) for n, k in enumerate(kernels))
    wide = Placement(RTasks(0, 0, 130), 0, 130)
    others = [Placement(RTasks(n, 0, 1), n, 1) for n in (1, 2, 3)]
    steps = tuple(PlanStep((placement,)) for placement in (wide, *others))
    numbers, stays = (0,) * 4, (False,) * 4
    plan = ExecutionPlan(132, 1, 128, 0, numbers, (1,) * 4, steps, True, stays, 1e-6)
    program = RProgram((Repeat(1, 9, (Series((0, 1, 2, 3)),)),), (NONE,) * 4)
    found = with_idle_veus(plan, operators, program, H200)
    places = {p.tasks.operator: p.first_veu for step in found.steps for p in step.placements}
    assert sorted(places.values()) == [0, 130, 130, 131]
    straight = RProgram((Series((0, 1, 2, 3)),), (NONE,) * 4)
    assert with_idle_veus(plan, operators, straight, H200) == plan
