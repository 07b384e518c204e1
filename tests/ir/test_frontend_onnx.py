"""ONNX models arrive as Relax operators, or are refused with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import pytest
from onnx import TensorProto

from tests.cpu_build import operators, run
from tvm_tile.errors import (
    DynamicShapeError,
    ModelError,
    ModelFileError,
    UnsupportedOperatorError,
)
from tvm_tile.frontend import import_model
from tvm_tile.frontend.onnx import import_onnx
from tvm_tile.graph.signature import Signature

FLOAT = TensorProto.FLOAT


def onnx_model(
    nodes: list[Any],
    inputs: dict[str, tuple[Any, ...] | None],
    outputs: list[str],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 18,
    dtype: int = FLOAT,
) -> onnx.ModelProto:
    graph = oh.make_graph(
        nodes,
        "net",
        [oh.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [oh.make_tensor_value_info(name, dtype, None) for name in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", opset)], ir_version=9)


def relu(*shape: Any) -> onnx.ModelProto:
    return onnx_model([oh.make_node("Relu", ["x"], ["y"], name="act")], {"x": shape}, ["y"])


class TestOnnx:
    def test_reads_a_file_and_keeps_names(self, tmp_path: Path) -> None:
        onnx.save(relu(2, 3), tmp_path / "small.onnx")
        imported = import_model(tmp_path / "small.onnx")
        assert imported.inputs == (Signature("x", (2, 3), "float32"),)
        assert imported.outputs == (Signature("y", (2, 3), "float32"),)

    def test_takes_a_string_path_and_a_proto(self, tmp_path: Path) -> None:
        onnx.save(relu(2, 3), tmp_path / "small.onnx")
        assert import_model(str(tmp_path / "small.onnx")).inputs == import_model(relu(2, 3)).inputs

    def test_leaves_the_given_proto_alone(self) -> None:
        model = relu("n", 3)
        before = model.SerializeToString()
        import_model(model, inputs={"x": (2, 3)})
        assert model.SerializeToString() == before

    def test_names_that_are_no_identifiers_survive(self) -> None:
        model = onnx_model([oh.make_node("Relu", ["0.x"], ["y/1"])], {"0.x": (2,)}, ["y/1"])
        imported = import_model(model)
        assert (imported.inputs[0].name, imported.outputs[0].name) == ("0.x", "y/1")

    def test_nodes_out_of_order_are_sorted(self) -> None:
        nodes = [
            oh.make_node("Neg", ["b"], ["y"]),
            oh.make_node("Relu", ["a"], ["b"]),
            oh.make_node("Exp", ["x"], ["a"]),
        ]
        imported = import_model(onnx_model(nodes, {"x": (2,)}, ["y"]))
        assert operators(imported) == ["exp", "nn.relu", "negative"]

    def test_an_unused_input_stays_an_input(self) -> None:
        nodes = [oh.make_node("Relu", ["x"], ["y"])]
        imported = import_model(onnx_model(nodes, {"unused": (1,), "x": (2,)}, ["y"]))
        assert [s.name for s in imported.inputs] == ["unused", "x"]
        (output,) = run(imported, np.zeros(1, np.float32), np.array([-1, 1], np.float32))
        np.testing.assert_array_equal(output, [0, 1])

    def test_weights_are_constants_and_shape_arithmetic_is_gone(self) -> None:
        nodes = [
            oh.make_node("Shape", ["x"], ["s"]),
            oh.make_node("Gather", ["s", "zero"], ["n"]),
            oh.make_node("Concat", ["n", "rest"], ["to"], axis=0),
            oh.make_node("Reshape", ["x", "to"], ["flat"]),
            oh.make_node("MatMul", ["flat", "w"], ["y"]),
        ]
        weights = {
            "zero": np.array([0]),
            "rest": np.array([-1]),
            "w": np.arange(8, dtype=np.float32).reshape(4, 2),
        }
        imported = import_model(
            onnx_model(nodes, {"x": ("n", 2, 2)}, ["y"], weights), inputs={"x": (3, 2, 2)}
        )
        assert operators(imported) == ["reshape", "matmul"]
        x = np.ones((3, 2, 2), np.float32)
        np.testing.assert_allclose(run(imported, x)[0], x.reshape(3, 4) @ weights["w"])

    def test_a_constant_branch_is_taken(self) -> None:
        branches = {
            f"{name}_branch": oh.make_graph(
                [oh.make_node(op, ["x"], [name])],
                name,
                [],
                [oh.make_tensor_value_info(name, FLOAT, None)],
            )
            for name, op in (("then", "Neg"), ("else", "Relu"))
        }
        nodes = [oh.make_node("If", ["flag"], ["y"], **branches)]
        model = onnx_model(nodes, {"x": (2,)}, ["y"])
        model.graph.input.append(oh.make_tensor_value_info("flag", TensorProto.BOOL, ()))
        imported = import_onnx(model, constants={"flag": np.array(True)})
        assert [s.name for s in imported.inputs] == ["x"]
        assert operators(imported) == ["negative"]

    @pytest.mark.parametrize("index", [0, 2, -1, -4])
    def test_one_known_index_is_a_slice(self, index: int) -> None:
        nodes = [oh.make_node("Gather", ["x", "i"], ["y"], axis=1)]
        imported = import_model(onnx_model(nodes, {"x": (3, 4, 5)}, ["y"], {"i": np.array(index)}))
        assert operators(imported) == ["strided_slice", "squeeze"]
        x = np.arange(60, dtype="float32").reshape(3, 4, 5)
        np.testing.assert_array_equal(run(imported, x)[0], x[:, index])

    @pytest.mark.parametrize("indices", [[1], [3, -4, 0]])
    def test_other_indices_are_taken(self, indices: list[int]) -> None:
        nodes = [oh.make_node("Gather", ["x", "i"], ["y"], axis=1)]
        imported = import_model(
            onnx_model(nodes, {"x": (3, 4, 5)}, ["y"], {"i": np.array(indices)})
        )
        assert operators(imported) == ["take"]
        x = np.arange(60, dtype="float32").reshape(3, 4, 5)
        np.testing.assert_array_equal(run(imported, x)[0], x[:, indices])

    def test_an_operator_defined_through_others_is_expanded(self) -> None:
        nodes = [oh.make_node("Celu", ["x"], ["y"], alpha=2.0)]
        imported = import_model(onnx_model(nodes, {"x": (4,)}, ["y"]))
        x = np.array([-3, -1, 0, 2], np.float32)
        expected = np.maximum(x, 0) + np.minimum(0, 2 * (np.exp(x / 2) - 1))
        np.testing.assert_allclose(run(imported, x)[0], expected, rtol=1e-6)

    def test_a_form_that_the_converter_refuses_is_expanded(self) -> None:
        nodes = [oh.make_node("Elu", ["x"], ["y"])]
        model = onnx_model(nodes, {"x": (3,)}, ["y"], dtype=TensorProto.FLOAT16)
        x = np.array([-1, 0, 2], np.float16)
        expected = np.where(x > 0, x, np.exp(x) - 1)
        np.testing.assert_allclose(run(import_model(model), x)[0], expected, rtol=2e-3)

    @pytest.mark.parametrize(
        ("attrs", "expected"),
        [
            ({"detect_negative": 0}, [False, True, False]),
            ({"detect_positive": 0}, [True, False, False]),
            ({"detect_positive": 0, "detect_negative": 0}, [False, False, False]),
        ],
    )
    def test_infinities_of_one_sign(self, attrs: dict[str, int], expected: list[bool]) -> None:
        model = onnx_model([oh.make_node("IsInf", ["x"], ["y"], **attrs)], {"x": (3,)}, ["y"])
        model.graph.output[0].type.tensor_type.elem_type = TensorProto.BOOL
        x = np.array([-np.inf, np.inf, 2], np.float32)
        np.testing.assert_array_equal(run(import_model(model), x)[0], expected)

    @pytest.mark.parametrize(("p", "expected"), [(1, [0.375, 0, 0.625]), (2, [0.6, 0, 0.8])])
    def test_normalization_by_a_norm(self, p: int, expected: list[float]) -> None:
        nodes = [oh.make_node("LpNormalization", ["x"], ["y"], p=p)]
        x = np.array([3, 0, 5 if p == 1 else 4], np.float32)
        (output,) = run(import_model(onnx_model(nodes, {"x": (3,)}, ["y"])), x)
        np.testing.assert_allclose(output, expected, rtol=1e-6)

    def test_a_power_of_another_type(self) -> None:
        nodes = [oh.make_node("Pow", ["x", "two"], ["y"])]
        model = onnx_model(nodes, {"x": (2,)}, ["y"], {"two": np.array(2)})
        np.testing.assert_allclose(run(import_model(model), np.float32([3, 4]))[0], [9, 16])

    def test_what_the_importer_would_misread_is_expanded_or_refused(self) -> None:
        nodes = [oh.make_node("LayerNormalization", ["x", "one"], ["y", "mean"])]
        model = onnx_model(nodes, {"x": (2, 3)}, ["mean"], {"one": np.ones(3, np.float32)})
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.testing.assert_allclose(run(import_model(model), x)[0], [[1], [4]])
        nodes = [oh.make_node("SpaceToDepth", ["x"], ["y"], blocksize=2, mode="CRD")]
        with pytest.raises(ModelFileError, match="mode"):  # an attribute of a later version
            import_model(onnx_model(nodes, {"x": (1, 1, 4, 4)}, ["y"]))

    def test_extents_of_zero_are_kept(self) -> None:
        assert import_model(relu(2, 0)).inputs[0].shape == (2, 0)

    @pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
    def test_recurrent_operators(self, kind: str) -> None:
        rng = np.random.default_rng(0)
        gates, hidden, steps = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind], 5, 4
        shapes = {
            "w": (2, gates * hidden, 3),
            "r": (2, gates * hidden, hidden),
            "b": (2, 2 * gates * hidden),
        }
        weights = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
        states = ["", "h", "c"] if kind == "LSTM" else ["", "h"]
        outputs = ["y", "yh", "yc"] if kind == "LSTM" else ["y", "yh"]
        node = oh.make_node(
            kind,
            ["x", "w", "r", "b", *states],
            outputs,
            hidden_size=hidden,
            direction="bidirectional",
        )
        inputs: dict[str, tuple[int, ...] | None] = {"x": (steps, 2, 3)}
        inputs |= {name: (2, 2, hidden) for name in states if name}
        model = onnx_model([node], inputs, outputs, weights)
        arrays = [rng.standard_normal(shape).astype(np.float32) for shape in inputs.values()]
        runtime = pytest.importorskip("onnxruntime")
        session = runtime.InferenceSession(model.SerializeToString())
        expected = session.run(None, dict(zip(inputs, arrays, strict=True)))
        for output, reference in zip(run(import_model(model), *arrays), expected, strict=True):
            np.testing.assert_allclose(output, reference, rtol=1e-4, atol=1e-5)

    def test_shapes_that_data_decide_are_tensors(self) -> None:
        """Whoever reads one; and where a shape is wanted, it is one again."""
        constants = {"i": 1, "k": [1, 0], "one": [1], "two": [2], "c": [True, False], "n": [2, 7]}
        nodes = [
            oh.make_node("NonZero", ["x"], ["places"]),
            oh.make_node("Shape", ["places"], ["s"]),
            oh.make_node("Gather", ["s", "i"], ["count"]),
            oh.make_node("Gather", ["s", "k"], ["turned"]),
            oh.make_node("Slice", ["s", "one", "two"], ["part"]),
            oh.make_node("Mul", ["s", "k"], ["product"]),
            oh.make_node("Equal", ["s", "n"], ["equal"]),
            oh.make_node("Where", ["c", "s", "n"], ["chosen"]),
            oh.make_node("ReduceProd", ["s"], ["all"], keepdims=0),
            oh.make_node("Concat", ["s", "one"], ["longer"], axis=0),
            oh.make_node("Reshape", ["places", "longer"], ["column"]),
            oh.make_node("ConstantOfShape", ["s"], ["zeros"]),
            oh.make_node("Shape", ["places"], ["last"], start=-1),
            oh.make_node("Expand", ["two", "last"], ["spread"]),
        ]
        outputs = [name for node in nodes for name in node.output]
        arrays = {name: np.array(value) for name, value in constants.items()}
        model = onnx_model(nodes, {"x": (2, 3)}, outputs, arrays)
        types = {"equal": TensorProto.BOOL, "zeros": FLOAT}
        for value in model.graph.output:
            value.type.tensor_type.elem_type = types.get(value.name, TensorProto.INT64)
        x = np.array([[0, 1, 2], [3, 0, 0]], np.float32)
        session = pytest.importorskip("onnxruntime").InferenceSession(model.SerializeToString())
        expected = session.run(None, {"x": x})
        for own, wanted in zip(run(import_model(model), x), expected, strict=True):
            np.testing.assert_array_equal(own, wanted)

    def test_half_precision_accumulates_in_float32(self) -> None:
        nodes = [oh.make_node("MatMul", ["x", "w"], ["y"])]
        weights = {"w": np.ones((4096, 1), np.float16)}
        model = onnx_model(nodes, {"x": (1, 4096)}, ["y"], weights, dtype=TensorProto.FLOAT16)
        imported = import_model(model)
        assert imported.outputs[0].dtype == "float16"
        # In float16, 2048 + 1 is 2048.
        assert run(imported, np.ones((1, 4096), np.float16))[0].item() == 4096


class TestOnnxErrors:
    @pytest.mark.parametrize("name", ["missing.onnx", "."])
    def test_no_such_file(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(ModelFileError, match="existing file"):
            import_model(tmp_path / name)

    @pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x07" * 40])
    def test_not_a_model(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "bad.onnx").write_bytes(content)
        with pytest.raises(ModelFileError, match=r"bad\.onnx"):
            import_model(tmp_path / "bad.onnx")

    def test_truncated_file(self, tmp_path: Path) -> None:
        path = tmp_path / "half.onnx"
        data = relu(2, 3).SerializeToString()
        path.write_bytes(data[: len(data) // 2])
        with pytest.raises(ModelFileError):
            import_model(path)

    def test_violates_the_specification(self) -> None:
        nodes = [oh.make_node("Relu", ["nowhere"], ["y"])]
        with pytest.raises(ModelFileError, match="nowhere"):
            import_model(onnx_model(nodes, {"x": (2,)}, ["y"]))

    def test_open_extents_are_named_with_the_remedy(self) -> None:
        with pytest.raises(DynamicShapeError) as caught:
            import_model(relu("batch", 3, None))
        assert "'x' (batch, 3, ?)" in caught.value.current
        assert "inputs={'x': (batch, 3, C)}" in caught.value.remedy
        assert "numbers that suit the model for batch, C" in caught.value.remedy

    def test_open_extents_of_several_inputs_have_a_letter_each(self) -> None:
        model = onnx_model(
            [oh.make_node("Concat", ["x", "y"], ["z"], axis=1)],
            {"x": (2, None), "y": (2, None)},
            ["z"],
        )
        with pytest.raises(DynamicShapeError, match=r"'x': \(2, B\), 'y': \(2, B1\)}"):
            import_model(model)

    def test_unknown_rank(self) -> None:
        model = onnx_model([oh.make_node("Relu", ["x"], ["y"])], {"x": None}, ["y"])
        with pytest.raises(DynamicShapeError, match="unknown rank"):
            import_model(model)
        assert import_model(model, inputs={"x": (2, 5)}).outputs[0].shape == (2, 5)

    def test_a_named_extent_is_settled_for_all_inputs(self) -> None:
        nodes = [oh.make_node("Add", ["a", "b"], ["y"])]
        model = onnx_model(nodes, {"a": ("n", 2), "b": ("n", 2)}, ["y"])
        imported = import_model(model, inputs={"a": (5, 2)})
        assert [s.shape for s in imported.inputs] == [(5, 2), (5, 2)]
        with pytest.raises(ModelError, match="n = 5"):
            import_model(model, inputs={"a": (5, 2), "b": (6, 2)})

    @pytest.mark.parametrize(
        "sizes", [{"z": (2, 3)}, {"x": (2, 3, 4)}, {"x": (2, 4)}, {"x": (-1, 3)}]
    )
    def test_sizes_that_contradict_the_model(self, sizes: dict[str, tuple[int, ...]]) -> None:
        with pytest.raises(ModelError):
            import_model(relu("n", 3), inputs=sizes)

    def test_all_unsupported_operators_at_once_with_their_nodes(self) -> None:
        nodes = [
            oh.make_node("Det", ["x"], ["d"], name="first"),
            oh.make_node("Mystery", ["x"], ["m"], name="second", domain="some.where"),
            oh.make_node("Add", ["d", "m"], ["y"]),
        ]
        model = onnx_model(nodes, {"x": (3, 3)}, ["y"])
        model.opset_import.append(oh.make_opsetid("some.where", 1))
        with pytest.raises(UnsupportedOperatorError) as caught:
            import_model(model)
        assert caught.value.current == "Det (nodes first); some.where::Mystery (nodes second)"

    def test_an_unsupported_form_names_the_node(self, capsys: pytest.CaptureFixture[str]) -> None:
        nodes = [oh.make_node("Reshape", ["x", "to"], ["y"], name="shaper")]
        model = onnx_model(nodes, {"x": (4,)}, ["y"])
        model.graph.input.append(oh.make_tensor_value_info("to", TensorProto.INT64, (2,)))
        model.graph.node.insert(0, oh.make_node("TopK", ["x", "k"], ["v", "i"], name="best"))
        model.graph.input.append(oh.make_tensor_value_info("k", TensorProto.INT64, (1,)))
        model.graph.output.append(oh.make_tensor_value_info("v", FLOAT, None))
        with pytest.raises(UnsupportedOperatorError, match=r"best|shaper"):
            import_model(model)
        assert capsys.readouterr().out == ""
