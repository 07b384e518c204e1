"""The report: what it says, and that it survives being saved."""

from __future__ import annotations

import itertools
import json
import random
import zlib
from collections import Counter
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from roperators import lstm, nasnet
from rprograms import random_program

import tvm_tile
from tvm_tile.graph.tensor_format import Integers, Shared, TensorFormat
from tvm_tile.plan.coschedule import coschedule
from tvm_tile.plan.execution_plan import ROperator
from tvm_tile.plan.proof import residency
from tvm_tile.plan.rprogram import Item, RProgram
from tvm_tile.report.coded_weights import CodedWeight
from tvm_tile.report.compiled import KernelReport, Stage
from tvm_tile.report.limits import Limits
from tvm_tile.report.persistent_report import LeftApart, PersistentReport, report_persistent
from tvm_tile.report.screen.gantt import gantt
from tvm_tile.report.shown import Report
from tvm_tile.report.turned_weights import TurnedWeights
from tvm_tile.tile.weld.connect import Decision, Edge, Option

OWN = KernelReport(
    "fused_conv2d_relu", "pad conv2d relu", "contraction", 56, 128, "block 1x64", 12.5e-6, 3e6, ""
)
FALLBACK = KernelReport("argmax", "argmax", "dlight", 0, 0, "", 0.0, 1e6, "no rule takes it")
STAGES = (Stage("import", 0.25), Stage("machine code", 1.5))
JOINED = Decision(
    ("scores", "softmax", "values"),
    (Edge(0, 1, 4_000_000), Edge(1, 2, 2_000_000)),
    50e-6,
    20e-6,
    "chain",
    options=(Option(("scores", "softmax"), 40e-6),),
)
APART = Decision(
    ("up", "down"), (Edge(0, 1, 1_000_000),), 9e-6, reason="no rule writes them as one kernel"
)
DECISIONS = (JOINED, APART, JOINED)
H200 = tvm_tile.find_device("nvidia/h200")


def planned(operators: tuple[ROperator, ...]) -> PersistentReport:
    plan = coschedule(operators, H200)
    assert plan is not None
    proof = residency(plan, 64, plan.shared_bytes, H200)
    return report_persistent("coscheduled_1", operators, plan, 130e-6, proof)


def looping() -> PersistentReport:
    """A kernel whose program has all that programs may have."""
    rngs = (random.Random(seed) for seed in itertools.count())
    made = next(made for made in map(random_program, rngs) if has_all_kinds(made.program))
    proof = residency(made.plan, 64, made.plan.shared_bytes, H200)
    return report_persistent("loop_1", made.operators, made.plan, 130e-6, proof, made.program)


def has_all_kinds(program: RProgram) -> bool:
    text = repr(program)
    return all(f"{kind.__name__}(" in text for kind in get_args(Item))


PLANNED = planned(lstm(4, 6))
LOOPING = looping()
LEFT = (
    LeftApart("nothing to run beside", ("pool",), 1),
    LeftApart("faster as a launch of its own", ("a", "b", "c", "d", "e"), 12),
)
REPORT = Report("nvidia/h200", (OWN, FALLBACK), ("a note",), STAGES, DECISIONS, (PLANNED,), LEFT)

TEXT = st.text(max_size=20)
FINITE = st.floats(0, 1e12)
COUNTS = st.integers(0, 10)
KERNELS = st.builds(
    KernelReport, TEXT, TEXT, TEXT, st.integers(), st.integers(), TEXT, FINITE, FINITE, TEXT,
    COUNTS, COUNTS, FINITE,
)  # fmt: skip
NAMES = st.lists(TEXT, max_size=3).map(tuple)
EDGES = st.lists(st.builds(Edge, st.just(0), st.just(1), COUNTS, st.booleans())).map(tuple)
DECIDED = st.builds(
    Decision,
    st.tuples(TEXT, TEXT),
    EDGES,
    FINITE,
    FINITE,
    TEXT,
    TEXT,
    st.lists(st.builds(Option, NAMES, FINITE), max_size=2).map(tuple),
)
REPORTS = st.builds(
    Report,
    TEXT,
    st.lists(KERNELS, max_size=3).map(tuple),
    st.lists(TEXT, max_size=2).map(tuple),
    st.lists(st.builds(Stage, TEXT, FINITE), max_size=2).map(tuple),
    st.lists(DECIDED, max_size=2).map(tuple),
    st.sampled_from([(), (PLANNED,), (PLANNED, LOOPING)]),
    st.lists(st.builds(LeftApart, TEXT, NAMES, COUNTS), max_size=2).map(tuple),
    turned=st.lists(
        st.builds(TurnedWeights, TEXT, st.tuples(COUNTS, COUNTS), COUNTS, FINITE, FINITE),
        max_size=2,
    ).map(tuple),
)


