"""This project's own systems in the benchmark, on the emulated device."""

from __future__ import annotations

from typing import Any

import pytest

from bench.inputs import Placed, draw
from bench.systems.system import Session
from bench.systems.tvm_tile import (
    TvmTile,
    TvmTileNoCoschedule,
    TvmTileTop10,
    TvmTileUnfused,
)
from tests.small_operators import SMALL, small_case
from tvm_tile import Options
from tvm_tile.passes.scheduling import measure_candidates
from tvm_tile.report.trial import Trial
from tvm_tile.runtime.trials import Trials

torch = pytest.importorskip("torch")


class Gpu:
    """A lock that counts."""

    def __init__(self) -> None:
        self.taken, self.held = 0, False

    def __enter__(self) -> Gpu:
        self.taken, self.held = self.taken + 1, True
        return self

    def __exit__(self, *_: Any) -> None:
        self.held = False


def prepare(system: TvmTile, gpu: Gpu, kind: str = "product") -> Any:
    case = small_case(kind, "float32")
    session = Session("emulated", gpu, lambda: draw(case, "cpu", 1), Placed("cpu"))
    return case, system.prepare(SMALL[kind][1], case, session)


def run(case: Any, prepared: Any) -> None:
    inputs = draw(case, "cpu", 1)
    output = prepared.start(inputs)()
    wanted = case.module(*inputs)
    assert torch.allclose(output, wanted, rtol=1e-4, atol=1e-4)


def test_the_first_choice_takes_no_gpu() -> None:
    gpu = Gpu()
    case, prepared = prepare(TvmTile(), gpu)
    assert (gpu.taken, prepared.kernels) == (0, 1)
    assert not prepared.note.startswith("#")
    run(case, prepared)


def test_the_best_of_ten_is_timed_with_the_gpu_held(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu()
    held: list[bool] = []

    def trials(programs: Any, *_: Any) -> Trials:
        held.append(gpu.held)
        ran = (Trial(rank, float(9 - rank), 0.0) for rank, _, _ in programs[:4])
        return Trials(tuple(ran), "")

    monkeypatch.setattr(measure_candidates, "run_trials", trials)
    monkeypatch.setattr(Options, "check_device", lambda *_: None)
    case, prepared = prepare(TvmTileTop10(), gpu)
    assert held == [True]
    assert prepared.note.startswith("#3 of 4: ")
    assert prepared.schedule_s > 0
    run(case, prepared)


def test_unfused_is_right_and_not_welded() -> None:
    case, prepared = prepare(TvmTileUnfused(), Gpu(), "softmax")
    run(case, prepared)
    session = Session("emulated", Gpu(), lambda: draw(case, "cpu", 1), Placed("cpu"))
    assert "weld is off" in TvmTileUnfused().compile(case, session).explain("all")
    assert "weld is off" not in TvmTile().compile(case, session).explain("all")


def test_without_coscheduling_it_is_right_and_says_so() -> None:
    case, prepared = prepare(TvmTileNoCoschedule(), Gpu(), "softmax")
    run(case, prepared)
    session = Session("emulated", Gpu(), lambda: draw(case, "cpu", 1), Placed("cpu"))
    assert "coschedule is off" in TvmTileNoCoschedule().compile(case, session).explain("all")
    assert "coschedule is off" not in TvmTile().compile(case, session).explain("all")


def test_the_benchmark_reads_no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("TVM_TILE_CACHE", str(tmp_path))
    TvmTile().warm_up()
    prepare(TvmTile(), Gpu())
    assert list(tmp_path.iterdir()) == []
