"""MetaSchedule tunes, resumes and records failures; times are invented, kernels are compiled."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import lzma
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.metaschedule.build import Artifact, Kernel, build
from bench.metaschedule.measure import GpuTimer
from bench.metaschedule.records import DatabaseError, History, Records, Round
from bench.metaschedule.search import Limits, make_target, tensors_of, tune
from bench.systems.metaschedule import MetaSchedule
from bench.systems.system import NotSupported, Session
from bench.workload import Case, Input, Workload
from tvm_tile import find_device

needs_xgboost = pytest.mark.skipif(
    importlib.util.find_spec("xgboost") is None,
    reason="MetaSchedule's cost model needs XGBoost: pip install xgboost-cpu",
)
DEVICE = find_device("nvidia/h200")
WORKLOAD = Workload("ops", "M9", "matmul", "float32", None, ())


class Gpu:
    """In place of the lock: nothing else uses the GPU."""

    def __init__(self) -> None:
        self.held = 0

    def __enter__(self) -> Gpu:
        self.held += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.held -= 1


@pytest.fixture(scope="module")
def case() -> Case:
    import torch

    class Product(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return torch.matmul(x, y)

    shapes = ((32, 32), (32, 64))
    inputs = tuple(Input(shape, "float32") for shape in shapes)
    return Case(Product(), inputs, 2.0 * 32 * 32 * 64, 4.0 * 5120, "float64", 1e-5)


@pytest.fixture(scope="module")
def function(case: Case) -> Any:
    from bench.functions import fused_function

    return fused_function(case, DEVICE)


@pytest.mark.whole
@needs_xgboost
def test_tunes_resumes_and_is_found_again(case: Case, function: Any, tmp_path: Path) -> None:
    records = Records(tmp_path, WORKLOAD.name, WORKLOAD.dtype)
    tried: list[Artifact] = []

    def measure(artifact: Artifact) -> list[float] | str:
        tried.append(artifact)
        return "crashed" if len(tried) == 2 else [1e-3 / len(tried)] * 3

    def run(trials: int) -> History:
        limits = Limits(trials, threads=2, per_round=4, population=64)
        return tune(function, make_target(DEVICE), records, measure, limits)

    first = run(4)
    assert first.last.trials == 4
    assert first.last.valid == 3
    assert len(tried) == 4
    assert all(kernel.cubin[:4] == b"\x7fELF" for a in tried for kernel in a.kernels)
    assert run(4).rounds == first.rounds
    second = run(8)
    assert second.rounds[: len(first.rounds)] == first.rounds
    # Rounds are whole, and may propose less than asked: the last one may end behind eight.
    assert second.last.trials == len(tried) >= 8
    assert second.last.valid == second.last.trials - 1
    assert second.last.best_s == pytest.approx(1e-3 / len(tried))
    assert second.last.seconds > first.last.seconds > 0
    # No candidate of the first run was tried again.
    # (Two of one run may well have the same text.)
    texts = [{kernel.source for kernel in artifact.kernels} for artifact in tried]
    assert set.union(*texts[:4]).isdisjoint(set.union(*texts[4:]))
    lines = lzma.decompress((tmp_path / "M9_float32.records.json.xz").read_bytes()).splitlines()
    seconds = [json.loads(line)[1][1] for line in lines]
    assert [min(own) > 1e9 for own in seconds] == [n == 1 for n in range(len(tried))]
    assert records.read_history() == second
    _find_best(case, tmp_path, tried[-1])


def _find_best(case: Case, folder: Path, best: Artifact) -> None:
    """The system takes the fastest record's schedule, for the function it was tuned for."""
    from bench.functions import fused_function
    from bench.metaschedule.search import as_module

    system = MetaSchedule(folder)
    assert system.variant == str(Records(folder, "M9", "float32").read_history().last.trials)
    with Records(folder, "M9", "float32").open() as database:
        module = as_module(fused_function(case, DEVICE))
        schedule = database.tvm.query_schedule(module, make_target(DEVICE), "main")
    (built,) = build([schedule.mod["main"]], make_target(DEVICE), 1)
    assert built == best
    other = Case(
        case.module, (Input((64, 32), "float32"), case.inputs[1]), 1.0, 1.0, "float64", 1.0
    )
    with pytest.raises(NotSupported, match="records are of another function"):
        system.prepare(WORKLOAD, other, _session())


@needs_xgboost
def test_stops_at_the_deadline_and_reports_broken_builds(function: Any, tmp_path: Path) -> None:
    records = Records(tmp_path, "M9", "float32")
    late = Limits(8, deadline=time.monotonic() - 1)
    history = tune(function, make_target(DEVICE), records, lambda _: [1.0], late)
    assert history.rounds == ()
    assert not records.exist()
    (built,) = build([function], make_target(DEVICE), 1)  # its loops are bound to no thread
    assert isinstance(built, str)