@given(report=REPORTS)
def test_a_report_survives_json(report: Report) -> None:
    assert Report.from_json(report.to_json()) == report


def test_the_text_is_plain_json() -> None:
    data = json.loads(REPORT.to_json())
    assert data["kernels"][0]["rule"] == "contraction"
    assert data["device"] == "nvidia/h200"


def test_people_see_every_kernel_and_every_reason() -> None:
    text = REPORT.render()
    for part in ("fused_conv2d_relu", "contraction", "block 1x64", "56", "128", "12.5 us"):
        assert part in text
    assert "no rule takes it" in text
    assert "a note" in text
    assert "2 kernels for nvidia/h200: 1 scheduled by tiles, 1 fell back" in text
    assert "compiled in 1.75 s: import 0.25, machine code 1.50" in text


def test_a_run_is_all_launches() -> None:
    report = replace(REPORT, kernels=(replace(OWN, calls=3, seconds=9.6e-6), FALLBACK))
    assert report.predicted_seconds == pytest.approx(28.8e-6)
    assert "one run: 4 launches, at least 28.8 us predicted, with a warm cache" in report.render()


def test_what_has_no_model_counts_with_its_bytes_and_a_run_takes_at_least_that() -> None:
    limits = Limits(bandwidth=1e12, is_cached=False, launch_seconds=2e-6)
    fallback = replace(FALLBACK, traffic=3e6, calls=2)
    report = replace(REPORT, kernels=(replace(OWN, seconds=9e-6), fallback), limits=limits)
    assert report.predicted_seconds == pytest.approx(9e-6 + 2 * (3e-6 + 2e-6))
    assert "one run: 3 launches, at least 19.0 us predicted" in report.render()
    assert not replace(report, kernels=(OWN,)).is_bound
    assert replace(report, kernels=(OWN,), has_open_loops=True).is_bound


def test_times_that_were_fitted_on_another_device_are_told_as_estimates() -> None:
    totals = replace(REPORT, is_estimated=True).render()
    assert "each launched once: 12.5 us estimated" in totals
    assert "at least 12.5 us estimated, with a warm cache" in totals
    assert "estimated" not in REPORT.render()


def test_equal_decisions_are_told_once() -> None:
    lines = REPORT.render().splitlines()
    start = lines.index("joined:")
    assert lines[start : start + 6] == [
        "joined:",
        "  2 x scores + softmax + values: chain, 20.0 us as one, 50.0 us apart, "
        "12.00 MB less traffic",
        "      scores -> softmax: 4.00 MB, register",
        "      softmax -> values: 2.00 MB, register",
        "      without values: 40.0 us",
        "left apart:",
    ]
    assert lines[start + 6] == (
        "  1 x up + down: no rule writes them as one kernel, 9.0 us apart, "
        "2.00 MB of traffic between them"
    )


def test_a_model_without_groups_tells_of_none() -> None:
    text = Report("emulated", (OWN,), ()).render()
    assert "joined" not in text
    assert "apart" not in text


def test_reports_from_before_there_were_decisions_and_plans_are_read() -> None:
    data = json.loads(REPORT.to_json())
    del data["plans"], data["left_apart"]
    assert Report.from_json(json.dumps(data)) == replace(REPORT, plans=(), left_apart=())
    del data["decisions"]
    assert Report.from_json(json.dumps(data)) == Report(
        "nvidia/h200", (OWN, FALLBACK), ("a note",), STAGES
    )


