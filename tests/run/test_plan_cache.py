"""``Options(cache=...)``: the second compilation ranks, measures and compiles nothing."""

from __future__ import annotations

import multiprocessing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from scheduled import relax_module
from tvm.relax import op

import tvm_tile
from tvm_tile import Options
from tvm_tile.build import machine_code
from tvm_tile.device import find_device
from tvm_tile.files.store import Store
from tvm_tile.passes import PlanFunction, StoredPlans
from tvm_tile.passes.scheduling import measure_candidates
from tvm_tile.passes.scheduling.plan_function import Planned, Request
from tvm_tile.report.trial import Trial
from tvm_tile.runtime.trials import Trials
from tvm_tile.stages import known_models, opened_store
from tvm_tile.stages.forced import Forced
from tvm_tile.stages.fusing import fuse
from tvm_tile.tile.cover import MAX_LOSS

H200 = find_device("nvidia/h200")
EMULATED = find_device("emulated")
X = np.random.default_rng(0).standard_normal((48, 40)).astype("float32")
W = np.random.default_rng(1).standard_normal((40, 64)).astype("float32")


def layers(x: Any, weights: Any) -> Any:
    return op.nn.softmax(op.nn.relu(op.matmul(x, weights)), axis=-1)


def module(rows: int = 48) -> tvm.IRModule:
    return relax_module(layers, ((rows, 40), W.shape))


@pytest.fixture(autouse=True)
def unchanged_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever edits the package while its tests run turns its cache off; not here."""
    monkeypatch.setattr(opened_store, "_own_fingerprint", lambda: "the code under test")
    monkeypatch.setattr(known_models, "open_model_store", lambda _: None)  # plans are at stake here
    # Users may measure on GPUs only.
    monkeypatch.setattr(Options, "check_device", lambda *_: None)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was planned and compiled, in order."""
    done: list[str] = []
    plan, compile_cuda = PlanFunction.__call__, machine_code.compile_cuda

    def note_plan(self: PlanFunction, request: Request) -> Planned:
        done.append("plan")
        return plan(self, request)

    def note_compile(source: str, arch: str, **options: bool) -> bytes:
        done.append("compile")
        return compile_cuda(source, arch, **options)

    monkeypatch.setattr(PlanFunction, "__call__", note_plan)
    monkeypatch.setattr(machine_code, "compile_cuda", note_compile)
    return done


def described(model: tvm_tile.CompiledModel) -> list[dict[str, Any]]:
    return [asdict(kernel) for kernel in model.report.kernels]


def test_the_second_time_nothing_is_done_again(tmp_path: Path, work: list[str]) -> None:
    options = Forced(cache=tmp_path, parallel_builds=1)
    first = tvm_tile.compile(module(), H200, options=options)
    assert sorted(work) == ["compile"] * 2 + ["plan"] * 2
    second = tvm_tile.compile(module(), H200, options=options)
    assert len(work) == 4
    assert described(second) == described(first)
    assert second.program.kernels == first.program.kernels


def test_what_comes_from_the_cache_computes_the_same(tmp_path: Path, work: list[str]) -> None:
    options = Options(cache=str(tmp_path))
    first = tvm_tile.compile(module(), "emulated", options=options)
    expected = first(X, W)
    second = tvm_tile.compile(module(), "emulated", options=options)
    assert work == ["plan", "plan"]
    assert np.array_equal(second(X, W), expected)


