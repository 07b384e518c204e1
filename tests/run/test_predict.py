"""``tvm_tile.predict``: the report of a compiled model, without a compiler and without a GPU."""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import tvm

import tvm_tile
from tvm_tile import Open, Options
from tvm_tile.build import Builder
from tvm_tile.cli import main
from tvm_tile.errors import ModelError, OptionError
from tvm_tile.oracle import oracle as oracle_module
from tvm_tile.passes.scheduling.first_choices import FirstChoices
from tvm_tile.report.shown import Report

pytestmark = pytest.mark.bank(3)

NO_CACHE = Options(cache=False)


class Chosen(torch.nn.Module):
    """A product, a softmax, the place of the largest, and a row that a number chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(96, 40_000)
        self.table = torch.nn.Embedding(50, 96)

    def forward(self, which: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self.layer(self.table(which)).softmax(-1)
        return scores, scores.argmax(-1)


class Counting(torch.nn.Module):
    """A loop whose end the data tells."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def goes_on(n: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return n < 5

        def step(n: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return n + 1, torch.tanh(x * 1.5)

        start = torch.zeros((), dtype=torch.int64)
        return torch.while_loop(goes_on, step, (start, x))[1]


def convolutions() -> torch.nn.Module:
    layers = (torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.BatchNorm2d(32), torch.nn.ReLU())
    return torch.nn.Sequential(*layers, torch.nn.Conv2d(32, 32, 1), torch.nn.AdaptiveAvgPool2d(1))


MODELS: dict[str, tuple[Callable[[], torch.nn.Module], tuple[Any, ...]]] = {
    "convolutions": (convolutions, (torch.zeros(1, 16, 28, 28),)),
    "chosen": (Chosen, (torch.tensor([3]),)),
    "recurrence": (lambda: torch.nn.LSTM(48, 48, 2), (torch.zeros(6, 1, 48),)),
    "loop": (Counting, (torch.zeros(64),)),
    "attention": (
        lambda: torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True),
        (torch.zeros(2, 50, 64),),
    ),
}


def program_of(name: str) -> Any:
    torch.manual_seed(0)
    warnings.simplefilter("ignore", UserWarning)  # an LSTM's weights, laid out anew
    make, example = MODELS[name]
    with torch.no_grad():
        return torch.export.export(make().eval(), example)


def known(report: Report) -> tuple[Any, ...]:
    """What a prediction tells: all but what machine code takes, of which persistent kernels have
    their names, and how long it took."""
    kernels = [
        replace(k, name="" if k.rule == "persistent" else k.name, resources=(), resident=0)
        for k in report.kernels
    ]
    plans = [(plan.plan, plan.apart_seconds) for plan in report.plans]
    others = replace(report, kernels=(), plans=(), graphs=(), stages=(), origin=None)
    return kernels, plans, others


@pytest.mark.parametrize("device", ["nvidia/h200", "amd/mi300x", "emulated"])
@pytest.mark.parametrize("name", MODELS)
def test_it_is_the_report_of_the_compiled_model(name: str, device: str) -> None:
    program = program_of(name)
    predicted = tvm_tile.predict(program, device)
    compiled = tvm_tile.compile(program, device, options=NO_CACHE).report
    assert known(predicted) == known(compiled)
    assert predicted.predicted_seconds > 0
    assert predicted.predicted_seconds == compiled.predicted_seconds


def test_open_extents_are_predicted_too(tmp_path: Path) -> None:
    program = program_of("attention")
    path = tmp_path / "layer.pt2"
    torch.export.save(program, path)
    layer = torch.nn.Linear(64, 64)
    batch = torch.export.Dim("batch", min=1, max=512)
    with torch.no_grad():
        opened = torch.export.export(layer, (torch.zeros(3, 64),), dynamic_shapes=({0: batch},))
    sizes = {"input": (Open(1, 512), 64)}
    predicted = tvm_tile.predict(opened, "nvidia/h200", inputs=sizes)
    compiled = tvm_tile.compile(opened, "nvidia/h200", inputs=sizes, options=NO_CACHE).report
    assert known(predicted) == known(compiled)
    assert tvm_tile.predict(path, "nvidia/h200").kernels


def test_no_compiler_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Builder, "_build_one", lambda *_: pytest.fail("it builds"))
    assert tvm_tile.predict(program_of("loop"), "nvidia/h200").plans


@pytest.mark.parametrize("option", [{"topk": 4}, {"verify": True}])
def test_what_runs_kernels_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="builds and runs no kernel"):
        tvm_tile.predict(torch.nn.ReLU(), "nvidia/h200", example_inputs=(torch.ones(3),), **option)


