"""The table that a persistent kernel reads, word by word."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tvm_tile.errors import BuildError
from tvm_tile.plan.execution_plan import (
    ExecutionPlan,
    Placement,
    PlanStep,
    RKernel,
    ROperator,
    RTasks,
)
from tvm_tile.plan.records import (
    ARGUMENTS,
    BODY,
    MOST_ASKS,
    MOST_WAITS,
    NOTHING,
    SIGNAL,
    UNIT,
    WAIT_COUNT,
    WAITS,
    RecordTable,
    TaskKind,
    make_table,
)
from tvm_tile.plan.waits import count_counters

PLAIN = RKernel(5, 128, 1000, 32, 1e-6, 1e-7)
OPERATORS = (
    ROperator("a", (PLAIN,), (0,), (1,), 2e-6),
    ROperator("b", (PLAIN,), (0,), (2,), 2e-6),
    ROperator("c", (PLAIN,), (1, 2), (3,), 2e-6),
)
# Two blocks a rTask, three rTasks: vEU 1 and 2 run a, vEU 0 runs b and all of c.
PLAN = ExecutionPlan(
    num_veus=3,
    veus_per_processor=1,
    block_size=256,
    shared_bytes=2048,
    chosen=(0,) * 3,
    copies=(2,) * 3,
    steps=(
        PlanStep((Placement(RTasks(0, 0, 3), 1, 2), Placement(RTasks(1, 0, 3), 0, 1))),
        PlanStep((Placement(RTasks(2, 0, 3), 0, 1),)),
    ),
    uses_flags=False,
    residents=(False,) * 3,
    seconds=1e-5,
)
FLAGS = replace(PLAN, uses_flags=True)
TASKS = tuple(TaskKind(n, None, ((n, 64 * n), (5, 16))) for n in range(3))


def records(table: RecordTable, veu: int) -> list[list[int]]:
    """Those of one vEU, without the padding behind two arguments."""
    first, count = table.queues[2 * veu : 2 * veu + 2]
    assert not table.words[:, ARGUMENTS + 4 :].any()
    return table.words[first : first + count, : ARGUMENTS + 4].tolist()


def record(body: int, block: int, signal: int, waits: list[int], arguments: list[int]) -> list[int]:
    """Without a resident part."""
    padding = [0] * (2 * MOST_WAITS - len(waits) + 3 * MOST_ASKS)
    return [body, block, signal, 0, len(waits) // 2, *waits, *padding, *arguments]


def test_with_barriers_a_step_waits_for_all_rtasks_of_the_one_before() -> None:
    table = make_table(OPERATORS, PLAN, TASKS)
    assert records(table, 1) == [record(0, block, 0, [], [0, 0, 5, 1]) for block in (0, 4)]
    assert records(table, 2) == [record(0, 2, 0, [], [0, 0, 5, 1])]
    assert records(table, 0) == [
        *(record(1, block, 0, [], [1, 4, 5, 1]) for block in (0, 2, 4)),
        *(record(2, block, 1, [0, 6], [2, 8, 5, 1]) for block in (0, 2, 4)),
    ]
    assert count_counters(OPERATORS, PLAN) == 2


def test_with_flags_it_waits_for_each_operator_that_it_reads_from() -> None:
    table = make_table(OPERATORS, FLAGS, TASKS, counter=10)
    assert records(table, 2) == [record(0, 2, 10, [], [0, 0, 5, 1])]
    assert records(table, 0)[3:] == [
        record(2, block, 12, [10, 3, 11, 3], [2, 8, 5, 1]) for block in (0, 2, 4)
    ]
    assert count_counters(OPERATORS, FLAGS) == 3


def test_weights_of_many_gigabytes_have_places() -> None:
    """Bytes from the start overflowed 32 bits with 2.4e9 of them; no such memory is made here."""
    places = (2_400_000_000, 5 << 30, (2**31 - 1) * UNIT)
    tasks = tuple(TaskKind(n, None, ((n, place),)) for n, place in enumerate(places))
    words = make_table(OPERATORS, PLAN, tasks).words[:-1]
    found = {int(row[BODY]): int(row[ARGUMENTS + 1]) * UNIT for row in words}
    assert found == dict(enumerate(places))


@pytest.mark.parametrize("start", [8, -16, 2**31 * UNIT])
def test_a_place_that_no_word_names_is_refused(start: int) -> None:
    with pytest.raises(BuildError, match=f"at byte {start}"):
        make_table(OPERATORS, PLAN, (*TASKS[:2], TaskKind(2, None, ((0, start),))))


def test_rows_are_whole_warps_and_one_is_behind_the_last() -> None:
    table = make_table(OPERATORS, PLAN, TASKS)
    assert table.words.dtype == table.queues.dtype == np.int32
    assert table.words.shape == (9 + 1, 32)
    assert table.words[-1].tolist() == [NOTHING] + 31 * [0]
    assert table.queues.tolist() == [0, 6, 6, 2, 8, 1]
    many = tuple(replace(task, arguments=((0, 0),) * 10) for task in TASKS)
    assert make_table(OPERATORS, PLAN, many).words.shape == (10, 64)


def test_more_waits_than_a_record_holds_are_in_records_that_only_wait() -> None:
    makers = 2 * MOST_WAITS + 1
    values = tuple(range(1, makers + 1))
    first = (ROperator(f"o{value}", (PLAIN,), (), (value,), 2e-6) for value in values)
    operators = (*first, ROperator("last", (PLAIN,), values, (0,), 2e-6))
    every = tuple(Placement(RTasks(n, 0, 3), 0, 3) for n in range(makers))
    last = PlanStep((Placement(RTasks(makers, 0, 3), 0, 3),))
    plan = replace(
        FLAGS,
        chosen=(0,) * len(operators),
        copies=(2,) * len(operators),
        residents=(False,) * len(operators),
        steps=(PlanStep(every), last),
    )
    tasks = [TaskKind(n, None, ((0, 0),)) for n in range(len(operators))]
    *before, first, second, runs = records(make_table(operators, plan, tasks), 1)
    assert len(before) == makers
    assert [own[BODY] for own in (first, second, runs)] == [NOTHING, NOTHING, makers]
    assert [own[SIGNAL] for own in (first, second, runs)] == [NOTHING, NOTHING, makers]
    assert [own[WAIT_COUNT] for own in (first, second, runs)] == [MOST_WAITS, MOST_WAITS, 1]
    waited = [
        tuple(own[WAITS + 2 * n : WAITS + 2 * n + 2])
        for own in (first, second, runs)
        for n in range(own[WAIT_COUNT])
    ]
    assert waited == [(n, 3) for n in range(makers)]


def test_what_stays_is_loaded_first_once_for_all_who_share_it() -> None:
    held = RKernel(2, 128, 100, 32, 1e-6, 1e-7, resident_bytes=300)
    operators = (
        OPERATORS[0],
        ROperator("b", (held,), (1,), (2,), 2e-6, weights=7),
        ROperator("c", (held,), (2,), (3,), 2e-6, weights=7),
    )
    steps = (
        PlanStep((Placement(RTasks(0, 0, 3), 0, 2),)),
        *(PlanStep((Placement(RTasks(number, 0, 2), 1, 2),)) for number in (1, 2)),
    )
    kept = (False, True, True)
    plan = replace(PLAN, copies=(2, 1, 1), steps=steps, residents=kept, shared_bytes=2048 + 384)
    tasks = [TASKS[0], *(TaskKind(n, 3, ((n, 0),), ((4, 512),)) for n in (1, 2))]
    table = make_table(operators, plan, tasks)
    heads = [own[:4] for own in records(table, 2)]
    assert heads == [[3, 1, NOTHING, 2048], [1, 1, 1, 2048], [2, 1, 2, 2048]]
    load = records(table, 2)[0]
    assert load[WAIT_COUNT] == 0
    assert load[ARGUMENTS:] == [4, 32, 0, 0]
    # The vEU's first rTask comes behind what it loads, though it needs nothing of that.
    assert [own[BODY] for own in records(table, 1)] == [3, 0, 1, 2]
    assert [own[BODY] for own in records(table, 0)] == [0, 0]