def test_another_shape_device_version_or_option_is_another_plan(
    tmp_path: Path, work: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(cache=tmp_path)

    def planned(*arguments: Any, **changes: Any) -> int:
        del work[:]
        tvm_tile.compile(*arguments, options=replace(options, **changes))
        return work.count("plan")

    assert planned(module(), H200) == 2
    assert planned(module(), H200, topk=0) == 0  # the same as 1
    assert planned(module(), H200, tf32=True) == 2
    assert planned(module(), H200, max_loss=0.2) == 2
    assert planned(module(49), H200) == 2
    assert planned(module(), replace(H200, l2_capacity=H200.l2_capacity + 1)) == 2
    assert planned(module(), "nvidia/h100") == 2
    assert planned(module(), H200, cache=tmp_path / "elsewhere") == 2
    assert planned(module(), EMULATED) == 2
    assert planned(module(), EMULATED, topk=2) == 2
    assert planned(module(), EMULATED, topk=2) == 0
    monkeypatch.setattr(opened_store, "__version__", "0.0.0")
    assert planned(module(), H200) == 2
    monkeypatch.setattr(opened_store, "_own_fingerprint", lambda: "other code")
    assert planned(module(), H200) == 2
    monkeypatch.setattr(opened_store, "_own_fingerprint", lambda: None)
    assert planned(module(), H200) == planned(module(), H200) == 2


def test_another_compiler_compiles_again(
    tmp_path: Path, work: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(cache=tmp_path)
    tvm_tile.compile(module(), H200, options=options)
    monkeypatch.setattr(machine_code, "compiler_for", lambda _: "a newer one")
    tvm_tile.compile(module(), H200, options=options)
    assert (work.count("plan"), work.count("compile")) == (2, 4)


def test_switched_off_it_keeps_nothing(
    tmp_path: Path, work: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_TILE_CACHE", str(tmp_path))
    for _ in range(2):
        tvm_tile.compile(module(), H200, options=Options(cache=False))
    assert (len(work), list(tmp_path.iterdir())) == (8, [])
    for _ in range(2):
        tvm_tile.compile(module(), H200)
    assert len(work) == 12
    assert list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_damaged_files_are_made_anew(tmp_path: Path, work: list[str], damage: bytes | None) -> None:
    options = Options(cache=tmp_path)
    first = tvm_tile.compile(module(), H200, options=options)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    for file in files:
        file.write_bytes(file.read_bytes()[:-1] if damage is None else damage)
    for expected in (8, 8):
        again = tvm_tile.compile(module(), H200, options=options)
        assert len(work) == expected
        assert again.program.kernels == first.program.kernels


def test_a_plan_that_tvm_cannot_read_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: list[str]
) -> None:
    options = Options(cache=tmp_path)
    monkeypatch.setattr("tvm_tile.passes.scheduling.stored_plans._pack", lambda _: b'{"func": "7"}')
    for expected in (2, 4):
        tvm_tile.compile(module(), H200, options=options)
        assert work.count("plan") == expected


def test_a_folder_that_cannot_be_is_no_error(tmp_path: Path, work: list[str]) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for _ in range(2):
        tvm_tile.compile(module(), H200, options=Options(cache=file / "below"))
    assert len(work) == 8


def test_what_was_measured_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(programs: Any, *_: Any) -> Trials:
        return Trials(tuple(Trial(r, 2.0 if r != 1 else 1.0, 0.0) for r, _, _ in programs), "")

    monkeypatch.setattr(measure_candidates, "run_trials", run)
    options = Options(cache=tmp_path, topk=3)
    first = tvm_tile.compile(module(), "emulated", options=options)
    monkeypatch.setattr(measure_candidates, "run_trials", lambda *_: pytest.fail("it ran"))
    second = tvm_tile.compile(module(), "emulated", options=options)
    assert described(second) == described(first)
    assert {kernel.rank for kernel in second.report.kernels if kernel.measured} == {1}
    np.testing.assert_array_equal(second(X, W), first(X, W))


def test_what_could_not_be_measured_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(cache=tmp_path, topk=3)
    calls = []

    def run(*_: Any) -> Trials:
        calls.append(1)
        return Trials((), "the GPU is on fire")

    monkeypatch.setattr(measure_candidates, "run_trials", run)
    measured = 2  # functions with more than one candidate
    for count in (measured, 2 * measured):
        model = tvm_tile.compile(module(), "emulated", options=options)
        assert len(calls) == count
        assert "no candidate ran: the GPU is on fire" in model.explain("all")


def test_fallbacks_and_their_reasons_are_kept(tmp_path: Path) -> None:
    store, asked = Store(tmp_path, "1"), []
    functions = fuse(module(), H200).mod.functions.values()
    func = next(f for f in functions if isinstance(f, tvm.tirx.PrimFunc))

    def plan(request: Request) -> Planned:
        asked.append(request)
        return PlanFunction(H200)(request)

    stored = StoredPlans(plan, store, H200, 1, MAX_LOSS)
    requests = [Request("f", func, "it did not build", beyond) for beyond in (False, True)]
    for _ in range(2):
        rules = [stored(request).report.rule for request in requests]
        assert rules == ["dlight", "statements"]
    assert stored(requests[0]).report.fallback == "it did not build"
    assert len(asked) == 2


def _compile_in(folder: Path, barrier: Any) -> list[str]:
    import tvm_tile.stages.opened_store

    tvm_tile.stages.opened_store._own_fingerprint = lambda: "the code under test"
    barrier.wait(900)
    model = tvm_tile.compile(module(), "nvidia/h200", options=Options(cache=folder))
    return [kernel.tile for kernel in model.report.kernels]


def test_two_processes_at_once(tmp_path: Path, work: list[str]) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(2) as pool:
        barrier = manager.Barrier(2)
        one, other = pool.starmap(_compile_in, [(tmp_path, barrier)] * 2)
    assert one == other
    model = tvm_tile.compile(module(), "nvidia/h200", options=Options(cache=tmp_path))
    assert (work, [kernel.tile for kernel in model.report.kernels]) == ([], one)
