"""``Options(topk=...)``: candidates are built, run and compared, and the fastest is kept."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from scheduled import relax_module
from tvm import te, tirx
from tvm.relax import op

import tvm_tile
from tvm_tile import Options
from tvm_tile.build import Builder
from tvm_tile.device import find_device
from tvm_tile.device.detect import read_gpu
from tvm_tile.errors import BuildError, DeviceAbsentError, OptionError
from tvm_tile.passes import MeasureCandidates
from tvm_tile.passes.scheduling import measure_candidates
from tvm_tile.passes.scheduling.plan_function import Request
from tvm_tile.report.trial import Trial
from tvm_tile.runtime.exclusive import one_at_a_time
from tvm_tile.runtime.trials import Argument, Trials, relative_difference, run_trials
from tvm_tile.schedule import Scheduled
from tvm_tile.stages.forced import Forced
from tvm_tile.tile.rules import Rule

EMULATED = find_device("emulated")
SIZE = 1 << 14
X = np.random.default_rng(0).standard_normal((48, 40)).astype("float32")
W = np.random.default_rng(1).standard_normal((40, 64)).astype("float32")
GPU = read_gpu() is not None
BY_HAND = Rule("by hand")


def plus(number: float, threads: int | None, *, only: int = SIZE) -> tirx.PrimFunc:
    """``y = x + number``, 0 from ``only`` on; scheduled unless ``threads`` is None."""
    x = te.placeholder((SIZE,), "float32", name="x")
    whole = te.compute((SIZE,), lambda i: x[i] + tirx.const(number, "float32"), name="y")
    part = te.compute(
        (SIZE,),
        lambda i: tirx.if_then_else(i < only, x[i] + tirx.const(number, "float32"), 0.0),
        name="y",
    )
    tiled = tvm.s_tir.Schedule(te.create_prim_func([x, whole if only == SIZE else part]))
    if threads is not None:
        (loop,) = tiled.get_loops(tiled.get_sblock("y"))
        block, thread = tiled.split(loop, [None, threads])
        tiled.bind(block, "blockIdx.x")
        tiled.bind(thread, "threadIdx.x")
    return tiled.mod["main"].without_attr("global_symbol")


def found(*functions: tirx.PrimFunc) -> tuple[Scheduled, ...]:
    return tuple(Scheduled(f, BY_HAND, f"tile {n}", 1, 1, 1e-6) for n, f in enumerate(functions))


def choose(name: str, *functions: tirx.PrimFunc) -> Any:
    measure = MeasureCandidates(EMULATED, Builder(EMULATED))
    return measure(Request(name, plus(1, None)), found(*functions))


@pytest.fixture
def later_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates are built, run and compared; only the clock, which loads disturb, is ours."""

    def run(*arguments: Any) -> Trials:
        trials = run_trials(*arguments)
        ran = (replace(trial, seconds=1 / (1 + trial.rank)) for trial in trials.ran)
        return replace(trials, ran=tuple(ran))

    monkeypatch.setattr(measure_candidates, "run_trials", run)


def test_runs_are_timed() -> None:
    choice = choose("race", plus(1, 64), plus(1, 1024))
    assert (choice.measured, choice.lasting) == (2, True)
    assert choice.scheduled.tile == f"tile {choice.rank}"
    assert 0 < choice.seconds < 1


@pytest.mark.usefixtures("later_is_faster")
def test_the_fastest_of_equals_wins() -> None:
    choice = choose("winner", plus(1, 1), plus(1, 64), plus(1, 1024))
    assert (choice.rank, choice.measured, choice.seconds) == (2, 3, 1 / 3)


@pytest.mark.usefixtures("later_is_faster")
@pytest.mark.parametrize(
    "wrong", [plus(2, 1024), plus(1, 1024, only=SIZE - 64)], ids=["wrong", "part"]
)
def test_what_computes_something_else_does_not(wrong: tirx.PrimFunc) -> None:
    choice = choose("disagreeing", plus(1, 1), wrong)
    assert (choice.rank, choice.measured) == (0, 2)


@pytest.mark.usefixtures("later_is_faster")
def test_what_does_not_build_is_left_out() -> None:
    choice = choose("unbuilt", plus(1, None), plus(1, 1), plus(1, 1024))
    assert (choice.rank, choice.measured) == (2, 2)
    assert choose("none_builds", plus(1, None), plus(2, None)) is None


