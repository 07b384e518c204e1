"""Sizes that are taken for what a model leaves open and its user says nothing of."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch.export import Dim
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_tile
from tvm_tile.errors import DynamicShapeError
from tvm_tile.frontend import all_sizes as sizes_of_read
from tvm_tile.frontend import read_model
from tvm_tile.frontend.declared import Completed
from tvm_tile.graph.open_extents import Open

Shape = tuple[int | str, ...]


def model_of(
    operator: str,
    shape: Shape,
    *constants: np.ndarray,
    metadata: dict[str, str] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one operator on an input ``x``, behind which come constants."""
    names = [f"c{number}" for number in range(len(constants))]
    last = helper.make_node(operator, ["r", *names], ["y"], name="node", **attributes)
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"]), last],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(c, name) for c, name in zip(constants, names, strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, metadata or {})
    return model


def floats(*shape: int) -> np.ndarray:
    return np.ones(shape, "float32")


def all_sizes(model: Any, sizes: Any, batch: int | None = None) -> Completed:
    return sizes_of_read(read_model(model), sizes, batch)


def taken(model: Any, sizes: Any = None) -> dict[str, Any]:
    return dict(all_sizes(model, sizes or {}).sizes)


class TestBatches:
    @pytest.mark.parametrize(
        "shape",
        [
            ("batch", 4),
            ("N", 4),
            ("unk__614", 4),
            ("dim_0", 4),
            ("?", 4),
            (None, 4),
            (-1, 4),
            (4, "batch_size"),
            (4, "N"),
        ],
    )
    def test_one_is_taken(self, shape: Any) -> None:
        assert sorted(taken(relu(shape))["x"]) == [1, 4]

    @pytest.mark.parametrize(
        "shape", [("sequence", 4), ("H", 4), (4, "n"), (4, "?"), ("batch*tokens", 4), (3, "height")]
    )
    def test_what_may_be_no_batch_is_asked_for(self, shape: Shape) -> None:
        with pytest.raises(DynamicShapeError, match="numbers that suit the model"):
            taken(relu(shape))

    def test_a_note_says_input_axis_value_and_how_to_say_another(self) -> None:
        (note,) = all_sizes(relu(("batch", 3, 5)), {}).notes
        assert re.search(r"'x' .*inputs=\{'x': \(1, 3, 5\)\}", note)
        assert "axis 0 (batch) is 1, taken for a batch" in note
        assert not all_sizes(relu(("batch", 3)), {"x": (2, 3)}).notes

    def test_inputs_that_share_it_are_told_once(self) -> None:
        model = onnx.ModelProto()
        model.CopyFrom(relu(("batch", 3)))
        other = helper.make_tensor_value_info("other", TensorProto.FLOAT, ("batch", 5))
        model.graph.input.append(other)
        found = all_sizes(model, {})
        assert found.sizes == {"x": (1, 3), "other": (1, 5)}
        assert len(found.notes) == 1
        assert all_sizes(model, {"other": (7, 5)}).sizes["x"] == (7, 3)

    def test_others_may_have_a_range(self) -> None:
        found = all_sizes(two_inputs(), {"x": (Open(1, 9), 3)})
        assert found.sizes["other"] == (1, 5)

    @pytest.mark.parametrize(
        ("shape", "sizes", "expected"),
        [
            (("batch", 4), {}, (8, 4)),
            (("N", 4), {"x": (Open(1, 9), 4)}, (8, 4)),
            ((4, "rows"), {"x": (4, Open(1, 9))}, (4, 8)),  # the only range
            (("batch", "tokens"), {"x": (Open(1, 9), Open(1, 7))}, (8, Open(1, 7))),
        ],
    )
    def test_one_that_is_asked_for_is_taken(
        self, shape: Shape, sizes: Any, expected: tuple[Any, ...]
    ) -> None:
        found = all_sizes(relu(shape), sizes, 8)
        assert found.is_batched
        extents = [
            replace(one, name="") if isinstance(one, Open) else one for one in found.sizes["x"]
        ]
        assert tuple(extents) == expected
        assert not found.notes

    @pytest.mark.parametrize(
        ("shape", "sizes"),
        [
            ((3, 4), {}),
            (("batch", 4), {"x": (3, 4)}),
            (("height", "width"), {"x": (Open(1, 9), Open(1, 7))}),  # either
            (("batch", "tokens"), {"x": (3, Open(1, 9))}),  # the batch is three
        ],
    )
    def test_where_there_is_none_it_is_not_taken(self, shape: Shape, sizes: Any) -> None:
        assert not all_sizes(relu(shape), sizes, 8).is_batched

    def test_all_inputs_have_the_one_that_is_asked_for(self) -> None:
        found = all_sizes(two_inputs(), {}, 8)
        assert found.sizes == {"x": (8, 3), "other": (8, 5)}
        found = all_sizes(tvm_tile.together({"a": relu(("n", 3)), "b": two_inputs()}), {}, 8)
        assert found.is_batched
        assert found.sizes == {"x": (8, 3), "other": (8, 5)}

    def test_one_beyond_its_range_is_refused(self) -> None:
        with pytest.raises(DynamicShapeError, match="batch must lie within"):
            all_sizes(relu(("batch", 4)), {"x": (Open(2, 6, step=2), 4)}, 3)


