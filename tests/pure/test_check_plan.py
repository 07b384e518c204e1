"""Plans with a fault are refused: statically, or in the run of their queues."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from roperators import lstm
from simulated_plan import simulate

import tvm_tile
from tvm_tile.errors import PlanError
from tvm_tile.plan.check_plan import check, check_extents
from tvm_tile.plan.execution_plan import (
    ExecutionPlan,
    Placement,
    PlanStep,
    RKernel,
    ROperator,
    RTasks,
    dependences,
)
from tvm_tile.plan.waits import Wait, latest, waits
from tvm_tile.plan.workspace import Extent, allocate, lifetimes

H200 = tvm_tile.find_device("nvidia/h200")
CHOICE = RKernel(264, 128, 1000, 32, 1e-6, 1e-7)
CHAIN = tuple(
    ROperator(f"o{number}", (CHOICE,), (number,), (number + 1,), 2e-6) for number in range(4)
)


def step(*operators: int) -> PlanStep:
    return PlanStep(tuple(Placement(RTasks(number, 0, 132), 0, 132) for number in operators))


PLAN = ExecutionPlan(
    num_veus=132,
    veus_per_processor=1,
    block_size=256,
    shared_bytes=2048,
    chosen=(0,) * 4,
    copies=(2,) * 4,
    steps=tuple(step(number) for number in range(4)),
    uses_flags=False,
    residents=(False,) * 4,
    seconds=1e-5,
)
FLAGS = replace(PLAN, uses_flags=True)
# Value 3 may lie where value 1 was; values 2 and 3 are needed at once.
EXTENTS = (Extent(1, 0, 512), Extent(2, 512, 512), Extent(3, 0, 512))


def run(plan: ExecutionPlan, extents: tuple[Extent, ...] = (), **options: object) -> None:
    for seed in range(5):
        simulate(CHAIN, plan, extents, random.Random(seed), **options)  # type: ignore[arg-type]


def test_a_right_plan_passes() -> None:
    check(CHAIN, PLAN, H200, EXTENTS)
    check(CHAIN, FLAGS, H200)
    run(PLAN, EXTENTS)
    run(FLAGS)


def test_without_one_of_its_waits_a_value_is_read_too_early() -> None:
    for number in range(1, 4):
        for plan in (PLAN, FLAGS):
            waited = list(waits(CHAIN, plan))
            waited[number] = ()
            with pytest.raises(PlanError, match=f"operator={number}.*reads value {number}"):
                run(plan, waited=tuple(waited))


def test_a_wait_for_a_later_operator_is_a_deadlock() -> None:
    with pytest.raises(PlanError, match="some vEU can go on"):
        run(FLAGS, waited=((), (Wait(3, 132),), (Wait(1, 132),), (Wait(2, 132),)))


def test_steps_in_the_wrong_order() -> None:
    first, second, third, fourth = PLAN.steps
    for steps in ((first, third, second, fourth), (first, step(1, 2), fourth)):
        with pytest.raises(PlanError, match="earlier steps"):
            check(CHAIN, replace(PLAN, steps=steps), H200)
    with pytest.raises(PlanError, match="values that are there"):
        run(replace(PLAN, steps=(first, third, second, fourth)))
    with pytest.raises(PlanError, match="some vEU can go on"):
        run(replace(FLAGS, steps=(first, third, second, fourth)))


@pytest.mark.parametrize(
    "tasks",
    [(RTasks(3, 0, 131),), (RTasks(3, 0, 132), RTasks(3, 5, 6)), (RTasks(3, 1, 133),)],
    ids=["dropped", "twice", "shifted"],
)
def test_each_rtask_runs_once(tasks: tuple[RTasks, ...]) -> None:
    last = PlanStep(tuple(Placement(some, 0, 132) for some in tasks))
    with pytest.raises(PlanError, match="each of the 132 rTasks of o3 runs once"):
        check(CHAIN, replace(PLAN, steps=(*PLAN.steps[:3], last)), H200)


def test_values_needed_at_once_do_not_overlap() -> None:
    wrong = (*EXTENTS[:2], Extent(3, 768, 512))
    with pytest.raises(PlanError, match="bytes of their own"):
        check(CHAIN, PLAN, H200, wrong)
    with pytest.raises(PlanError, match="when all have read them"):
        run(PLAN, wrong)
    with pytest.raises(PlanError, match="bytes of their own"):
        check_extents(CHAIN, FLAGS, EXTENTS)


@pytest.mark.parametrize(
    ("change", "requirement"),
    [
        (lambda p: replace(p, num_veus=264), "132 multiprocessors"),
        (lambda p: replace(p, block_size=2048), "vEUs are resident"),
        (lambda p: replace(p, copies=(3, 2, 2, 2), steps=()), "runs once"),
        (lambda p: replace(p, block_size=128), "copies fit into 128 threads"),
        (lambda p: replace(p, shared_bytes=1024), "need 2048 bytes"),
        (lambda p: replace(p, shared_bytes=300_000), "at most 230400 bytes"),
        (lambda p: replace(p, residents=(True,) * 4), "a resident part"),
    ],
)
def test_budgets(change: Callable[[ExecutionPlan], ExecutionPlan], requirement: str) -> None:
    with pytest.raises(PlanError, match=requirement):
        check(CHAIN, change(PLAN), H200)


def test_registers_are_those_of_all_threads_of_a_multiprocessor() -> None:
    greedy = tuple(replace(o, choices=(replace(CHOICE, registers=200),)) for o in CHAIN)
    check(greedy, PLAN, H200)
    with pytest.raises(PlanError, match="a thread has 128 registers"):
        check(greedy, replace(PLAN, block_size=512), H200)


def test_copies_have_barriers_of_their_own() -> None:
    small = replace(CHOICE, threads=32, blocks=132 * 16, shared_bytes=0)
    operators = (replace(CHAIN[0], choices=(small,)),)
    plan = replace(PLAN, block_size=512, chosen=(0,), copies=(16,), residents=(False,))
    plan = replace(plan, steps=(step(0),))
    with pytest.raises(PlanError, match="at most 15 copies"):
        check(operators, plan, H200)
    check((replace(CHAIN[0], choices=(replace(small, barriers=False),)),), plan, H200)


def test_resident_weights_stay_where_they_are() -> None:
    held = RKernel(13, 256, 0, 64, 1e-6, 1e-7, resident_bytes=1000)
    cells = tuple(replace(cell, choices=(held,)) for cell in lstm(layers=1, length=2))
    steps = [PlanStep((Placement(RTasks(number, 0, 13), 5, 13),)) for number in range(2)]
    plan = replace(
        PLAN,
        chosen=(0, 0),
        copies=(1, 1),
        residents=(True, True),
        steps=tuple(steps),
        shared_bytes=1024,
    )
    check(cells, plan, H200)
    moved = PlanStep((Placement(RTasks(1, 0, 13), 6, 13),))
    with pytest.raises(PlanError, match="weights 0 stay at"):
        check(cells, replace(plan, steps=(steps[0], moved)), H200)
    with pytest.raises(PlanError, match="need 1000 bytes"):
        check(cells, replace(plan, shared_bytes=512), H200)


def test_waits_are_those_that_no_other_wait_implies() -> None:
    skip = (*CHAIN[:3], replace(CHAIN[3], reads=(1, 2, 3)))
    assert latest(dependences(skip)) == ((), (0,), (1,), (2,))
    fork = (CHAIN[0], CHAIN[1], replace(CHAIN[2], reads=(1,)), replace(CHAIN[3], reads=(1, 2, 3)))
    assert latest(dependences(fork)) == ((), (0,), (0,), (1, 2))
    assert waits(fork, FLAGS)[3] == (Wait(1, 132), Wait(2, 132))


def test_steps_wait_for_the_last_that_had_any_rtasks() -> None:
    plan = replace(PLAN, steps=(PLAN.steps[0], PlanStep(()), *PLAN.steps[1:]))
    first = (Wait(0, 132),)
    assert waits(CHAIN, plan) == ((), first, first, (Wait(2, 132),), (Wait(3, 132),))
    run(plan, EXTENTS)


def test_lifetimes_and_offsets_of_a_chain() -> None:
    lives = lifetimes(CHAIN, PLAN)
    assert [(life.value, life.born, life.dies) for life in lives] == [
        (1, 0, 1),
        (2, 1, 2),
        (3, 2, 3),
        (4, 3, 3),
    ]
    assert {life.dies for life in lifetimes(CHAIN, FLAGS)} == {3}
    unread = (CHAIN[0], replace(CHAIN[1], reads=()), *CHAIN[2:])
    assert lifetimes(unread, PLAN)[0].dies == 3
    born, dies = [life.born for life in lives[:3]], [life.dies for life in lives[:3]]
    assert allocate((500, 600, 512), born, dies) == ((768, 0, 768), 1280)
