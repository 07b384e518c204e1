"""ONNX models that contradict themselves, or that a few bytes make huge, are refused by name."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import pytest
from onnx import TensorProto, numpy_helper

from bench.mutate_onnx import make_judge
from tests.cpu_build import run
from tvm_tile.errors import (
    DynamicShapeError,
    ModelError,
    ModelFileError,
    TileError,
    UnsupportedOperatorError,
)
from tvm_tile.frontend import import_model

FLOAT = TensorProto.FLOAT


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, tuple[Any, ...]],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 18,
) -> onnx.ModelProto:
    """A model whose output is ``y``."""
    graph = oh.make_graph(
        list(nodes),
        "net",
        [oh.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [oh.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", opset)], ir_version=9)


def test_mutated_models_are_refused_by_name_or_right() -> None:
    pytest.importorskip("onnxruntime")
    judge = make_judge("cpu", limit_memory=False)
    verdicts = {seed: judge(str(seed)) for seed in range(60)}
    wrong = {s: v for s, v in verdicts.items() if v[0] in ("wrong", "untyped")}
    assert not wrong
    assert {status for status, _ in verdicts.values()} >= {"refused", "right"}


@pytest.mark.parametrize(
    ("node", "constants"),
    [
        (oh.make_node("ConstantOfShape", ["a"], ["b"]), {"a": np.array([10**6, 10**6])}),
        (
            oh.make_node("Range", ["a", "b_", "c"], ["b"]),
            {"a": np.float32(0), "b_": np.float32(1e11), "c": np.float32(1)},
        ),
        (
            oh.make_node("Expand", ["x", "a"], ["b"]),
            {"a": np.array([10**4, 10**4, 10**4, 3])},
        ),
        (oh.make_node("Tile", ["x", "a"], ["b"]), {"a": np.array([10**12])}),
    ],
    ids=lambda value: value.op_type if isinstance(value, onnx.NodeProto) else "",
)
def test_a_tensor_that_no_gpu_could_hold(
    node: onnx.NodeProto, constants: dict[str, np.ndarray]
) -> None:
    nodes = [node, oh.make_node("ReduceSum", ["b"], ["y"], keepdims=0)]
    constants = {name: np.asarray(array) for name, array in constants.items()}
    with pytest.raises(ModelError, match="GiB"):
        import_model(model_of(nodes, {"x": (3,)}, constants))


def test_the_values_of_a_huge_vector_are_not_propagated() -> None:
    """ONNX's shape inference would make its 2^31 elements one by one."""
    inputs = [
        oh.make_tensor_value_info("x", FLOAT, (3, 5)),
        oh.make_tensor_value_info("t", TensorProto.INT64, (2**31,)),
    ]
    node = oh.make_node("NegativeLogLikelihoodLoss", ["x", "t"], ["y"], reduction="none")
    model = model_of([node], {}, opset=13)
    model.graph.input.extend(inputs)
    with pytest.raises(TileError):
        import_model(model)


def doubling(levels: int) -> onnx.ModelProto:
    """Functions each of which calls the one before twice."""
    opsets = [oh.make_opsetid("", 18), oh.make_opsetid("own", 1)]
    model = model_of([oh.make_node(f"f{levels}", ["x"], ["y"], domain="own")], {"x": (3,)})
    for level in range(levels + 1):
        inner, domain = (f"f{level - 1}", "own") if level else ("Abs", "")
        nodes = [oh.make_node(inner, [a], [b], domain=domain) for a, b in (("a", "b"), ("b", "c"))]
        model.functions.append(oh.make_function("own", f"f{level}", ["a"], ["c"], nodes, opsets))
    model.opset_import.append(opsets[1])
    return model


def test_functions_that_double_themselves() -> None:
    (output,) = run(import_model(doubling(2)), np.float32([-1, 0, 2]))
    np.testing.assert_array_equal(output, [1, 0, 2])
    with pytest.raises(ModelError, match="200,000 nodes"):
        import_model(doubling(30))
    model = doubling(1)
    model.functions[0].node[0].op_type, model.functions[0].node[0].domain = "f1", "own"
    with pytest.raises(ModelFileError, match=r"call itself|recursive"):
        import_model(model)


def recurrent(**attrs: Any) -> onnx.ModelProto:
    weights = {"w": np.ones((1, 8, 3), "float32"), "r": np.ones((1, 8, 2), "float32")}
    node = oh.make_node("LSTM", ["x", "w", "r"], ["y"], **attrs)
    return model_of([node], {"x": (2, 1, 3)}, weights)


def training() -> onnx.ModelProto:
    node = oh.make_node("Dropout", ["x"], ["y"], is_test=0)
    return model_of([node], {"x": (3,)}, opset=6)


def indexed(index: int) -> onnx.ModelProto:
    node = oh.make_node("Gather", ["x", "i"], ["y"])
    return model_of([node], {"x": (3,)}, {"i": np.array([0, index])})