def relu(shape: Any) -> onnx.ModelProto:
    model = model_of("Relu", (1,))
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    model.graph.input[0].CopyFrom(value)
    return model


def two_inputs() -> onnx.ModelProto:
    model = relu(("rows", 3))
    model.graph.input.append(helper.make_tensor_value_info("other", TensorProto.FLOAT, ("b", 5)))
    return model


class TestOperators:
    @pytest.mark.parametrize(
        ("model", "expected"),
        [
            (model_of("Conv", (1, "c", 8, 8), floats(6, 2, 3, 3), group=2), (1, 4, 8, 8)),
            (model_of("ConvTranspose", (1, "c", 8, 8), floats(6, 2, 3, 3)), (1, 6, 8, 8)),
            (model_of("MatMul", ("batch", 5, "k"), floats(7, 2)), (1, 5, 7)),
            (model_of("Gemm", ("batch", "k"), floats(2, 7), transB=1), (1, 7)),
            (model_of("Gemm", ("k", "batch"), floats(7, 2), transA=1), (7, 1)),
            (model_of("InstanceNormalization", ("n", "c", 4), floats(3), floats(3)), (1, 3, 4)),
            (model_of("LayerNormalization", ("n", 2, "d"), floats(6)), (1, 2, 6)),
            (model_of("Add", ("n", "tokens", 4), floats(1, 9, 1)), (1, 9, 4)),
            (model_of("Reshape", ("n", 1, "h", "w"), np.array([-1, 784])), (1, 1, 28, 28)),
            (model_of("Reshape", (1, "c", 7), np.array([3, 14])), (1, 6, 7)),
            (model_of("Reshape", ("n", "c", 7), np.array([0, 2, 21])), (1, 6, 7)),
        ],
        ids=lambda one: one.graph.node[1].op_type if isinstance(one, onnx.ModelProto) else "",
    )
    def test_an_extent_is_what_its_weights_need(
        self, model: onnx.ModelProto, expected: tuple[int, ...]
    ) -> None:
        found = all_sizes(model, {})
        assert found.sizes == {"x": expected}
        assert "node 'node'" in found.notes[0]

    @pytest.mark.parametrize(
        ("model", "unknown"),
        [
            (model_of("Conv", (1, "c", "h", 8), floats(6, 2, 3, 3)), "h"),
            (model_of("Reshape", (1, "h", 7), np.array([-1, 14])), "h"),
            (model_of("Reshape", ("n", "h", 5), np.array([-1, 14])), "h"),
            (model_of("Reshape", ("n", "h", "w"), np.array([-1, 15])), "h, w"),
            (model_of("Reshape", ("n", "h"), np.array([-1])), "h"),
            (model_of("Reshape", ("n", "h", 768), np.array([-1, 768])), "h"),
            (model_of("Reshape", ("n", "h", 7), np.array([0, -1, 21])), "h"),
        ],
    )
    def test_what_nothing_needs_is_asked_for(self, model: onnx.ModelProto, unknown: str) -> None:
        with pytest.raises(DynamicShapeError, match=f"the model for {unknown};"):
            taken(model)

    def test_a_transposed_input_is_followed(self) -> None:
        model = model_of("MatMul", ("k", "batch"), floats(7, 2))
        model.graph.node[0].CopyFrom(helper.make_node("Transpose", ["x"], ["r"], perm=[1, 0]))
        assert taken(model) == {"x": (7, 1)}

    @pytest.mark.parametrize(
        ("first", "last"),
        [
            (("Transpose", {"perm": [7, 0]}), ("MatMul", floats(7, 2))),
            (("Transpose", {"perm": [0, 0]}), ("MatMul", floats(7, 2))),
            (("Relu", {}), ("Conv", floats(7))),
            (("Relu", {}), ("Reshape", np.array([-1, -1]))),
            (("Relu", {}), ("Add", floats(2, 3, 1, 1))),
        ],
    )
    def test_what_is_no_right_model_is_left_to_the_import(self, first: Any, last: Any) -> None:
        operator, attributes = first
        model = model_of(last[0], ("k", "height"), last[1])
        model.graph.node[0].CopyFrom(helper.make_node(operator, ["x"], ["r"], **attributes))
        with pytest.raises(DynamicShapeError):
            taken(model)


