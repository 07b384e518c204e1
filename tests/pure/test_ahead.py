"""Weights that a persistent kernel asks for ahead: whose, where in the queues, what it is worth."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from roperators import random_graph
from simulated_plan import simulate

import tvm_tile
from tvm_tile.device import Device
from tvm_tile.device.times import StreamTimes
from tvm_tile.errors import PlanError
from tvm_tile.plan.ahead import LINE, QueueEntry, ahead_bytes, entries, shares
from tvm_tile.plan.check_plan import check
from tvm_tile.plan.coschedule import coschedule
from tvm_tile.plan.execution_plan import ExecutionPlan, Group, RKernel, ROperator
from tvm_tile.plan.groups import MARGIN, partition
from tvm_tile.plan.records import (
    ARGUMENTS,
    ASKS,
    BODY,
    MOST_ASKS,
    NOTHING,
    UNIT,
    WAIT_COUNT,
    TaskKind,
    make_table,
)
from tvm_tile.plan.stream import stream_seconds
from tvm_tile.plan.waits import Wait, waits

STREAM = StreamTimes("made up", 0.9, 4000.0, 8 << 20)
RUNS = 1000


def streaming(device: Device, stream: StreamTimes | None) -> Device:
    persistent = replace(device.times.persistent, stream=stream)
    return replace(device, times=replace(device.times, persistent=persistent))


H200 = streaming(tvm_tile.find_device("nvidia/h200"), STREAM)
SMALL = replace(H200, multi_processor_count=3)
PRODUCT = RKernel(128, 256, 1000, 64, 1e-5, 1e-5)


def chain(count: int, *sizes: int) -> tuple[ROperator, ...]:
    return tuple(
        ROperator(f"o{n}", (PRODUCT,), (n,), (n + 1,), 1.2e-5, constants=sizes)
        for n in range(count)
    )


def planned(operators: tuple[ROperator, ...], device: Device) -> ExecutionPlan:
    plan = coschedule(operators, device)
    assert plan is not None
    return plan


def with_constants(rng: random.Random, operators: Sequence[ROperator]) -> tuple[ROperator, ...]:
    """Up to three weights for each, some of less than a line a vEU."""
    sizes = (0, 16_000, 1_000_001, 9_000_000)
    return tuple(
        replace(o, constants=tuple(rng.choice(sizes) for _ in range(rng.randint(0, 3))))
        for o in operators
    )


def random_plan(seed: int) -> tuple[random.Random, tuple[ROperator, ...], ExecutionPlan]:
    """A plan with flags or with barriers, checked."""
    rng = random.Random(seed)
    operators = with_constants(rng, random_graph(rng, rng.randint(2, 9)))
    plan = replace(planned(operators, SMALL), uses_flags=rng.random() < 0.5)
    check(operators, plan, SMALL)
    return rng, operators, plan


def test_a_thousand_plans_run_rightly_and_broken_ones_do_not() -> None:
    refused = broken = asked = 0
    for seed in range(RUNS):
        rng, operators, plan = random_plan(seed)
        simulate(operators, plan, (), rng)
        asked += any(plan.ahead)
        with pytest.raises(PlanError, match="ahead"):
            check(operators, spoilt(rng, operators, plan), SMALL)
        waited = list(waits(operators, plan))
        waiting = [number for number, several in enumerate(waited) if several]
        if not waiting:
            continue
        broken += 1
        number = rng.choice(waiting)
        first, *others = waited[number]
        waited[number] = (Wait(first.counter, first.target + 1), *others)
        with pytest.raises(PlanError, match="some vEU can go on"):
            simulate(operators, plan, (), rng, tuple(waited))
        waited[number] = tuple(others)
        refused += is_refused(operators, plan, rng, waited)
    assert asked > RUNS / 3
    assert broken > RUNS / 2
    # Some waits that are gone are never missed: what they are for has long happened.
    assert refused > broken / 2


def spoilt(
    rng: random.Random, operators: tuple[ROperator, ...], plan: ExecutionPlan
) -> ExecutionPlan:
    """A plan that asks for more than there is, for less than nothing, or for too few operators."""
    ahead = list(plan.ahead or (0,) * len(operators))
    number = rng.randrange(len(ahead))
    change = rng.randrange(3)
    if change == 0:
        ahead[number] = operators[number].constant_bytes + 1
    elif change == 1:
        ahead[number] = -1
    else:
        ahead.append(0)
    return replace(plan, ahead=tuple(ahead))


def is_refused(
    operators: tuple[ROperator, ...],
    plan: ExecutionPlan,
    rng: random.Random,
    waited: list[tuple[Wait, ...]],
) -> bool:
    try:
        for _ in range(3):
            simulate(operators, plan, (), rng, tuple(waited))
    except PlanError:
        return True
    return False


def test_each_line_is_asked_for_once_and_none_behind_a_constant() -> None:
    for seed in range(60):
        _, operators, plan = random_plan(seed)
        lines: dict[tuple[int, int], list[int]] = {}
        for queue in entries(operators, plan, waits(operators, plan)):
            for entry in queue:
                for ask in entry.asks:
                    first = ask.start // LINE
                    lines.setdefault((ask.operator, ask.constant), []).extend(
                        range(first, first + ask.lines)
                    )
        for (operator, constant), found in lines.items():
            assert sorted(found) == list(range(len(found)))
            assert (len(found) - 1) * LINE < operators[operator].constants[constant]
        for number, size in enumerate(plan.ahead):
            own = sum(len(found) for (o, _), found in lines.items() if o == number)
            assert size <= own * LINE < size + LINE * len(operators[number].constants) + 1


def test_who_has_no_rtask_asks_when_the_step_before_begins() -> None:
    """They would ask for all steps at once, and throw out of the cache what others need."""
    operators = chain(4, 1 << 20)
    plan = replace(planned(operators, H200), uses_flags=True)
    queues = entries(operators, plan, waits(operators, plan))
    idle = [q for q in queues if not any(entry.task for entry in q)]
    assert len(idle) == 132 * plan.veus_per_processor - plan.tasks(operators, 0)
    tasks = plan.tasks(operators, 0)
    early = [entry.waits for entry in idle[0][::2]]
    assert early == [(), (Wait(0, tasks),), (Wait(1, tasks),)]
    assert [entry.asks[0].operator for entry in idle[0][1::2]] == [1, 2, 3]
    busy = next(q for q in queues if any(entry.task for entry in q))
    assert [entry.asks != () for entry in busy] == [False, True, True, True]


def test_a_record_asks_for_no_more_than_it_holds_and_waits_last() -> None:
    operators = chain(2, *[40_000] * (2 * MOST_ASKS + 1))
    plan = planned(operators, SMALL)
    kinds = [TaskKind(n, None, ((0, 0),), (), ((1, 256),) * 5) for n in range(2)]
    words = make_table(operators, plan, kinds).words
    asking = [row for row in words if row[ASKS + 2]]
    assert {int(row[BODY]) for row in asking} == {NOTHING, 1}
    assert all(row[ARGUMENTS - 1] or row[BODY] == 1 for row in asking)
    for row in asking:
        assert (row[WAIT_COUNT] > 0) == (row[BODY] == 1)
        assert row[ASKS] == 1
        assert row[ASKS + 1] * UNIT >= 256


def test_nothing_is_asked_for_where_that_was_not_measured() -> None:
    device = streaming(SMALL, None)
    plan = planned(chain(3, 1 << 20), device)
    assert plan.ahead == ()
    assert all(not e.asks for q in entries(chain(3), plan, waits(chain(3), plan)) for e in q)


@given(st.lists(st.integers(0, 1 << 24), max_size=6), st.integers(0, 1 << 25))
def test_shares_are_of_the_largest_first(sizes: list[int], ahead: int) -> None:
    found = shares(tuple(sizes), ahead)
    assert sum(found) == min(ahead, sum(sizes))
    assert all(0 <= share <= size for share, size in zip(found, sizes, strict=True))
    by_size = sorted(zip(sizes, found, strict=True), key=lambda pair: -pair[0])
    cut = [share < size for size, share in by_size]
    assert cut == sorted(cut), "what is cut short comes behind what is whole"


def test_weights_that_stay_are_there_already() -> None:
    operators = chain(3, 1 << 20)
    plan = replace(planned(operators, SMALL), residents=(False, True, False))
    assert ahead_bytes(operators, plan, SMALL)[:2] == (0, 0)


def test_the_stream_clock_is_memorys_as_far_as_steps_are_ahead() -> None:
    operators = chain(10, 16 << 20)
    plan = replace(planned(operators, H200), uses_flags=True)
    least = 10 * (16 << 20) / (H200.read_bandwidth * STREAM.share)
    step = STREAM.step_cycles / H200.clock

    def seconds(size: int) -> float:
        ahead = (0, *[size] * 9)
        return stream_seconds(operators, replace(plan, ahead=ahead), STREAM, H200)

    assert seconds(0) == pytest.approx(least + 9 * step)
    assert seconds(16 << 20) == pytest.approx(least)
    assert least < seconds(1 << 20) < least + 9 * step


def test_kernels_that_start_early_are_what_a_persistent_one_is_compared_with() -> None:
    operators = chain(6, 16 << 20)

    def groups(alone: float) -> tuple[Group, ...]:
        own = tuple(replace(o, alone_seconds=alone) for o in operators)
        return partition(own, H200, (True,) * 6)

    plan = groups(1.2e-5)[0].plan
    assert plan is not None
    assert any(plan.ahead)
    assert all(group.plan is None for group in groups(plan.seconds / 6))


def test_what_streams_is_tried_as_one_where_the_path_leaves_it_apart() -> None:
    operators = tuple(replace(o, alone_seconds=9e-6) for o in chain(4, 16 << 20))
    apart = partition(operators, streaming(H200, None), (True,) * 4)
    assert [group.plan for group in apart] == [None] * 4
    (together,) = partition(operators, H200, (True,) * 4)
    assert together.plan is not None
    assert together.plan.seconds < (1 - MARGIN) * together.apart_seconds
    close = together.plan.seconds / 4 / (1 - MARGIN / 2)
    nearly = tuple(replace(o, alone_seconds=close) for o in operators)
    assert all(group.plan is None for group in partition(nearly, H200, (True,) * 4))


def test_an_entry_is_what_the_simulator_and_the_table_share() -> None:
    operators = chain(2)
    plan = planned(operators, SMALL)
    queue = entries(operators, plan, waits(operators, plan))[0]
    assert [entry.task for entry in queue] == list(plan.queues()[0])
    assert queue[0] == QueueEntry(plan.queues()[0][0], ())
