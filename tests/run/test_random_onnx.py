"""ONNX's operators that draw random numbers have its distributions, shapes and types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx import helper as oh
from scipy import stats

import tvm_tile
from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.frontend import from_onnx
from tvm_tile.graph.signature import RANDOM

COUNT = 20_000
LIKELY = 1e-4


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, ...]],
    outputs: Mapping[str, int],
    constants: Mapping[str, Any] | None = None,
) -> onnx.ModelProto:
    graph = oh.make_graph(
        list(nodes),
        "draws",
        [oh.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in inputs.items()],
        [oh.make_tensor_value_info(name, dtype, None) for name, dtype in outputs.items()],
        [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()],
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 22)], ir_version=10)


@pytest.fixture(scope="module")
def found() -> dict[str, np.ndarray]:
    """What each operator draws, all of them in one call of one model."""
    shape = {"shape": [COUNT]}
    nodes = [
        oh.make_node("RandomNormal", [], ["normal"], mean=1.0, scale=2.0, seed=3.0, **shape),
        oh.make_node("RandomNormalLike", ["x"], ["normal like"]),
        oh.make_node("RandomUniform", [], ["uniform"], low=-1.0, high=4.0, **shape),
        oh.make_node("RandomUniformLike", ["x"], ["uniform like"], dtype=TensorProto.DOUBLE),
        oh.make_node("Bernoulli", ["chances"], ["bernoulli"], dtype=TensorProto.INT32),
        oh.make_node("Multinomial", ["logits"], ["multinomial"], sample_size=COUNT),
        oh.make_node("Dropout", ["x", "ratio", "trains"], ["dropped", "mask"], seed=4),
    ]
    double, integer = TensorProto.DOUBLE, TensorProto.INT32
    names = [name for node in nodes for name in node.output]
    kinds = {"uniform like": double, "bernoulli": integer, "multinomial": integer}
    kinds["mask"] = TensorProto.BOOL
    outputs = {name: kinds.get(name, TensorProto.FLOAT) for name in names}
    inputs = {"x": (COUNT,), "chances": (COUNT,), "logits": (1, 4)}
    constants = {"ratio": np.float32(0.25), "trains": np.array(True)}
    model = tvm_tile.compile(model_of(nodes, inputs, outputs, constants), "emulated")
    assert [one.name for one in model.inputs] == list(inputs)
    logits = np.array([[0.5, -np.inf, 1.5, 0.0]], np.float32)
    x = np.full(COUNT, 2, np.float32)
    return dict(zip(names, model(x, x * 0.15, logits), strict=True))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("normal", stats.norm(1, 2)),
        ("normal like", stats.norm()),
        ("uniform", stats.uniform(-1, 5)),
        ("uniform like", stats.uniform()),
    ],
)
def test_continuous_distributions(found: dict[str, np.ndarray], name: str, wanted: Any) -> None:
    assert stats.kstest(found[name], wanted.cdf).pvalue > LIKELY
    assert found[name].dtype == ("float64" if name == "uniform like" else "float32")


def test_choices(found: dict[str, np.ndarray]) -> None:
    assert found["bernoulli"].dtype == found["multinomial"].dtype == np.int32
    assert abs(found["bernoulli"].mean() - 0.3) < 0.02
    weights = np.exp([0.5, -np.inf, 1.5, 0.0])
    counts = np.bincount(found["multinomial"][0], minlength=4)
    assert counts[1] == 0
    others = [0, 2, 3]
    wanted = weights[others] / weights.sum() * COUNT
    assert stats.chisquare(counts[others], wanted).pvalue > LIKELY


def test_dropout_in_training(found: dict[str, np.ndarray]) -> None:
    assert abs(found["mask"].mean() - 0.75) < 0.02
    np.testing.assert_allclose(found["dropped"], found["mask"] * (2 / 0.75), rtol=1e-6)


def drawing(**attributes: Any) -> onnx.ModelProto:
    node = oh.make_node("RandomUniformLike", ["x"], ["y"], **attributes)
    return model_of([node], {"x": (100,)}, {"y": TensorProto.FLOAT})


def test_seeds_of_operators_are_part_of_the_key() -> None:
    x = np.zeros(100, np.float32)
    models = [tvm_tile.compile(drawing(**given), "emulated") for given in ({}, {"seed": 1.5})]
    first, other = (model(x) for model in models)
    assert (first != other).any()
    assert (models[0](x) != first).any()
    for model in models:
        model.state.seed(5)
    assert (models[0](x) != first).any()
    assert (models[1](x) != other).any()
    assert models[0].state[RANDOM].numpy().tolist() == [5, 1]


def test_a_branch_draws() -> None:
    """Numbers are drawn in the memory of one call, whichever branch is taken."""
    branches = [
        oh.make_graph(
            [oh.make_node(kind, ["x"], [f"{kind} result"])],
            kind,
            [],
            [oh.make_tensor_value_info(f"{kind} result", TensorProto.FLOAT, [100])],
        )
        for kind in ("RandomUniformLike", "Neg")
    ]
    nodes = [
        oh.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        oh.make_node("Cast", ["sum"], ["is taken"], to=TensorProto.BOOL),
        oh.make_node("If", ["is taken"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    model = tvm_tile.compile(model_of(nodes, {"x": (100,)}, {"y": TensorProto.FLOAT}), "emulated")
    ones, zeros = np.ones(100, np.float32), np.zeros(100, np.float32)
    first, second = model(ones), model(ones)
    assert (model(zeros) == 0).all()
    assert (first != second).any()
    assert (np.abs([first, second]) < 1).all()


def test_draws_in_a_loop_are_refused() -> None:
    body = oh.make_graph(
        [
            oh.make_node("RandomUniformLike", ["v"], ["drawn"]),
            oh.make_node("Add", ["v", "drawn"], ["next"]),
            oh.make_node("ReduceSum", ["next"], ["sum"], keepdims=0),
            oh.make_node("Cast", ["sum"], ["goes on"], to=TensorProto.BOOL),
        ],
        "body",
        [
            oh.make_tensor_value_info("i", TensorProto.INT64, []),
            oh.make_tensor_value_info("c", TensorProto.BOOL, []),
            oh.make_tensor_value_info("v", TensorProto.FLOAT, [4]),
        ],
        [
            oh.make_tensor_value_info("goes on", TensorProto.BOOL, []),
            oh.make_tensor_value_info("next", TensorProto.FLOAT, [4]),
        ],
    )
    nodes = [oh.make_node("Loop", ["most", "", "x"], ["y"], body=body)]
    model = model_of(
        nodes, {"x": (4,)}, {"y": TensorProto.FLOAT}, {"most": np.array(1000, np.int64)}
    )
    with pytest.raises(UnsupportedOperatorError, match="random numbers within a loop"):
        tvm_tile.compile(model, "emulated")


def test_plain_relax_takes_and_returns_the_state() -> None:
    mod = from_onnx(drawing())
    assert [len(mod["main"].params), len(mod["main"].ret_ty.fields)] == [2, 2]
    assert "inplace" not in mod.script()
