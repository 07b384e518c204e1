"""Verification finds kernels that are wrong, and what is right passes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import tvm_ffi
from onnx import parser
from tvm import tirx

import tvm_tile
from tvm_tile import pipeline
from tvm_tile.cli import main
from tvm_tile.errors import InputError, VerificationError
from tvm_tile.passes.scheduling.plan_function import Planned, Request
from tvm_tile.verify import compare, tolerance

X = np.random.default_rng(3).standard_normal((5, 12)).astype("float32")
SMALL = """<ir_version: 8, opset_import: ["" : 17]>
small (float[5,12] x, int64[4] at) => (float[5,12] y, float[4,12] rows)
<float scale = {1.5}> {
  soft = Softmax(x)
  scaled = Mul(x, scale)
  y = Add(soft, scaled)
  rows = Gather<axis=0>(soft, at)
}"""


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    onnx.save(parser.parse_model(SMALL), path)
    return path


def plant(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Request], bool]) -> None:
    """Schedules of functions for which ``spoil`` says so multiply by 2.5 instead of 1.5."""
    make_plan = pipeline._plan

    def planting(*args: Any) -> Any:
        plan = make_plan(*args)

        def planned(request: Request) -> Planned:
            own = plan(request)
            return replace(own, func=_with_wrong_factor(own.func)) if spoil(request) else own

        return planned

    monkeypatch.setattr(pipeline, "_plan", planting)


def _with_wrong_factor(func: Any) -> Any:
    def wrong(number: Any) -> Any:
        return tirx.FloatImm(number.ty, 2.5) if number.value == 1.5 else number

    body = tvm_ffi.structural_map(func.body, (tirx.FloatImm, wrong), order="post")
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def compiled(file: Path, **options: Any) -> tvm_tile.CompiledModel:
    chosen = tvm_tile.Options(cache=False, **options)
    return tvm_tile.compile(file, device="emulated", options=chosen)


def test_what_is_right_passes(onnx_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(onnx_file), "--device", "emulated"]) == 0
    text = capsys.readouterr().out
    assert "WRONG" not in text
    assert "kernels agree with what NumPy makes" in text
    assert "against ONNX Runtime" in text


def test_a_wrong_kernel_is_found(
    onnx_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(monkeypatch, lambda request: True)
    found = compiled(onnx_file).verify((X, np.array([0, 4, 2, 0])))
    assert not found.is_right
    wrong = [kernel for kernel in found.kernels if not kernel.comparison.is_right]
    assert len(wrong) == 1
    assert wrong[0].comparison.wrong > 30
    assert [output.comparison.is_right for output in found.outputs] == [False, True]
    assert main(["verify", str(onnx_file), "--device", "emulated"]) == 1
    assert f"WRONG {wrong[0].name}: " in capsys.readouterr().out


def test_a_wrong_kernel_falls_back(onnx_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, lambda request: request.refused is None)
    model = compiled(onnx_file, verify=True)
    assert "its kernel was wrong: " in model.explain("all")
    assert model.verify().is_right


def test_no_right_schedule_is_an_error(onnx_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, lambda request: True)
    with pytest.raises(VerificationError, match="elements differ, at"):
        compiled(onnx_file, verify=True)


def test_modules_are_compared_with_pytorch() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x.argmax(-1), torch.log(x).floor()

    module = Model()
    model = tvm_tile.compile(
        module,
        "emulated",
        example_inputs=(torch.ones(4, 9),),
        options=tvm_tile.Options(cache=False),
    )
    found = model.verify()
    assert found.is_right
    assert found.source == "against PyTorch"
    assert len(found.outputs) == 2
    del module
    gc.collect()
    assert model.verify().source.startswith("not compared: what was compiled is gone")


def test_what_is_no_number_may_come_out() -> None:
    """Compilers take the larger of NaN and 0 for 0."""

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(torch.sqrt(x + 1)) + (x != x.log())

    module, options = Model(), tvm_tile.Options(cache=False)
    example = (torch.ones(4, 9),)
    model = tvm_tile.compile(module, "emulated", example_inputs=example, options=options)
    assert model.verify().is_right


def test_a_loaded_model_has_no_source(onnx_file: Path, tmp_path: Path) -> None:
    compiled(onnx_file).save(tmp_path / "small.tvmtile")
    with pytest.raises(InputError, match="verified where it was compiled"):
        tvm_tile.load(tmp_path / "small.tvmtile").verify()


def test_what_is_compared() -> None:
    wanted = np.array([1.0, np.nan, np.inf, -2.0, 1e-9])
    assert compare(wanted * (1 + 1e-7), wanted, tolerance("float32", 1)).is_right
    assert compare(wanted + 1e-4, wanted, tolerance("float32", 1)).wrong == 3
    assert compare(np.nan_to_num(wanted), wanted, 0.1).wrong == 2
    assert compare(np.full(5, np.nan), wanted, 0.1).wrong == 4
    # A sum that cancels, and a jump, are as the reference itself moves.
    moved = np.array([1.0, np.nan, np.inf, -2.0, 3e-9])
    assert compare(np.array([1.0, np.nan, np.inf, -2.0, 4e-9]), wanted, 1e-12, [moved]).is_right
    indexes = np.array([3, 5])
    assert compare(np.array([3, 6]), indexes, 0.0).wrong == 1
    assert compare(np.array([3, 6]), indexes, 0.0, [np.array([3, 7])]).is_right
