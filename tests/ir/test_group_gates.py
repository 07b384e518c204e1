"""Recurrent cells become one function each, before and after; what they compute stays the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from cpu_build import run
from emulated import arguments, emulated_error
from gates_cases import constant, lstm, times
from onnx import helper as oh
from scheduled import relax_module
from tvm import relax, tirx
from tvm.relax import op
from warp_emulator import COMPILER

from tvm_tile.device import find_device
from tvm_tile.frontend import Imported, import_model
from tvm_tile.graph.extract import extract
from tvm_tile.passes import FirstChoices, GroupGates, content_of, is_joined, with_blocks_only
from tvm_tile.schedule import Task
from tvm_tile.schedule.gates import schedule_gates
from tvm_tile.stages.fusing import fuse

H200 = find_device("nvidia/h200")
FIRST = FirstChoices(H200)


def grouped(mod: tvm.IRModule, **options: Any) -> tvm.IRModule:
    passes = [relax.transform.ConvertToDataflow(), GroupGates(H200, FIRST, **options)]
    return tvm.transform.Sequential(passes)(mod)


def calls(mod: tvm.IRModule) -> Counter[str]:
    """How often ``main`` calls each operator, and each function that was joined."""
    found: Counter[str] = Counter()

    def visit(node: Any) -> None:
        if isinstance(node, relax.Call):
            name = str(getattr(node.op, "name", node.op)).removeprefix("relax.")
            found[str(node.args[0].name_hint) if name == "call_tir" else name] += 1

    relax.analysis.post_order_visit(mod["main"], visit)
    return found


def joined(mod: tvm.IRModule) -> int:
    """How many calls of joined functions there are."""
    return sum(count for name, count in calls(mod).items() if is_joined(name))


def functions(mod: tvm.IRModule) -> list[tirx.PrimFunc]:
    return [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]


def test_a_cell_is_one_function() -> None:
    entry = lstm(1, 32, 32)
    mod = relax_module(entry.body, tuple(own.shape for own in entry.inputs))
    after = grouped(mod)
    assert calls(after) == {"joined_gates": 1}
    (func,) = functions(after)
    shapes = [tuple(int(extent) for extent in param.ty.shape) for param in func.params]
    # Both weights by rows of their sums.
    assert shapes.count((128, 32)) == 2
    assert shapes[-2:] == [(1, 32), (1, 32)]


@pytest.fixture(scope="module")
def stacked() -> tuple[Imported, np.ndarray, np.ndarray]:
    """Two layers, three steps, 32 units: the model, its input, and its output in float64."""
    torch = pytest.importorskip("torch")
    from bench.suites.networks.lstm import LastState, StackedLSTM

    torch.manual_seed(0)
    model = LastState(StackedLSTM(2, 32, 32)).eval()
    x = torch.randn(3, 1, 32)
    imported = import_model(model, example_inputs=(x,))
    with torch.no_grad():
        return imported, x.numpy(), model.double()(x.double()).numpy()


def test_equal_cells_are_calls_of_one_function(stacked: Any) -> None:
    after = grouped(stacked[0].mod)
    # First steps, whose state is a constant; others; last ones, of which no c is used.
    counts = sorted(count for name, count in calls(after).items() if is_joined(name))
    assert counts == [2, 2, 2]
    assert "matmul" not in calls(after)


def test_steps_share_their_weights(stacked: Any) -> None:
    constants: list[Any] = []

    def visit(node: Any) -> None:
        is_tensor = isinstance(node, tvm.ir.Constant) and isinstance(node.ty, relax.TensorType)
        if is_tensor and node.ty.ndim == 2 and node.ty.shape[0] == 128:
            constants.append(node)

    relax.analysis.post_order_visit(grouped(stacked[0].mod)["main"], visit)
    assert len(set(constants)) == 4  # of x and of h, of two layers


def test_a_stacked_lstm_computes_what_it_did(stacked: Any) -> None:
    imported, x, wanted = stacked
    after = replace(imported, mod=grouped(imported.mod))
    (found,) = run(after, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_each_kernel_of_a_stacked_lstm_computes_what_its_function_does(
    stacked: Any, tmp_path: Path
) -> None:
    fused = fuse(stacked[0].mod, H200, first=FIRST).mod
    cells = [func for var, func in fused.functions.items() if is_joined(str(var.name_hint))]
    assert len(cells) == 3
    for number, func in enumerate(cells):
        folder = tmp_path / str(number)
        folder.mkdir()
        graph = extract(func)
        assert graph is not None
        choice = schedule_gates(Task(func, graph, H200), 1)[0]()
        assert choice is not None
        assert emulated_error(choice, arguments(func), H200, folder, late=True) < 1e-5


RECURRENT = {
    # Kind, attributes -> groups a step; a plain RNN has one product, without parts.
    "RNN": ("RNN", {}, 0),
    "GRU": ("GRU", {}, 1),
    "GRU, reset after": ("GRU", {"linear_before_reset": 1}, 1),
    "LSTM": ("LSTM", {}, 1),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_onnx_cells_compute_what_onnxruntime_does(name: str) -> None:
    kind, attributes, groups = RECURRENT[name]
    runtime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    gates, hidden, steps, inputs = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind], 37, 3, 20
    shapes = {
        "w": (1, gates * hidden, inputs),
        "r": (1, gates * hidden, hidden),
        "b": (1, 2 * gates * hidden),
    }
    given = ["x", "w", "r", "b"]
    if kind == "LSTM":
        shapes["p"] = (1, 3 * hidden)
        given += ["", "", "", "p"]
    weights = {n: rng.standard_normal(s).astype(np.float32) * 0.3 for n, s in shapes.items()}
    node = oh.make_node(kind, given, ["y"], hidden_size=hidden, **attributes)
    kinds = {"x": (steps, 2, inputs), "y": (steps, 1, 2, hidden)}
    values = [
        oh.make_tensor_value_info(n, onnx.TensorProto.FLOAT, shape) for n, shape in kinds.items()
    ]
    tensors = [onnx.numpy_helper.from_array(array, n) for n, array in weights.items()]
    graph = oh.make_graph([node], "cells", values[:1], values[1:], tensors)
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
    x = rng.standard_normal(kinds["x"]).astype(np.float32)
    session = runtime.InferenceSession(model.SerializeToString())
    (wanted,) = session.run(None, {"x": x})
    imported = import_model(model)
    after = grouped(imported.mod)
    # The first step begins with zeros, whose product is one.
    assert joined(after) == groups * (steps - 1)
    (found,) = run(replace(imported, mod=after), x)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


# What stays apart.

W = constant(np.random.default_rng(0), 64, 64)
V = constant(np.random.default_rng(1), 64, 64)


def pair(x: Any) -> Any:
    return op.add(times(x, W), times(x, V))


def test_what_comes_back_from_outside_is_taken_from_there() -> None:
    def body(x: Any) -> Any:
        first, second = times(x, W), times(x, V)
        both = op.tanh(op.add(first, second))
        return op.multiply(both, op.nn.softmax(both))

    after = grouped(relax_module(body, ((1, 64),)))
    assert calls(after) == {"joined_gates": 1, "nn.softmax": 1, "multiply": 1}


def test_a_product_of_a_group_s_values_is_no_part_of_it() -> None:
    def body(x: Any, h: Any) -> Any:
        first = op.tanh(op.add(times(x, W), times(h, V)))
        return op.add(op.add(times(first, W), times(h, V)), first)

    after = grouped(relax_module(body, ((1, 64), (1, 64))))
    assert joined(after) == sum(calls(after).values()) == 2


@pytest.mark.parametrize(
    "body",
    [
        lambda x: op.nn.relu(times(x, W)),
        lambda x: op.add(op.nn.relu(x), op.tanh(x)),
        lambda x: op.add(op.matmul(x, op.nn.relu(W)), op.matmul(x, op.nn.relu(V))),
    ],
    ids=["one product", "no product", "computed weights"],
)
def test_what_is_no_group(body: Any) -> None:
    mod = relax_module(body, ((1, 64),))
    assert calls(grouped(mod)) == calls(mod)


def test_many_rows() -> None:
    assert joined(grouped(relax_module(pair, ((17, 64),)))) == 0
    assert joined(grouped(relax_module(pair, ((16, 64),)))) == 1


def test_what_is_refused() -> None:
    mod = relax_module(pair, ((1, 64),))
    (func,) = functions(grouped(mod))
    assert joined(grouped(mod, refused={content_of(func): "it does not build"})) == 0


@pytest.mark.parametrize("device", [with_blocks_only(H200), find_device("emulated")])
def test_devices_without_the_rule(device: Any) -> None:
    """What other rules join is not of gates."""
    mod = relax_module(pair, ((1, 64),))
    assert not any("gates" in name for name in calls(fuse(mod, device).mod))


def test_without_welding() -> None:
    mod = relax_module(pair, ((1, 64),))
    assert joined(fuse(mod, H200).mod) == 1
    assert joined(fuse(mod, H200, weld=False).mod) == 0
