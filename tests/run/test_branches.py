"""Branches, which the virtual machine takes, and functions that write over their arguments."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvm_tile

pytestmark = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")
RNG = np.random.default_rng(0)
X, W = (RNG.standard_normal(shape).astype("float32") * 0.3 for shape in ((4, 8), (8, 8)))


@I.ir_module
class Branches:
    @R.function
    def main(
        c: R.Tensor((), "bool"), x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")
    ) -> R.Tensor((4, 8), "float32"):
        if c:
            t1 = R.matmul(x, w)
            t2 = R.nn.softmax(t1)
            t3 = R.matmul(t2, w)
            y = t3
        else:
            e1 = R.nn.softmax(x)
            e2 = R.matmul(e1, w)
            e3 = R.nn.softmax(e2)
            e4 = R.matmul(e3, w)
            y = e4
        z = R.add(y, x)
        return z


@I.ir_module
class InPlace:
    @T.prim_func(s_tir=True)
    def one_more(a: T.Buffer((T.int64(4), T.int64(8)), "float32")):
        for i, j in T.grid(T.int64(4), T.int64(8)):
            with T.sblock("one_more"):
                v, u = T.axis.remap("SS", [i, j])
                a[v, u] = a[v, u] + T.float32(1)

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor(
        (4, 8), "float32"
    ):
        cls = InPlace
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.tanh(a)
            c = R.call_tir_inplace(
                cls.one_more, (a,), inplace_indices=[0], out_ty=R.Tensor((4, 8), "float32")
            )
            d = R.add(R.matmul(c, w), b)
            R.output(d)
        return d


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_each_branch_has_its_own_values() -> None:
    model = tvm_tile.compile(Branches, "emulated")
    for taken in (True, False):
        y = softmax(X @ W) @ W if taken else softmax(softmax(X) @ W) @ W
        np.testing.assert_allclose(model(np.array(taken), X, W), y + X, rtol=1e-5)


def test_what_writes_in_place_does_so_behind_what_reads() -> None:
    model = tvm_tile.compile(InPlace, "emulated")
    expected = (X @ W + 1) @ W + np.tanh(X @ W)
    np.testing.assert_allclose(model(X, W), expected, rtol=1e-5, atol=1e-6)


def test_what_writes_in_place_is_built_beside_persistent_kernels() -> None:
    model = tvm_tile.compile(InPlace, "nvidia/h200")
    assert any(kernel.name.startswith("one_more") for kernel in model.report.kernels)


def _branch(name: str, nodes: list[Any], outputs: tuple[str, ...]) -> Any:
    kinds = [helper.make_tensor_value_info(o, TensorProto.FLOAT, [4, 8]) for o in outputs]
    return helper.make_graph(nodes, name, [], kinds)


def onnx_model() -> onnx.ModelProto:
    """An If in a branch of an If, each with values of its own and of the graphs around it."""
    node = helper.make_node
    inner = {
        "then_branch": _branch("inner_then", [node("Softmax", ["e1"], ["q1"])], ("q1",)),
        "else_branch": _branch("inner_else", [node("MatMul", ["e1", "w"], ["q2"])], ("q2",)),
    }
    then = [
        node("MatMul", ["x", "w"], ["t1"]),
        node("Relu", ["t1"], ["t2"]),
        node("MatMul", ["t2", "w"], ["t3"]),
    ]
    otherwise = [
        node("Exp", ["x"], ["e1"]),
        node("If", ["c2"], ["e2"], **inner),
        node("Neg", ["x"], ["e3"]),
    ]
    outer = {
        "then_branch": _branch("then", then, ("t3", "t2")),
        "else_branch": _branch("otherwise", otherwise, ("e2", "e3")),
    }
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node("If", ["c"], ["a", "b"], **outer), node("Add", ["a", "b"], ["y"])],
        "branches",
        [
            value("c", TensorProto.BOOL, []),
            value("c2", TensorProto.BOOL, []),
            value("x", TensorProto.FLOAT, [4, 8]),
        ],
        [value("y", TensorProto.FLOAT, [4, 8])],
        [numpy_helper.from_array(W, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_only_the_taken_branch_of_an_onnx_model_runs() -> None:
    proto = onnx_model()
    model, reference = tvm_tile.compile(proto, "emulated"), ReferenceEvaluator(proto)
    for taken, inner in ((True, True), (False, True), (False, False)):
        given = {"c": np.array(taken), "c2": np.array(inner), "x": X}
        (expected,) = reference.run(None, given)
        np.testing.assert_allclose(model(*given.values()), expected, rtol=1e-5, atol=1e-6)
    main = tvm_tile.frontend.import_model(proto, inputs=None, example_inputs=None).mod["main"]
    outermost = [binding.value for block in main.body.blocks for binding in block.bindings]
    assert sum(isinstance(value, tvm.relax.If) for value in outermost) == 1
    assert not any("exp" in str(getattr(value, "op", "")) for value in outermost)
