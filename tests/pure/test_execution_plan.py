"""Execution plans as data: queues, rTasks, and where resident weights lie."""

from __future__ import annotations

from tvm_tile.plan.execution_plan import (
    ExecutionPlan,
    Placement,
    PlanStep,
    QueuedTask,
    ResidentPart,
    RKernel,
    ROperator,
    RTasks,
    dependences,
)

PLAIN = RKernel(5, 128, 1000, 32, 1e-6, 1e-7)
HELD = RKernel(2, 128, 100, 32, 1e-6, 1e-7, resident_bytes=300)
OPERATORS = (
    ROperator("a", (PLAIN,), (0,), (1,), 2e-6),
    ROperator("b", (PLAIN, HELD), (1,), (2,), 2e-6, weights=7, body=1),
    ROperator("c", (PLAIN, HELD), (2, 1), (3,), 2e-6, weights=7, body=1),
)
HELD_STEPS = tuple(PlanStep((Placement(RTasks(number, 0, 2), 1, 2),)) for number in (1, 2))
PLAN = ExecutionPlan(
    num_veus=3,
    veus_per_processor=1,
    block_size=256,
    shared_bytes=2048 + 384,
    chosen=(0, 1, 1),
    copies=(2, 1, 1),
    steps=(PlanStep((Placement(RTasks(0, 0, 3), 0, 2),)), *HELD_STEPS),
    uses_flags=False,
    residents=(False, True, True),
    seconds=1e-5,
)


def test_a_placement_goes_round_its_veus() -> None:
    assert PLAN.tasks(OPERATORS, 0) == 3
    assert PLAN.queues() == (
        (QueuedTask(0, 0, 0), QueuedTask(0, 0, 2)),
        (QueuedTask(0, 0, 1), QueuedTask(1, 1, 0), QueuedTask(2, 2, 0)),
        (QueuedTask(1, 1, 1), QueuedTask(2, 2, 1)),
    )


def test_equal_code_is_counted_once() -> None:
    assert PLAN.bodies(OPERATORS) == ((0, 0, 2), (1, 1, 1))


def test_operators_with_the_same_weights_share_what_is_resident() -> None:
    assert PLAN.scratch_bytes(OPERATORS) == 2048
    assert PLAN.resident_parts(OPERATORS) == (
        ResidentPart(operator=1, task=0, veu=1, offset=2048, size=300),
        ResidentPart(operator=1, task=1, veu=2, offset=2048, size=300),
    )


def test_operators_depend_on_who_writes_what_they_read() -> None:
    assert dependences(OPERATORS) == ((), (0,), (0, 1))
