"""A model of open extents: timed, verified, saved, and on the command line; emulated."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import tvm_tile
from tvm_tile import InputError, Open
from tvm_tile.cli import main
from tvm_tile.graph.open_extents import Symbol
from tvm_tile.graph.signature import OpenAxis, Signature
from tvm_tile.runtime.extents import settled
from tvm_tile.runtime.manifest import manifest_text, members_of, parse_manifest
from tvm_tile.runtime.random_inputs import random_inputs

WEIGHTS = np.arange(32, dtype="float32").reshape(4, 8) / 32


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Means of rows that a product makes, less these rows: kernels ask for ``rows`` itself."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "weights"], ["product"]),
            helper.make_node("ReduceMean", ["product"], ["mean"], axes=[0]),
            helper.make_node("Sub", ["product", "mean"], ["y"]),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 8])],
        [numpy_helper.from_array(WEIGHTS, "weights")],
    )
    opsets = [helper.make_opsetid("", 17)]
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def model(onnx_file: Path) -> tvm_tile.CompiledModel:
    found: tvm_tile.CompiledModel = tvm_tile.compile(
        onnx_file, "emulated", inputs={"x": (Open(2, 32, step=2), 4)}
    )
    return found


@pytest.fixture(scope="module")
def saved(model: tvm_tile.CompiledModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "small.tvmtile"
    model.save(path)
    return path


def expected(x: np.ndarray) -> np.ndarray:
    product = x @ WEIGHTS
    result: np.ndarray = product - product.mean(0)
    return result


class TestTime:
    def test_random_inputs_are_of_the_extents_that_are_named(
        self, model: tvm_tile.CompiledModel
    ) -> None:
        assert len(model.time(repeats=2, extents={"rows": 4}).samples) == 2
        assert model.time(repeats=1, extents={}).median_s > 0
        assert [a.shape for a in random_inputs(settled(model.inputs, {"rows": 4}))] == [(4, 4)]
        assert [a.shape for a in random_inputs(settled(model.inputs, {}))] == [(32, 4)]

    @pytest.mark.parametrize("value", [34, 0, 3, 4.0, "4", True, None])
    def test_a_value_out_of_range_is_refused(
        self, model: tvm_tile.CompiledModel, value: Any
    ) -> None:
        with pytest.raises(InputError, match=r"rows from 2 to 32 in steps of 2[\s\S]*rows = "):
            model.time(extents={"rows": value})

    def test_an_unknown_name_is_refused(self, model: tvm_tile.CompiledModel) -> None:
        with pytest.raises(InputError, match=r"rows from 2 to 32[\s\S]*'columns'"):
            model.time(extents={"columns": 4})

    def test_extents_are_in_the_place_of_inputs(self, model: tvm_tile.CompiledModel) -> None:
        with pytest.raises(InputError, match="inputs were given, too"):
            model.time(np.ones((4, 4), "float32"), extents={"rows": 4})
        assert model.time(repeats=1).median_s > 0  # with the greatest extents


class TestVerify:
    def test_kernels_and_outputs_are_compared_at_several_values(
        self, model: tvm_tile.CompiledModel
    ) -> None:
        found = model.verify()
        assert found.is_right, found.render()
        assert not any(check.missing for check in found.kernels)
        names = [check.name for check in found.outputs]
        assert names == ["y at rows = 32", "y at rows = 2", "y at rows = 12"]

    def test_inputs_may_be_given(self, model: tvm_tile.CompiledModel) -> None:
        found = model.verify([np.ones((6, 4), "float32")])
        assert [check.name for check in found.outputs] == ["y"]
        assert found.is_right

    def test_options_verify_while_it_is_compiled(self, onnx_file: Path) -> None:
        options = tvm_tile.Options(verify=True)
        sizes: Any = {"x": (Open(2, 8), 4)}
        verified = tvm_tile.compile(onnx_file, "emulated", inputs=sizes, options=options)
        x = np.random.default_rng(0).standard_normal((5, 4)).astype("float32")
        np.testing.assert_allclose(verified(x), expected(x), rtol=1e-4, atol=1e-6)


def with_symbol(**changes: Any) -> Callable[[Signature], Signature]:
    """What changes the first symbol of a signature."""

    def change(signature: Signature) -> Signature:
        (axis,) = signature.open_axes
        assert axis.symbol is not None
        changed = replace(axis, symbol=replace(axis.symbol, **changes))
        return replace(signature, open_axes=(changed,))

    return change


def with_axes(*axes: OpenAxis) -> Callable[[Signature], Signature]:
    return lambda signature: replace(signature, open_axes=axes)


ROWS = Symbol("rows", 2, 32, 2)


class TestSaved:
    def test_a_loaded_model_is_as_the_saved_one(
        self, model: tvm_tile.CompiledModel, saved: Path
    ) -> None:
        loaded = tvm_tile.load(saved)
        assert (loaded.inputs, loaded.outputs) == (model.inputs, model.outputs)
        for rows in (32, 2, 14):
            x = np.random.default_rng(rows).standard_normal((rows, 4)).astype("float32")
            np.testing.assert_allclose(loaded(x), expected(x), rtol=1e-4, atol=1e-6)
        with pytest.raises(InputError, match="rows = 3"):
            loaded(np.ones((3, 4), "float32"))
        assert "open extent rows from 2 to 32 in steps of 2" in loaded.explain("all")

    @pytest.mark.parametrize(
        "change",
        [
            with_symbol(low=0),
            with_symbol(low=32),
            with_symbol(high=64),
            with_symbol(high=16),
            with_symbol(step=0),
            with_symbol(step=-2),
            with_symbol(step=4),
            with_axes(OpenAxis(0, "rows")),
            with_axes(OpenAxis(2, "rows", ROWS)),
            with_axes(OpenAxis(-2, "rows", ROWS)),
            with_axes(OpenAxis(0, "rows", ROWS), OpenAxis(0, "rows", ROWS)),
            with_axes(OpenAxis(0, "rows", ROWS), OpenAxis(1, "rows", Symbol("rows", 1, 4))),
        ],
    )
    def test_what_no_model_has_is_refused(
        self, model: tvm_tile.CompiledModel, change: Callable[[Signature], Signature]
    ) -> None:
        entry = model.saved_entry(state=False)
        forged = replace(entry, inputs=tuple(map(change, entry.inputs)))
        whole = tvm_tile.runtime.manifest.SavedModel(model.device_name, {"": forged})
        with pytest.raises(ValueError, match="open extent"):
            parse_manifest(json.loads(manifest_text(whole, members_of(whole))))


class TestCommandLine:
    def test_ranges_go_in_and_extents_are_chosen(
        self, onnx_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "m.tvmtile"
        words = ["compile", str(onnx_file), "--device", "emulated", "-o", str(path)]
        assert main([*words, "--input", "x=[n=1:9]x4"]) == 0
        capsys.readouterr()
        assert main(["run", str(path)]) == 0
        assert capsys.readouterr().out.startswith("y: float32 9x8, ")
        assert main(["run", str(path), "--extent", "n=3", "--time"]) == 0
        out = capsys.readouterr().out
        assert out.startswith("y: float32 3x8, ")
        assert "one call" in out
        assert main(["explain", str(path)]) == 0
        assert "open extent n from 1 to 9" in capsys.readouterr().out

    def test_models_that_are_not_saved_take_them_too(
        self, onnx_file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = [str(onnx_file), "--device", "emulated", "--input", "x=[2:32:2]x4"]
        assert main(["verify", *words]) == 0
        assert "right  y at rows = 2" in capsys.readouterr().out
        assert main(["schedule", *words]) == 0
        assert "extent0_rows" in capsys.readouterr().out

    def test_what_is_wrong_is_told(
        self, onnx_file: Path, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        np.save(tmp_path / "x.npy", np.ones((4, 4), "float32"))
        whole = ["run", str(saved), "--extent"]
        for words, message in (
            ([*whole, "rows=3"], "rows = 3"),
            ([*whole, "n=4"], "'n'"),
            ([*whole, "rows=4", "--input-file", str(tmp_path / "x.npy")], "leave one of them out"),
            (
                ["run", str(onnx_file), "--device", "emulated", "--input", "x=[9:1]x4"],
                "'x' has 9 to 1",
            ),
        ):
            assert main(words) == 2
            assert message in capsys.readouterr().err


def test_an_entry_of_one_extent_lies_beside_an_open_one() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).eval()
    rows = torch.export.Dim("rows", min=2, max=16)
    exported = {
        "one": torch.export.export(module, (torch.zeros(1, 64),)),
        "any": torch.export.export(module, (torch.zeros(4, 64),), dynamic_shapes=({0: rows},)),
    }
    entries = tvm_tile.compile(exported, "emulated", options=tvm_tile.Options(cache=False))
    for count in (1, 2, 9, 16):
        x = torch.randn(count, 64)
        with torch.no_grad():
            expected = module(x)
        torch.testing.assert_close(entries["one" if count == 1 else "any"](x), expected)
