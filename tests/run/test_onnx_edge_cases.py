"""ONNX nodes whose edge cases TVM's converters get wrong: by value, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_tile

Array = np.ndarray


def run(
    op_type: str, arrays: list[Array], results: int = 1, opset: int = 18, **attributes: Any
) -> Any:
    """Outputs of a model of one node; integer arrays are constants of it."""
    names = [f"x{i}" for i in range(len(arrays))]
    node = helper.make_node(op_type, names, [f"y{i}" for i in range(results)], **attributes)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
        for name, array in zip(names, arrays, strict=True)
        if array.dtype.kind == "f"
    ]
    constants = [
        numpy_helper.from_array(array, name)
        for name, array in zip(names, arrays, strict=True)
        if array.dtype.kind == "i"
    ]
    outputs = [
        helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None) for i in range(results)
    ]
    graph = helper.make_graph([node], "node", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    model = onnx.shape_inference.infer_shapes(model)
    return tvm_tile.compile(model, "emulated")(*[a for a in arrays if a.dtype.kind == "f"])


def test_modulo_has_the_divisors_sign_and_takes_infinite_divisors() -> None:
    x = np.array([-3, 3, -3, 3, 7, -7, 1e20, 6], "float32")
    y = np.array([np.inf, np.inf, -np.inf, -np.inf, -3, 3, 3, -3], "float32")
    assert np.array_equal(run("Mod", [x, y], fmod=0), np.mod(x, y))


def test_modulo_of_the_dividends_sign() -> None:
    x, y = np.array([-7, 7], "float32"), np.array([3, -3], "float32")
    assert np.array_equal(run("Mod", [x, y], fmod=1), np.fmod(x, y))


def test_the_extreme_of_nothing_is_infinite() -> None:
    nothing, axes = np.zeros((2, 0, 3), "float32"), np.array([1])
    assert np.array_equal(run("ReduceMax", [nothing, axes]), np.full((2, 1, 3), -np.inf))
    assert np.array_equal(run("ReduceMin", [nothing], opset=13, keepdims=0), np.inf)


def test_the_extreme_of_something() -> None:
    x = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    assert np.array_equal(run("ReduceMax", [x, np.array([-1])], keepdims=0), x.max(-1))
    none = np.zeros(0, "int64")
    assert np.array_equal(run("ReduceMin", [x, none], noop_with_empty_axes=1), x)


def test_parts_of_a_split_may_be_empty() -> None:
    x = np.arange(10, dtype="float32").reshape(2, 5)
    first, second, third = run("Split", [x, np.array([2, 0, 3])], 3, axis=-1)
    assert second.shape == (2, 0)
    assert np.array_equal(first, x[:, :2])
    assert np.array_equal(third, x[:, 2:])


@pytest.mark.parametrize("auto_pad", ["NOTSET", "VALID"])
def test_a_windows_count_that_is_read_from_its_shape(auto_pad: str) -> None:
    """A window that would begin behind the tensor is none, which ONNX's own inference counts."""
    nodes = [
        helper.make_node(
            "MaxPool",
            ["x"],
            ["pooled"],
            kernel_shape=[1, 2],
            strides=[2, 2],
            ceil_mode=1,
            auto_pad=auto_pad,
        ),
        helper.make_node("Size", ["pooled"], ["count"]),
        helper.make_node("Cast", ["count"], ["y"], to=TensorProto.FLOAT),
        helper.make_node("Shape", ["pooled"], ["shape"]),
        helper.make_node("Reshape", ["pooled", "shape"], ["z"]),
    ]
    x = np.random.default_rng(0).normal(size=(1, 1, 4, 5)).astype("float32")
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yz"]
    graph = helper.make_graph(nodes, "nodes", [given], made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    count, pooled = tvm_tile.compile(model, "emulated")(x)
    assert count == 6
    wide = np.pad(x, ((0, 0), (0, 0), (0, 0), (0, 1)), constant_values=-np.inf)
    assert np.array_equal(pooled, wide[:, :, ::2].reshape(1, 1, 2, 3, 2).max(-1))


@pytest.mark.parametrize("at", [0, 1, 2])
def test_the_last_part_of_a_sequence_is_shorter(at: int) -> None:
    """Nine rows in fours: TVM's importer makes threes of them."""
    nodes = [
        helper.make_node("SplitToSequence", ["x", "size"], ["parts"]),
        helper.make_node("SequenceAt", ["parts", "at"], ["y"]),
    ]
    constants = [
        numpy_helper.from_array(np.array(value), name) for name, value in (("size", 4), ("at", at))
    ]
    x = np.arange(18, dtype="float32").reshape(9, 2)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "nodes", [given], [made], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    found = tvm_tile.compile(model, "emulated")(x)
    assert np.array_equal(found, x[4 * at : 4 * at + 4])


def test_a_shape_that_is_given_at_run_time_is_refused() -> None:
    node = helper.make_node("ConstantOfShape", ["shape"], ["y"])
    given = helper.make_tensor_value_info("shape", TensorProto.INT64, [3])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 3)
    graph = helper.make_graph([node], "node", [given], [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    with pytest.raises(tvm_tile.UnsupportedOperatorError, match="broadcast_to") as caught:
        tvm_tile.compile(model, "emulated")
    assert "constant" in caught.value.remedy
