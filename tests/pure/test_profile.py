"""What a profile makes of records of what a device did: shares, kernels, a screen, a trace."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_tile.report.activities import Activity, ActivityKind, covered_seconds, shares_of
from tvm_tile.report.compiled import KernelReport, Launches
from tvm_tile.report.limits import Bottleneck, Limits
from tvm_tile.report.shown import Profile, Report
from tvm_tile.report.symbols import function_of, schedule_of

CONV = KernelReport(
    "fused_conv2d_relu_0f3a99c1", "conv2d relu", "contraction", 56, 128, "block 1x64", 10e-6, 3e6,
    "", calls=2, names=(("stem.conv", "stem.relu"), ("layer.conv",)), flops=1e9,
    arithmetic_seconds=8e-6,
)  # fmt: skip
SUM = KernelReport("sum_77b0d2e4", "sum", "row", 8, 64, "", 4e-6, 1e6, "", launches=2)
FALLBACK = KernelReport("argmax_1", "argmax", "dlight", 0, 0, "", 0.0, 1e6, "no rule takes it")
NEVER = replace(SUM, name="branch_00000000", names=(("not_taken",),))
REPORT = Report(
    "nvidia/h200",
    (CONV, SUM, FALLBACK, NEVER),
    (),
    launches=Launches(1, 1, 4),
    limits=Limits(1e12, False, 2e-6),
)


def activity(name: str, begin: float, end: float, **other: Any) -> Activity:
    """One of microseconds."""
    return Activity(name, begin * 1e-6, end * 1e-6, **other)


RUN = (
    activity("copy of 12 bytes", 5, 7, kind=ActivityKind.COPY),
    activity("fused_conv2d_relu_0f3a99c1_kernel", 8, 20),
    activity("fused_conv2d_relu_0f3a99c1_kernel", 18, 32),  # starts while the one before ends
    activity("sum_77b0d2e4_kernel", 35, 38),
    activity("sum_77b0d2e4_kernel_1", 38, 39),
    activity("argmax_1_kernel", 39, 45, stream=7),
    activity("somebody_elses", 40, 44, stream=8),
)


def profiled(*runs: tuple[Activity, ...]) -> Profile:
    return Profile(REPORT, "CUPTI", 44e-6, 1e-6, runs)


def test_the_time_of_a_run_is_shared_out_and_nothing_is_counted_twice() -> None:
    shares = shares_of(RUN)
    assert shares.launch == pytest.approx(5e-6)
    assert shares.kernels == pytest.approx((24 + 10) * 1e-6)
    assert shares.copies == pytest.approx(2e-6)
    assert shares.gaps == pytest.approx((1 + 3) * 1e-6)
    assert shares.overlap == pytest.approx((2 + 4) * 1e-6)
    assert shares.on_device == pytest.approx(40e-6)
    assert shares.whole == pytest.approx(45e-6)
    assert shares_of(()).whole == 0


def test_a_copy_beside_a_kernel_is_the_kernels_time() -> None:
    copy = activity("copy", 10, 25, kind=ActivityKind.COPY)
    shares = shares_of((activity("k", 10, 20), copy))
    assert shares.copies == pytest.approx(5e-6)
    assert shares.kernels == pytest.approx(10e-6)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20))))
def test_what_is_covered_is_what_a_clock_that_ticks_sees(given: list[tuple[int, int]]) -> None:
    activities = [Activity("k", begin, begin + length) for begin, length in given]
    ticks = {tick for one in activities for tick in range(int(one.begin), int(one.end))}
    assert covered_seconds(activities) == len(ticks)


@pytest.mark.parametrize(
    ("symbol", "function"),
    [
        ("sum_77b0d2e4_kernel", "sum_77b0d2e4"),
        ("sum_77b0d2e4_kernel_12", "sum_77b0d2e4"),
        ("sum_77b0d2e4_0123abcd_kernel_1", "sum_77b0d2e4"),  # one of several schedules
        ("other_0123abcd_kernel", "other_0123abcd_kernel"),
        ("sum_77b0d2e4", "sum_77b0d2e4"),
    ],
)
def test_a_symbol_tells_the_function(symbol: str, function: str) -> None:
    assert function_of(symbol, {"sum_77b0d2e4", "argmax_1"}) == function
    assert schedule_of("a_kernel_1") == schedule_of("a_kernel") == "a"


def test_calls_of_a_kernel_are_one_row_whatever_it_launches() -> None:
    rows = {kernel.name: kernel for kernel in profiled(RUN).kernels}
    conv, total = rows[CONV.name], rows[SUM.name]
    assert (conv.calls, total.calls) == (2, 1)
    assert conv.seconds == pytest.approx(26e-6)
    assert conv.predicted == pytest.approx(20e-6)
    assert conv.limit == pytest.approx(16e-6)
    assert conv.bytes_per_second == pytest.approx(2 * 3e6 / 26e-6)
    assert conv.flops_per_second == pytest.approx(2e9 / 26e-6)
    assert conv.bound is Bottleneck.ARITHMETIC
    assert total.seconds == pytest.approx(4e-6)
    assert total.bound is Bottleneck.LAUNCH  # two of them


def test_what_has_no_prediction_has_a_time_all_the_same() -> None:
    profile = profiled(RUN)
    rows = {kernel.name: kernel for kernel in profile.kernels}
    fallback, foreign = rows["argmax_1"], rows["somebody_elses"]
    assert fallback.seconds == pytest.approx(6e-6)
    assert (fallback.predicted, fallback.limit, fallback.bound) == (None, None, None)
    assert foreign.report is None
    assert foreign.bytes_per_second is None
    assert [kernel.name for kernel in profile.unseen] == [NEVER.name]


def test_a_kernel_takes_the_median_of_the_runs_and_what_runs_rarely_nothing() -> None:
    slower = (*RUN[:1], activity(RUN[1].name, 10, 40), activity("rare_kernel", 40, 41))
    rows = {kernel.name: kernel for kernel in profiled(RUN, RUN, slower).kernels}
    assert rows[CONV.name].seconds == pytest.approx(26e-6)
    assert rows[CONV.name].spread == pytest.approx(2e-6)
    assert rows["rare_kernel"].seconds == 0
    assert rows["rare_kernel"].bytes_per_second is None


def test_schedules_of_one_function_add_up_and_steps_of_a_sort_are_one_call() -> None:
    names = ("sum_77b0d2e4_0123abcd_kernel", "sum_77b0d2e4_4567abcd_kernel")
    run = tuple(activity(name, n, n + 1) for n, name in enumerate((*names, names[1])))
    assert profiled(run).kernels[0].calls == 3
    steps = ("_kernel", "_kernel_1", "_kernel_1", "_kernel_1")
    run = tuple(activity(f"sum_77b0d2e4{end}", n, n + 1) for n, end in enumerate(steps))
    assert profiled(run).kernels[0].calls == 1


def test_the_typical_run_is_the_median_one() -> None:
    runs = tuple((activity("k", 0, end),) for end in (9, 1, 3))
    assert profiled(*runs).typical == runs[2]
    assert profiled(*runs).watched_spread == pytest.approx(4e-6)


def test_the_screen_tells_times_beside_predictions() -> None:
    assert str(profiled(RUN)).splitlines() == [
        "nvidia/h200: 1 run watched by CUPTI, kernels in 1 CUDA graph",
        "  a run      44.0 us (spread 1.0 us) while nothing watches, 31.0 us predicted, 18.0 us at "
        "best",
        "  watched    45.0 us (spread 0.0 us), of which",
        "    launch   5.0 us (11.1 %) until the device begins",
        "    kernels  34.0 us (75.6 %); beside these, others ran for 6.0 us",
        "    copies   2.0 us (4.4 %)",
        "    gaps     4.0 us (8.9 %) between these",
        "  on device  40.0 us, 90.9 % of a run that nothing watches",
        "",
        "measured  predicted  at best  calls  GB/s  GFLOP/s  bound by    computes",
        "26.0 us   20.0 us    16.0 us  2      231   76923    arithmetic  "
        "stem.conv + relu, layer.conv",
        "6.0 us    -          -        1      167   0        -           (argmax)",
        "4.0 us    4.0 us     1.0 us   1      250   0        launch      (sum)",
        "4.0 us    -          -        1      -     -        -           foreign: somebody_elses",
        "",
        "did not run: not_taken: branch_00000000",
        "predictions count only the bytes of what fell back: 1 kernel",
        "GB/s are of the predicted traffic; more: save_trace(path), to_json(), explain()",
    ]


def test_however_many_kernels_there_are_a_screen_is_one() -> None:
    long = "a/very/long/path" * 20
    kernels = [replace(CONV, name=f"{long}{n}", names=((long, long),)) for n in range(600)]
    run = tuple(activity(f"{long}{n}_kernel", n, n + 1) for n in range(300))
    report = replace(REPORT, kernels=tuple(kernels))
    lines = str(Profile(report, "CUPTI", 1e-3, 0.0, (run,))).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    assert "285.0 us in 285 other kernels" in lines
    assert "did not run, either: 297 other kernels" in lines


def test_a_model_that_launches_nothing_has_a_profile() -> None:
    empty = Profile(Report("emulated", (), ()), "the CPU's clock", 0.0, 0.0, ((),))
    assert "0.0 us" in str(empty)
    assert json.loads(empty.to_json())["kernels"] == []
    assert json.loads(empty.trace())["traceEvents"]


def test_other_programs_are_told_the_same() -> None:
    told = json.loads(profiled(RUN).to_json())
    watched = told["watched"]
    parts = ("launch_seconds", "kernel_seconds", "copy_seconds", "gap_seconds")
    assert sum(watched[part] for part in parts) == pytest.approx(45e-6)
    assert (told["version"], told["graphs"], told["did_not_run"]) == (1, 1, [NEVER.name])
    first = told["kernels"][0]
    assert first["computes"] == [["stem.conv", "stem.relu"], ["layer.conv"]]
    assert (first["bound"], first["calls"]) == ("arithmetic", 2)


class TestTrace:
    """Perfetto's parser of JSON wants events of these fields; its program is not on PyPI."""

    def events(self, phase: str) -> list[dict[str, Any]]:
        told = json.loads(profiled(RUN).trace())
        assert told["displayTimeUnit"] == "ns"
        return [event for event in told["traceEvents"] if event["ph"] == phase]

    def test_every_event_has_what_viewers_need(self) -> None:
        for event in self.events("X"):
            assert {"name", "cat", "pid", "tid", "ts", "dur", "args"} <= event.keys()
            assert isinstance(event["pid"], int)
            assert isinstance(event["tid"], int)
            assert event["ts"] >= 0
            assert event["dur"] > 0
        names = {event["name"] for event in self.events("M")}
        assert names == {"process_name", "thread_name"}
        assert all(isinstance(event["args"]["name"], str) for event in self.events("M"))

    def test_measured_kernels_are_on_the_tracks_of_their_streams(self) -> None:
        measured = [event for event in self.events("X") if event["pid"] == 1]
        assert len(measured) == len(RUN)
        assert {event["tid"] for event in measured} == {0, 7, 8}
        first = next(event for event in measured if event["cat"] == "kernel")
        assert (first["name"], first["ts"], first["dur"]) == (
            "stem.conv + relu",
            pytest.approx(8),
            pytest.approx(12),
        )

    def test_predictions_follow_one_another_in_the_same_order(self) -> None:
        predicted = [event for event in self.events("X") if event["pid"] == 2]
        times = [(event["ts"], event["dur"]) for event in predicted]
        # Of the sum's two launches, the prediction is shared out.
        expected = [(5, 10), (15, 10), (25, 2), (27, 2)]
        assert times == [tuple(map(pytest.approx, pair)) for pair in expected]