def grid() -> onnx.ModelProto:
    node = oh.make_node("AffineGrid", ["x", "size"], ["y"], align_corners=1)
    return model_of([node], {"x": (1, 2, 3)}, {"size": np.array([1, 1, 1, 4])}, opset=20)


def relu_of(opset: int) -> onnx.ModelProto:
    return model_of([oh.make_node("Relu", ["x"], ["y"])], {"x": (3,)}, opset=opset)


def nonsense_name() -> onnx.ModelProto:
    return onnx.ModelProto.FromString(
        relu_of(18).SerializeToString().replace(b"Relu", b"Re\xff\xfe")
    )


def sequence() -> onnx.ModelProto:
    model = model_of([oh.make_node("SequenceConstruct", ["x"], ["y"])], {"x": (3,)})
    model.graph.output[0].CopyFrom(oh.make_tensor_sequence_value_info("y", FLOAT, [3]))
    return model


def split(*sizes: int, outputs: int, opset: int = 18) -> onnx.ModelProto:
    """Of five elements; without sizes into equal parts."""
    names = ["y", *(f"y{number}" for number in range(1, outputs))]
    if not sizes:
        count = {"num_outputs": outputs} if opset >= 18 else {}
        return model_of([oh.make_node("Split", ["x"], names, **count)], {"x": (5,)}, opset=opset)
    node = oh.make_node("Split", ["x", "sizes"], names)
    return model_of([node], {"x": (5,)}, {"sizes": np.array(sizes)}, opset=opset)


def cumulative(axis: int) -> onnx.ModelProto:
    node = oh.make_node("CumSum", ["x", "axis"], ["y"])
    return model_of([node], {"x": (3, 4)}, {"axis": np.array(axis)})


def resized(axis: int) -> onnx.ModelProto:
    node = oh.make_node("Resize", ["x", "", "scales"], ["y"], axes=[axis])
    return model_of([node], {"x": (3, 4)}, {"scales": np.array([2.0], "float32")})


@pytest.mark.parametrize(
    ("model", "error", "reason"),
    [
        (cumulative(2), UnsupportedOperatorError, "axis 2"),
        (cumulative(-3), UnsupportedOperatorError, "axis -3"),
        (resized(2), UnsupportedOperatorError, "axes 2"),
        (split(2, 2, outputs=2), UnsupportedOperatorError, "parts"),
        (split(6, -1, outputs=2), UnsupportedOperatorError, "parts"),
        (split(5, 0, outputs=3), UnsupportedOperatorError, "2 parts for 3 outputs"),
        (split(outputs=4), UnsupportedOperatorError, "parts"),
        (split(outputs=2, opset=13), UnsupportedOperatorError, "equal parts"),
        (relu_of(99), ModelFileError, "99"),
        (recurrent(hidden_size=5), UnsupportedOperatorError, "hidden_size 5"),
        (recurrent(direction="bidirectional"), UnsupportedOperatorError, "direction"),
        (grid(), UnsupportedOperatorError, "align_corners"),
        (training(), UnsupportedOperatorError, "at random"),
        (indexed(3), UnsupportedOperatorError, "outside of 3"),
        (indexed(-4), UnsupportedOperatorError, "outside of 3"),
        (nonsense_name(), ModelFileError, "UTF-8"),
        (sequence(), ModelError, "sequence"),
        (model_of([oh.make_node("Not", ["x"], ["y"])], {"x": (3,)}), ModelFileError, "type"),
        (
            model_of([oh.make_node("Cast", ["x"], ["y"], to=TensorProto.INT32)], {"x": (3,)}),
            ModelFileError,
            "listed with element type 1",
        ),
    ],
)  # fmt: skip
def test_what_contradicts_itself(
    model: onnx.ModelProto, error: type[TileError], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        import_model(model)


def test_every_question_mark_is_an_extent_of_its_own() -> None:
    nodes = [oh.make_node("Relu", ["x"], ["y"])]
    model = model_of(nodes, {"x": ("?", 3, "?", "?")})
    assert import_model(model, inputs={"x": (1, 3, 2, 5)}).outputs[0].shape == (1, 3, 2, 5)
    with pytest.raises(DynamicShapeError) as caught:
        import_model(model)
    assert "inputs={'x': (N, 3, H, W)}" in caught.value.remedy
    assert "numbers that suit the model for N, H, W" in caught.value.remedy


def test_standard_output_stays_what_it_is() -> None:
    """Nothing that an import does is for the whole process."""
    stdout, seen = sys.stdout, set()
    refused = training()

    def work() -> None:
        for _ in range(3):
            with pytest.raises(TileError):
                import_model(refused)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        seen.add(sys.stdout)
        threads[0].join(0.0005)
    assert seen <= {stdout}
