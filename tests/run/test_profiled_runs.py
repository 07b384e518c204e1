"""What each kernel of a run takes, on the emulated device and on GPUs."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from fake_graphs import emulated_with_graphs, fake_graphs
from fake_hip import COMPILER, DEVICE, FakeHip, fake_hip
from torch import nn

import tvm_tile
from bench.suites.networks.lstm import LastState, StackedLSTM
from tvm_tile import CompiledModel, InputError, Open, Options, Profile, ProfileError
from tvm_tile.report.activities import shares_of
from tvm_tile.report.profile import kernels_of
from tvm_tile.report.screen.text import duration
from tvm_tile.report.symbols import function_of
from tvm_tile.runtime.drivers.cupti import load_cupti
from tvm_tile.stages.forced import Forced

GPU = tvm.cuda(0).exist
NO_CACHE = Options(cache=False)


class Residual(nn.Module):
    """A few convolutions, one of which runs twice, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.first = nn.Conv2d(8, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x).relu()
        x = x + self.first(x).relu()
        x = x + self.second(x).relu()
        return self.head(x.mean((2, 3)))


class Counter(nn.Module):
    """Counts its calls, and writes to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        x.mul_(2)
        return x + self.calls


def module(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind().eval()


IMAGE = torch.linspace(-1, 1, 3 * 12 * 10).reshape(1, 3, 12, 10)


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    return tvm_tile.compile(module(Residual), "emulated", example_inputs=(IMAGE,), options=NO_CACHE)


@pytest.fixture(scope="module")
def profile(model: CompiledModel) -> Profile:
    return model.profile(IMAGE, runs=4)


def test_every_kernel_has_a_row_with_as_many_calls_as_the_program_has(
    model: CompiledModel, profile: Profile
) -> None:
    rows = {kernel.name: kernel for kernel in profile.kernels}
    assert {name: row.calls for name, row in rows.items()} == {
        kernel.name: kernel.calls for kernel in model.report.kernels
    }
    assert any(row.calls == 2 for row in rows.values())
    assert not profile.unseen
    assert all(row.seconds > 0 for row in rows.values())
    assert "first + second" not in str(profile)
    assert "stem" in str(profile)


def test_the_kernels_of_each_run_come_one_after_another(
    model: CompiledModel, profile: Profile
) -> None:
    assert len(profile.runs) == 4
    for run in profile.runs:
        times = [time for one in run for time in (one.begin, one.end)]
        assert times == sorted(times)
        shares = shares_of(run)
        assert 0 < shares.launch < shares.whole
        assert shares.overlap == pytest.approx(0, abs=1e-9)
        rows = kernels_of(model.report, [run])
        assert sum(kernel.seconds for kernel in rows) == pytest.approx(shares.kernels)


def test_it_is_beside_the_time_of_a_run_that_explain_tells_then(
    model: CompiledModel, profile: Profile
) -> None:
    assert profile.seconds > 0
    assert f"{duration(profile.seconds)} measured" in model.explain()
    assert profile.source == "the CPU's clock"


def test_a_trace_is_written_whole(profile: Profile, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    profile.save_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    count = len(profile.typical)
    assert sum(event["ph"] == "X" for event in events) == 2 * count
    with pytest.raises(OSError, match="nowhere"):
        profile.save_trace(tmp_path / "nowhere" / "trace.json")


def test_inputs_and_state_are_as_before() -> None:
    x = torch.ones(3)
    counter = tvm_tile.compile(module(Counter), "emulated", example_inputs=(x,), options=NO_CACHE)
    given = np.ones(3, "float32")
    counter(given)
    counter.profile(given, runs=3)
    np.testing.assert_array_equal(given, 2)
    np.testing.assert_array_equal(np.from_dlpack(counter.state["calls"]), 1)


def test_open_extents_are_told_by_name() -> None:
    doubled = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    x = torch.ones(2, 4)
    opened = tvm_tile.compile(
        torch.export.export(
            doubled, (x,), dynamic_shapes=({0: torch.export.Dim("n", min=1, max=64)},)
        ),
        "emulated",
        inputs={"input": (Open(1, 64, "n"), 4)},
        options=NO_CACHE,
    )
    found = opened.profile(extents={"n": 3}, runs=1)
    assert [kernel.name for kernel in found.kernels if kernel.report]
    with pytest.raises(InputError, match="leave one of them out"):
        opened.profile(np.ones((3, 4), "float32"), extents={"n": 3})


@pytest.mark.parametrize("runs", [0, -1, 1.5, True])
def test_less_than_one_run_is_refused(model: CompiledModel, runs: Any) -> None:
    with pytest.raises(InputError, match="runs must be at least 1"):
        model.profile(IMAGE, runs=runs)


def test_kernels_that_graphs_replay_are_seen() -> None:
    with fake_graphs() as graphs:
        captured = tvm_tile.compile(
            module(Residual), emulated_with_graphs(), example_inputs=(IMAGE,), options=NO_CACHE
        )
        found = captured.profile(IMAGE, runs=2)
        assert graphs.replayed
    assert "CUDA graph" in str(found)
    assert not found.unseen
    assert len(found.typical) == sum(k.calls * k.launches for k in captured.report.kernels)


@pytest.fixture
def hip() -> Iterator[FakeHip]:
    with fake_hip().present() as fake:
        yield fake


@pytest.mark.skipif(COMPILER is None, reason="gcc compiles the fake driver")
def test_an_amd_gpu_is_watched_by_events_that_are_given_back(hip: FakeHip) -> None:
    # No kernel may have the name of one of the models above, which live.
    other = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Conv2d(5, 5, 3), nn.Softmax(-1))
    made = tvm_tile.compile(other, DEVICE, example_inputs=(IMAGE,), options=NO_CACHE)
    found = hip.model(made).profile(IMAGE, runs=2)
    assert found.source == "HIP's events"
    assert {row.name: row.calls for row in found.kernels} == {
        kernel.name: kernel.calls for kernel in made.report.kernels
    }
    assert hip.live[1] == 0


def test_without_cupti_an_nvidia_gpu_is_refused_by_name(
    model: CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupti", None)
    load_cupti.cache_clear()
    with model.running():
        on_gpu = dataclasses.replace(model.loaded(), device=tvm.cuda(0))
    with pytest.raises(ProfileError, match="needs CUPTI"):
        _ = on_gpu.tracer


def test_compilations_are_compared_as_predicted_and_as_measured(
    model: CompiledModel, profile: Profile, tmp_path: Path
) -> None:
    options = Forced(cache=False, weld=False, parallel_builds=2)
    apart = tvm_tile.compile(module(Residual), "emulated", example_inputs=(IMAGE,), options=options)
    apart.save(tmp_path / "apart.tvmtile")
    loaded = tvm_tile.load(tmp_path / "apart.tvmtile")
    predicted = tvm_tile.compare(model, loaded)
    assert "TVM 0.27.0.post1, weld=False" in str(predicted)
    total = sum(change.second for change in predicted.changes)
    assert total == pytest.approx(loaded.report.predicted_seconds)
    measured = tvm_tile.compare(profile, loaded.profile(IMAGE, runs=2))
    assert measured.is_measured
    assert measured.seconds[0] == profile.seconds
    assert all(change.first_kernels and change.second_kernels for change in measured.changes)
    with pytest.raises(InputError, match="Profile and CompiledModel"):
        tvm_tile.compare(profile, model)


class Recurrent(LastState):
    """Layers of LSTM, whose steps become a persistent kernel."""

    def __init__(self, layers: int = 4, width: int = 256) -> None:
        super().__init__(StackedLSTM(layers, width, width))


def test_each_symbol_of_a_persistent_kernel_and_those_beside_it_is_a_functions() -> None:
    small = Recurrent(2, 64).eval()
    example = (torch.zeros(12, 1, 64),)
    compiled = tvm_tile.compile(small, "nvidia/h200", example_inputs=example, options=NO_CACHE)
    known = {kernel.name for kernel in compiled.report.kernels}
    assert compiled.report.plans
    assert {plan.name for plan in compiled.report.plans} <= known
    assert {function_of(kernel.name, known) for kernel in compiled.program.kernels} == known


class Encoder(nn.Module):
    """Layers as BERT has them."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(768, 12, 3072, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Convolutions(nn.Module):
    """Bottlenecks as ResNet-50 has them."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(256, 64, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
                nn.Conv2d(64, 256, 1),
            )
            for _ in range(6)
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = (x + block(x)).relu()
        return x


CASES = {
    Recurrent: (48, 1, 256),
    Encoder: (8, 128, 768),
    Convolutions: (16, 256, 56, 56),
}


@pytest.mark.cuda
@pytest.mark.skipif(not GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("kind", CASES)
def test_on_a_gpu_kernels_and_gaps_add_up_to_the_time_of_a_run(kind: type[nn.Module]) -> None:
    pytest.importorskip("cupti")
    x = torch.randn(CASES[kind])
    compiled = tvm_tile.compile(module(kind), example_inputs=(x,), options=NO_CACHE)
    given = tvm.runtime.tensor(x.numpy(), tvm.cuda(0))
    found = compiled.profile(given, runs=20)
    assert {kernel.name: kernel.calls for kernel in found.kernels if kernel.report} == {
        kernel.name: kernel.calls for kernel in compiled.report.kernels
    }
    assert found.shares.on_device == pytest.approx(found.seconds, rel=0.05)
    again = compiled.profile(given, runs=2)
    assert len(again.typical) == len(found.typical)
