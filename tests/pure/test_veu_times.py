"""When rTasks ran: which record is whose, and what two clocks say of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from roperators import lstm, nasnet

import tvm_tile
from tvm_tile.build.marks import BEGIN, END, WORDS, is_marked, stamping
from tvm_tile.errors import BuildError
from tvm_tile.plan.coschedule import coschedule
from tvm_tile.plan.execution_plan import ExecutionPlan, ROperator
from tvm_tile.plan.proof import residency
from tvm_tile.plan.records import BLOCK, BODY, NOTHING, TaskKind, make_table, recorded_tasks
from tvm_tile.report.persistent_report import PersistentReport, report_persistent
from tvm_tile.report.shown import Profile, Report
from tvm_tile.report.veu_times import Stamp, VeuTask, veu_times

H200 = tvm_tile.find_device("nvidia/h200")
CASES = [lstm(4, 6), nasnet(2)]


def planned(operators: tuple[ROperator, ...]) -> tuple[ExecutionPlan, PersistentReport]:
    plan = coschedule(operators, H200)
    assert plan is not None
    proof = residency(plan, 32, plan.shared_bytes, H200)
    return plan, report_persistent("persistent", operators, plan, 1e-3, proof)


@pytest.mark.parametrize("operators", CASES, ids=["lstm", "nasnet"])
def test_each_record_of_the_table_is_told_whose_it_is(operators: tuple[ROperator, ...]) -> None:
    plan, report = planned(operators)
    kinds = [TaskKind(number, 900, ((0, 0),)) for number in range(len(operators))]
    table = make_table(operators, plan, kinds)
    told = recorded_tasks(report.operators, report.plan)  # without the choices not taken
    assert [len(own) for own in told] == table.queues[1::2].tolist()
    flat = [task for own in told for task in own]
    for row, task in zip(table.words[:-1].tolist(), flat, strict=True):
        if task is None:
            assert row[BODY] in (NOTHING, 900)
        else:
            assert row[BODY] == task.operator
            assert row[BLOCK] == task.task * plan.copies[task.operator]


def stamps(report: PersistentReport, tick: int) -> tuple[list[Stamp], list[VeuTask]]:
    """Each record takes two microseconds behind one of waiting, on clocks of 1.6 GHz that begin
    anywhere, beside a timer that ticks every so many nanoseconds; and what is to be found."""
    found, expected = [], []
    for veu, queue in enumerate(recorded_tasks(report.operators, report.plan)):
        for number, task in enumerate(queue):
            begin = 1_700_000_000_000_000_000 + 137 * veu + 3000 * number
            times = []
            for time in (begin, begin + 2000):
                clock = (time - 1_700_000_000_000_000_000) * 8 // 5 + veu * 10**12
                times += [clock, time // tick * tick]
            found.append(tuple(times))
            if task is not None:
                start = (137 * veu + 3000 * number) * 1e-9
                expected.append(VeuTask(veu, task.operator, task.task, start, start + 2e-6))
    return found, expected


@pytest.mark.parametrize("operators", CASES, ids=["lstm", "nasnet"])
@pytest.mark.parametrize(("tick", "off"), [(1, 2e-9), (32, 40e-9)])
def test_two_clocks_tell_when_each_rtask_ran(
    operators: tuple[ROperator, ...], tick: int, off: float
) -> None:
    _, report = planned(operators)
    given, expected = stamps(report, tick)
    found = veu_times(report, given)
    assert found.operators == tuple(operator.name for operator in report.operators)
    assert len(found.tasks) == sum(
        report.plan.tasks(report.operators, n) for n in range(len(operators))
    )
    for one, other in zip(found.tasks, expected, strict=True):
        assert (one.veu, one.operator, one.task) == (other.veu, other.operator, other.task)
        assert one.begin == pytest.approx(other.begin, abs=off)
        assert one.end - one.begin == pytest.approx(2e-6, rel=0.05)
    assert 0 < found.busy < 1


def test_a_trace_has_a_track_for_each_veu_and_the_screen_a_line() -> None:
    _, report = planned(lstm(4, 6))
    times = veu_times(report, stamps(report, 1)[0])
    profile = Profile(Report("nvidia/h200", (), ()), "CUPTI", 1e-3, 0.0, ((),), (times, times))
    events = json.loads(profile.trace())["traceEvents"]
    tasks = [event for event in events if event["ph"] == "X"]
    assert {event["pid"] for event in tasks} == {3, 4}
    assert len(tasks) == 2 * len(times.tasks)
    assert {event["tid"] for event in tasks} == {task.veu for task in times.tasks}
    assert all(event["dur"] > 0 and event["ts"] >= 0 for event in tasks)
    assert f"persistent: {times.num_veus} vEUs run {len(times.tasks)} rTasks in " in str(profile)


def test_a_kernel_that_did_nothing_has_no_times() -> None:
    _, report = planned(lstm(4, 6))
    records = sum(map(len, recorded_tasks(report.operators, report.plan)))
    found = veu_times(report, [(0, 0, 0, 0)] * records)
    assert (found.seconds, found.busy) == (0, 0)
    empty = replace(found, tasks=())
    assert math.isclose(empty.busy, 0)


def test_marks_become_stamps_at_an_address() -> None:
    text = f"{BEGIN}{END}void kernel() {{ tile_begin(3); tile_end(3); }}"
    assert is_marked(text)
    found = stamping(text, 0x7F00)
    assert not is_marked(found)
    assert found.count("32512ull + 4ll * record + 0") == 1
    assert found.count(f"32512ull + {WORDS}ll * record + 2") == 1
    assert found.endswith("void kernel() { tile_begin(3); tile_end(3); }")
    with pytest.raises(BuildError, match="has none"):
        stamping("void kernel() {}", 1)