def test_persistent_kernels_are_told_with_their_proof() -> None:
    lines = REPORT.render().splitlines()
    start = lines.index("co-scheduled:")
    plan = PLANNED.plan
    waits = "flags" if plan.uses_flags else "barriers"
    size = f"{plan.num_veus} vEUs x {plan.block_size} threads, 64 registers a thread"
    stays = plan.shared_bytes - plan.scratch_bytes(PLANNED.operators)
    assert stays > 0
    shared = f"{plan.shared_bytes / 1024:.1f} KiB of shared memory a vEU"
    resident = PLANNED.proof.resident
    names = Counter(operator.name for operator in PLANNED.operators)
    assert lines[start + 1 : start + 4] == [
        f"  coscheduled_1: 24 operators in {len(plan.steps)} steps with {waits}, "
        f"{plan.seconds * 1e6:.1f} us as one, 130.0 us apart",
        f"      {size}, {shared}, {stays / 1024:.1f} KiB of them weights that stay",
        f"      {plan.num_veus} blocks, {resident} resident on each of 132 multiprocessors",
    ]
    body = start + 4 + len(names)
    assert sorted(lines[start + 4 : body]) == sorted(f"      {n} x {k}" for k, n in names.items())
    assert lines[body : body + 2] == [
        "  left apart, 1 call: nothing to run beside: pool",
        "  left apart, 12 calls: faster as a launch of its own: a, b, c and 2 more",
    ]


def test_weights_that_are_stored_turned_are_told_by_function() -> None:
    up = TurnedWeights("up", (3072, 768), 4_718_592, 6.5e-6, 7.25e-6)
    down = TurnedWeights("down", (768, 3072), 4_718_592, 6e-6, 9e-6)
    lines = replace(REPORT, turned=(up, down, up)).render().splitlines()
    start = lines.index("stored turned: 3 matrices of weights, 14.16 MB")
    assert lines[start + 1 : start + 3] == [
        "  2 x up: 3072 x 768 instead of 768 x 3072, 6.5 us instead of 7.2 us",
        "  1 x down: 768 x 3072 instead of 3072 x 768, 6.0 us instead of 9.0 us",
    ]
    assert "1 matrix of weights, 4.72 MB" in replace(REPORT, turned=(up,)).render()
    assert "turned" not in REPORT.render()
    data = json.loads(REPORT.to_json())
    del data["turned"]
    assert Report.from_json(json.dumps(data)) == REPORT


def test_weights_that_are_kept_as_codes_are_told_by_format() -> None:
    scale = Shared((1, 128), "float16", "float16")
    form = TensorFormat(Integers(4, True), "int32", "float16", None, (scale,))
    four = CodedWeight((4096, 4096), "float16", form, "")
    folded = CodedWeight((64, 4096), "float16", None, "others than products read it")
    report = replace(REPORT, coded=(four, four, folded))
    lines = report.render().splitlines()
    start = lines.index("kept as codes: 2 of 3 matrices of weights, 17.83 MB instead of 67.63 MB")
    assert lines[start + 1 : start + 3] == [
        "  2 x 4096 x 4096 float16: int4, scale float16 for each 1 x 128; 8.65 MB instead of "
        "33.55 MB each",
        "  1 x 64 x 4096 float16: folded, others than products read it",
    ]
    assert "1 of 1 matrix of weights" in replace(REPORT, coded=(four,)).render()
    assert "codes" not in REPORT.render()
    assert Report.from_json(report.to_json()) == report


def test_a_report_keeps_what_a_drawing_needs_and_no_more() -> None:
    for operators in (lstm(4, 6), nasnet(2)):
        plan, told = coschedule(operators, H200), planned(operators)
        assert plan is not None
        assert {len(operator.choices) for operator in told.operators} == {1}
        assert gantt(told.operators, told.plan, H200) == gantt(operators, plan, H200)


def test_a_long_model_stays_a_small_file() -> None:
    report = replace(REPORT, plans=(planned(lstm()),))
    assert len(report.plans[0].operators) == 1000
    assert len(zlib.compress(report.to_json().encode())) < 50_000
    assert Report.from_json(report.to_json()) == report


def test_what_was_measured_has_a_column() -> None:
    assert "measured" not in REPORT.render()
    kernel = replace(OWN, measured=10, rank=2, measured_seconds=11e-6)
    heading, first, second = Report("emulated", (kernel, FALLBACK), ()).render().splitlines()[:3]
    column = heading.index("measured")
    assert first[column:].startswith("11.0 us, #3 of 10  3.00 MB")
    assert second[column:].startswith("- ")


def test_fallbacks_are_the_kernels_with_a_reason() -> None:
    assert REPORT.fallbacks == (FALLBACK,)
    assert Report("emulated", (OWN,), ()).fallbacks == ()


@given(report=REPORTS)
def test_any_report_can_be_shown(report: Report) -> None:
    assert report.device in report.render()


def test_a_report_without_kernels() -> None:
    empty = Report("emulated", (), ())
    assert "0 kernels" in empty.render()
    assert Report.from_json(empty.to_json()) == empty