class TestMetadata:
    @pytest.mark.parametrize(
        ("shape", "metadata", "expected"),
        [
            (("batch", 3, "height", "width"), {"imgsz": "[320, 640]"}, (1, 3, 320, 640)),
            (("batch", "height", "width", 3), {"imgsz": "320"}, (1, 320, 320, 3)),
            (("batch", "tokens"), {"tokens": "128", "batch": "2"}, (2, 128)),
        ],
    )
    def test_sizes_are_read(
        self, shape: Shape, metadata: dict[str, str], expected: tuple[int, ...]
    ) -> None:
        found = all_sizes(model_of("Relu", shape, metadata=metadata), {})
        assert found.sizes == {"x": expected}
        assert "as its metadata" in found.notes[0]

    @pytest.mark.parametrize(
        "text", ["", "[1]", "[0, 3]", "many", "0", "-3", '{"a": 1}', "[true, true]"]
    )
    def test_what_is_no_size_is_left(self, text: str) -> None:
        with pytest.raises(DynamicShapeError, match="height, width"):
            taken(model_of("Relu", ("n", 3, "height", "width"), metadata={"imgsz": text}))


class Product(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y


class TestOtherDoors:
    def test_a_program_has_its_example(self) -> None:
        examples, dims = (torch.zeros(5, 4), torch.zeros(4, 7)), ({0: Dim("m")}, {1: Dim.DYNAMIC})
        program = torch.export.export(Product(), examples, dynamic_shapes=dims)
        saved = io.BytesIO()
        torch.export.save(program, saved)
        for one in (program, torch.export.load(io.BytesIO(saved.getvalue()))):
            found = all_sizes(one, {})
            assert found.sizes == {"x": (1, 4), "y": (4, 7)}
            assert "as in the example" in found.notes[1]
        assert all_sizes(program, {"y": (4, 3)}).sizes == {"x": (1, 4), "y": (4, 3)}

    def test_a_range_of_the_program_stays_one(self) -> None:
        examples, dims = (torch.zeros(5, 4), torch.zeros(4, 7)), ({0: Dim("m", max=9)}, None)
        program = torch.export.export(Product(), examples, dynamic_shapes=dims)
        found = all_sizes(program, {})
        assert isinstance(found.sizes["x"][0], Open)
        assert not found.notes

    def test_relax(self) -> None:
        @I.ir_module
        class Rows:
            @R.function
            def main(x: R.Tensor(("n", 16), "float32")):
                return R.nn.softmax(x)

        assert taken(Rows) == {"x": (1, 16)}

    def test_relay(self) -> None:
        text = '#[version = "0.0.5"]\ndef @main(%x: Tensor[({}), float32]) {{ nn.relu(%x) }}'
        assert taken(tvm_tile.RelayText(text.format("?, 16"))) == {"x": (1, 16)}
        with pytest.raises(DynamicShapeError, match="'x': \\(1, B\\)"):
            taken(tvm_tile.RelayText(text.format("?, ?")))


def test_a_compiled_model_tells(tmp_path: Path) -> None:
    onnx.save(relu(("batch", 4)), tmp_path / "small.onnx")
    model = tvm_tile.compile(tmp_path / "small.onnx", "emulated")
    assert model.inputs[0].shape == (1, 4)
    assert "taken for a batch" in str(model.explain())
    assert model.verify().is_right