def test_the_command_tells_of_each_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "layers.pt2"
    torch.export.save(program_of("convolutions"), path)
    words = ["predict", str(path), "--device", "nvidia/h200", "--device", "nvidia/a100"]
    assert main(words) == 0
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split()[0] == "device"
    assert [row.split()[0] for row in rows] == ["nvidia/h200", "nvidia/a100"]
    report = tvm_tile.predict(path, "nvidia/h200")
    assert f" {report.predicted_seconds * 1e6:.1f} " in rows[0]
    assert "(~)" in rows[1]  # nobody measured an A100
    assert main([*words, "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first["device"] == "nvidia/h200"
    assert len(second["kernels"]) == len(tvm_tile.predict(path, "nvidia/a100").kernels)
    assert main([*words, "--topk", "4"]) == 2
    assert "builds and runs no kernel" in capsys.readouterr().err


def test_weights_need_no_values() -> None:
    def layer() -> torch.nn.Module:
        return torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()

    with torch.device("meta"):
        bare = torch.export.export(layer(), (torch.zeros(2, 50, 64),))
    with_values = torch.export.export(layer(), (torch.zeros(2, 50, 64),))
    found, wanted = (tvm_tile.predict(own, "nvidia/h200") for own in (bare, with_values))
    parameters = sum(4 * own.numel() for own in layer().parameters())
    assert found.weights >= parameters
    assert "without values" in "".join(found.notes)
    # Bare products of one input stay apart, of which this layer has none.
    assert found.predicted_seconds == pytest.approx(wanted.predicted_seconds, rel=0.1)
    with pytest.raises(ModelError, match="values"):
        tvm_tile.compile(bare, "emulated", options=NO_CACHE)


def test_kernels_are_chosen_for_the_device_as_the_options_want_it() -> None:
    program, options = program_of("attention"), Options(cache=False, tf32=True)
    predicted = tvm_tile.predict(program, "nvidia/h200", options=options)
    compiled = tvm_tile.compile(program, "nvidia/h200", options=options).report
    assert known(predicted) == known(compiled)
    assert known(predicted) != known(tvm_tile.predict(program, "nvidia/h200"))


def test_an_oracle_chooses_no_kernel_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    scheduled = FirstChoices._scheduled

    def told(self: FirstChoices, *given: Any) -> Any:
        asked.append(given)
        return scheduled(self, *given)

    monkeypatch.setattr(FirstChoices, "_scheduled", told)
    oracle = tvm_tile.Oracle("nvidia/h200", "amd/mi300x")
    program = program_of("convolutions")
    first = oracle(program)
    count = len(asked)
    assert count
    again = oracle(program)
    assert len(asked) == count
    assert known(again) == known(first) == known(tvm_tile.predict(program, "nvidia/h200"))
    both = oracle.on_all(program)
    assert list(both) == ["nvidia/h200", "amd/mi300x"]
    assert known(both["nvidia/h200"]) == known(first)
    assert known(both["amd/mi300x"]) == known(tvm_tile.predict(program, "amd/mi300x"))


def test_an_oracle_goes_to_other_processes() -> None:
    program, options = program_of("attention"), Options(cache=False, tf32=True)
    oracle = tvm_tile.Oracle("nvidia/h200", "amd/mi300x", options=options)
    here = oracle.on_all(program)
    there = pickle.loads(pickle.dumps(oracle)).on_all(program)
    assert {name: known(one) for name, one in there.items()} == {
        name: known(one) for name, one in here.items()
    }


def test_passes_that_ask_for_no_device_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    original = tvm.transform.Sequential.__call__

    def told(self: Any, mod: Any) -> Any:
        ran.extend(str(step.info.name) for step in self.passes)
        return original(self, mod)

    monkeypatch.setattr(tvm.transform.Sequential, "__call__", told)
    oracle = tvm_tile.Oracle("nvidia/h200", "nvidia/h100")
    program = program_of("convolutions")
    reports = oracle.on_all(program)
    assert ran.count("ChannelsLast") == ran.count("InlineConstants") == 1
    assert ran.count("FuseTiles") == 2  # which ask it
    for name, report in reports.items():
        assert known(report) == known(tvm_tile.predict(program, name))
    ran.clear()
    oracle.on_all(program)
    assert ran.count("ChannelsLast") == 1  # of another model, as far as anybody knows


def test_an_oracle_forgets_what_is_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle_module, "_MOST_CHOICES", 2)
    oracle = tvm_tile.Oracle("nvidia/h200")
    for name in ("convolutions", "attention", "convolutions"):
        program = program_of(name)
        assert known(oracle(program)) == known(tvm_tile.predict(program, "nvidia/h200"))


def test_inputs_may_have_names_that_python_knows() -> None:
    with torch.device("meta"):
        module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
        x = torch.empty(2, 8)
    report = tvm_tile.predict(module, "nvidia/h200", example_inputs=(x,))
    assert "input" in str(torch.export.export(module, (x,)).graph_signature.user_inputs)
    assert report.predicted_seconds > 0
    assert not report.fallbacks