@pytest.mark.parametrize("damage", [b"not xz", lzma.compress(b"[0, [1, 2\n"), lzma.compress(b"[]")])
def test_damaged_database(damage: bytes, tmp_path: Path) -> None:
    (tmp_path / "M9_float32.records.json.xz").write_bytes(damage)
    with (
        pytest.raises(DatabaseError, match=r"M9_float32\.records\.json\.xz is not what"),
        Records(tmp_path, "M9", "float32").open(),
    ):
        pass


@pytest.mark.parametrize("damage", ["{", "[]", '{"rounds": [{}]}'])
def test_damaged_history(damage: str, tmp_path: Path) -> None:
    (tmp_path / "M9_float32.history.json").write_text(damage)
    with pytest.raises(DatabaseError, match=r"remove .*M9_float32"):
        Records(tmp_path, "M9", "float32").read_history()


def test_untuned_operators_say_how_to_tune_them(case: Case, tmp_path: Path) -> None:
    system = MetaSchedule(tmp_path)
    assert "python -m bench.metaschedule" in system.missing()
    assert system.variant == "0"
    with pytest.raises(NotSupported, match=r"bench\.metaschedule --operators M9"):
        system.prepare(WORKLOAD, case, _session())


def test_history_keeps_what_the_report_reads(tmp_path: Path) -> None:
    totals = Round(64, 60, 12.5, 2e-4, 5.0, 4.5, 3.0)
    history = History("C0", "float32", conditions=("H200",)).after(totals)
    records = Records(tmp_path, "C0", "float32")
    records.folder.joinpath("C0_float32.history.json").write_text(
        json.dumps(dataclasses.asdict(history))
    )
    assert records.read_history() == history
    entry = dataclasses.asdict(history)["rounds"][0]
    assert (entry["trials"], entry["valid"], entry["seconds"], entry["best_s"]) == (
        64, 60, 12.5, 2e-4,
    )  # fmt: skip


def test_candidates_that_hang_or_crash_cost_only_themselves(function: Any) -> None:
    gpu = Gpu()
    with GpuTimer(tensors_of(function), gpu, make_fake_timer, limit_s=5.0) as timer:
        assert timer.measure(_artifact("fine")) == [1.0, 2.0, 3.0]
        assert "process ended with code 7" in str(timer.measure(_artifact("crash")))
        assert timer.measure(_artifact("fine")) == [1.0, 2.0, 3.0]
        assert timer.measure(_artifact("poison")) == "illegal address"
        assert timer.measure(_artifact("refused")) == "invalid configuration"
        timer._limit_s = 0.5
        assert "no result after" in str(timer.measure(_artifact("hang")))
    assert gpu.held == 0


@pytest.mark.whole
def test_the_tutorial_replays_records() -> None:
    """On records whose times are invented."""
    root = Path(__file__).parent.parent.parent
    recorded = root / "tests" / "data" / "metaschedule"
    done = subprocess.run(
        [sys.executable, "-W", "error", "tutorials/02_against_ansor.py", "--results", recorded],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "this is a replay of what was recorded on" in done.stdout
    assert "SamplePerfectTile of loop kx" in done.stdout
    assert "metaschedule 8       2.000 ms, 14.8 TFLOP/s" in done.stdout


def make_fake_timer() -> Callable[[Any], Any]:
    """Does what the candidate's first kernel is called; loses everything between processes."""
    state: dict[str, Any] = {}

    def answer(message: tuple[str, Any]) -> Any:
        kind, content = message
        if kind != "time":
            state[kind] = content
            return None
        assert state["tensors"][0] == ((32, 32), "float32")
        behaviour = state["load"].kernels[0].name
        if behaviour == "crash":
            os._exit(7)
        if behaviour == "hang":
            time.sleep(60)
        answers: dict[str, Any] = {
            "fine": [1.0, 2.0, 3.0],
            "poison": ("illegal address",),
            "refused": "invalid configuration",
        }
        return answers[behaviour]

    return answer


def _artifact(name: str) -> Artifact:
    return Artifact(b"", (Kernel(name, (), (), ""),))


def _session() -> Session:
    return Session("nvidia/h200", Gpu(), lambda: (), lambda module: module)


@pytest.mark.whole
@needs_xgboost
def test_the_command_line_starts_a_process_of_each_operator(tmp_path: Path) -> None:
    """What ``python -m`` runs is called ``__main__``, and a new process has another one."""
    script = (
        "import runpy, sys, torch\n"
        "torch.cuda.is_available = lambda: True\n"
        "torch.cuda.device_count = lambda: 1\n"
        f"sys.argv[1:] = ['--operators', 'E2', '--limit-s', '0', '--folder', {str(tmp_path)!r}]\n"
        "runpy.run_module('bench.metaschedule', run_name='__main__', alter_sys=True)\n"
    )
    command = (sys.executable, "-c", script)
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("E2: 0 trials")