@pytest.mark.usefixtures("later_is_faster")
def test_what_does_not_run_is_left_out() -> None:
    # No work-group of PoCL has as many threads.
    choice = choose("failing", plus(1, 1), plus(1, 64), plus(1, SIZE))
    assert (choice.rank, choice.measured) == (1, 2)


def test_where_nothing_runs_the_first_that_builds_is_kept_and_the_report_says_so() -> None:
    measure = MeasureCandidates(EMULATED, Builder(EMULATED))
    request = Request("stillborn", plus(1, None))
    choice = measure(request, found(plus(1, None), plus(1, SIZE), plus(1, SIZE // 2)))
    assert choice is not None
    assert (choice.rank, choice.measured, choice.lasting) == (1, 0, False)
    (note,) = measure.notes
    assert note.startswith("not measured: stillborn: no candidate ran: ")


def test_equal_candidates_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def run(programs: Any, *_: Any) -> Trials:
        seen.extend(rank for rank, _, _ in programs)
        return Trials(tuple(Trial(rank, 1.0, 0.0) for rank, _, _ in programs), "")

    monkeypatch.setattr(measure_candidates, "run_trials", run)
    assert choose("twins", plus(1, 64), plus(1, 64), plus(1, 128), plus(1, 64)).measured == 2
    assert seen == [0, 2]
    # With one candidate there is nothing to find out.
    assert choose("only", plus(1, 64), plus(1, 64)).measured == 0
    assert seen == [0, 2]


@pytest.fixture(autouse=True)
def measured_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users may measure on GPUs only; the emulated device shows the same here."""
    monkeypatch.setattr(Options, "check_device", lambda *_: None)


def layers(x: Any, weights: Any) -> Any:
    return op.nn.relu(op.matmul(x, weights))


def keep_rank(monkeypatch: pytest.MonkeyPatch, wanted: int) -> None:
    def run(programs: Any, *_: Any) -> Trials:
        ran = (Trial(r, 1.0 if r == wanted else 2.0, 0.0) for r, _, _ in programs)
        return Trials(tuple(ran), "")

    monkeypatch.setattr(measure_candidates, "run_trials", run)


def test_a_model_runs_what_was_chosen_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    mod = relax_module(layers, (X.shape, W.shape))
    first = tvm_tile.compile(mod, "emulated")
    keep_rank(monkeypatch, 2)
    model = tvm_tile.compile(mod, "emulated", options=Options(topk=4))
    (kernel,), (unmeasured,) = model.report.kernels, first.report.kernels
    assert (kernel.measured, kernel.rank, kernel.measured_seconds) == (4, 2, 1.0)
    assert (unmeasured.measured, unmeasured.rank) == (0, 0)
    assert kernel.tile != unmeasured.tile
    assert "1000000.0 us, #3 of 4" in model.explain("all")
    assert "measure" in [stage.name for stage in model.report.stages]
    assert "measured" not in first.explain("all")
    # Both live, with different kernels for one function.
    np.testing.assert_allclose(model(X, W), np.maximum(X @ W, 0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(first(X, W), np.maximum(X @ W, 0), rtol=1e-4, atol=1e-5)


def test_a_model_of_chosen_kernels_can_be_coscheduled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its functions bear other names than before they were scheduled."""

    def measured(programs: Any, *_: Any) -> Trials:
        return Trials(tuple(Trial(r, 2.0 - r, 0.0) for r, _, _ in programs), "")

    monkeypatch.setattr(measure_candidates, "run_trials", measured)
    monkeypatch.setattr(MeasureCandidates, "_require_device", lambda _: None)
    options = Options(topk=2, cache=False)
    mod = relax_module(lambda x, w: op.nn.softmax(layers(x, w)), (X.shape, W.shape))
    model = tvm_tile.compile(mod, "nvidia/h200", options=options)
    assert [kernel.rank for kernel in model.report.kernels] == [1, 1]


def test_the_chosen_kernel_is_not_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    build_one = Builder._build_one

    def note(self: Builder, name: str, function: Any) -> Any:
        built.append(name)
        return build_one(self, name, function)

    monkeypatch.setattr(Builder, "_build_one", note)
    keep_rank(monkeypatch, 1)
    tvm_tile.compile(relax_module(layers, (X.shape, W.shape)), "emulated", options=Options(topk=3))
    assert len(built) == len(set(built)) == 3


def test_a_chosen_kernel_that_fails_the_build_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_rank(monkeypatch, 1)
    find_failures = Builder.find_failures

    def fail_ours(builder: Builder, mod: Any) -> dict[str, BuildError]:
        names = [str(v.name_hint) for v in mod.functions if "_rank1" in str(v.name_hint)]
        return {n: BuildError("r", "broken", "") for n in names} or find_failures(builder, mod)

    monkeypatch.setattr(Builder, "find_failures", fail_ours)
    mod = relax_module(layers, (X.shape, W.shape))
    model = tvm_tile.compile(mod, "emulated", options=Options(topk=3))
    (kernel,) = model.report.kernels
    assert (kernel.rule, kernel.fallback) == ("dlight", "its kernel did not build: broken")
    np.testing.assert_allclose(model(X, W), np.maximum(X @ W, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("topk", [0, 1])
def test_without_measurements_nothing_runs(monkeypatch: pytest.MonkeyPatch, topk: int) -> None:
    monkeypatch.setattr(measure_candidates, "run_trials", lambda *_: pytest.fail("it ran"))
    monkeypatch.setattr(
        measure_candidates, "find_runtime_device", lambda *_: pytest.fail("it looked")
    )
    mod = relax_module(layers, (X.shape, W.shape))
    model = tvm_tile.compile(mod, "nvidia/h200", options=Options(topk=topk))
    assert model.report.kernels[0].measured == 0


@pytest.mark.skipif(GPU, reason="for machines without a GPU")
def test_without_the_gpu_the_remedy_is_told() -> None:
    mod = relax_module(layers, (X.shape, W.shape))
    with pytest.raises(DeviceAbsentError) as raised:
        tvm_tile.compile(mod, "nvidia/h200", options=Options(topk=2))
    assert "nvidia/h200" in raised.value.requirement
    assert "topk=1" in raised.value.remedy


def test_a_negative_number_is_no_option() -> None:
    with pytest.raises(OptionError, match="found:  -1"):
        Options(topk=-1)


def test_the_callers_lock_is_held_for_runs_and_for_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[str] = []

    @contextmanager
    def lock() -> Iterator[None]:
        events.append("lock")
        yield
        events.append("unlock")

    build = Builder.build_functions

    def note_build(self: Builder, functions: Any) -> Any:
        events.append("build")
        return build(self, functions)

    def note_run(*arguments: Any) -> Trials:
        events.append("run")
        return run_trials(*arguments)

    monkeypatch.setattr(Builder, "build_functions", note_build)
    monkeypatch.setattr(measure_candidates, "run_trials", note_run)
    options = Forced(topk=2, exclusive=lock())
    tvm_tile.compile(relax_module(layers, (X.shape, W.shape)), "emulated", options=options)
    assert events == ["build", "lock", "run", "unlock"]


def _hold(name: str, started: Any, ended: Any) -> None:
    with one_at_a_time(name):
        started.set()
        time.sleep(0.5)
        ended.set()


def test_processes_take_turns() -> None:
    context = multiprocessing.get_context("spawn")
    started, ended, name = context.Event(), context.Event(), f"test/{time.time_ns()}"
    other = context.Process(target=_hold, args=(name, started, ended))
    other.start()
    while not started.wait(1):
        assert other.is_alive()
    with one_at_a_time(name):
        assert ended.is_set()
    other.join()


def test_where_no_lock_can_be_made_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/nowhere/at/all")
    with one_at_a_time("test/none"):
        pass


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "bool"])
def test_differences(dtype: str) -> None:
    pytest.importorskip("ml_dtypes")
    from tvm_tile.runtime.arrays import numpy_dtype

    ones = np.ones(5, numpy_dtype(dtype))
    other = ones.copy()
    other[2] = 0
    assert relative_difference(ones, ones) == 0
    assert relative_difference(other, ones) == pytest.approx(np.sqrt(1 / 5))


def test_differences_of_what_is_no_number() -> None:
    broken = np.array([1, np.nan, np.inf], "float32")
    assert relative_difference(broken, broken) == 0
    assert relative_difference(np.ones(3), broken) == np.inf
    assert relative_difference(broken, np.ones(3)) == np.inf
    assert relative_difference(np.zeros(0), np.zeros(0)) == 0
    assert relative_difference(np.full(2, 3.0), np.zeros(2)) > 1


@pytest.mark.parametrize(
    ("shape", "dtype"), [((), "float32"), ((0, 3), "float32"), ((1_100_000,), "int32")]
)
def test_any_shape_can_be_drawn(shape: tuple[int, ...], dtype: str) -> None:
    from tvm_tile.runtime.trials import drawn

    value = drawn(np.random.default_rng(0), Argument(shape, dtype, False))
    assert (value.shape, str(value.dtype)) == (shape, dtype)
