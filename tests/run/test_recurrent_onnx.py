"""ONNX's recurrent operators as loops, for kernels that hold them, compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import tvm_tile
from bench.node_cases import run_on_cpu
from tvm_tile.frontend import import_model
from tvm_tile.stages.forced import Forced

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_RNG = np.random.default_rng(0)
_SIZE, _HIDDEN = 3, 5


def recurrent(
    kind: str, name: str, *, lengths: bool = False, state: bool = False, **attributes: Any
) -> tuple[onnx.NodeProto, dict[str, np.ndarray], list[str]]:
    """A node that reads ``x``, its constants, and its outputs."""
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    rows = _GATES[kind] * _HIDDEN
    shapes = {"w": (ways, rows, _SIZE), "r": (ways, rows, _HIDDEN), "b": (ways, 2 * rows)}
    tensors = {
        f"{name}_{key}": _RNG.standard_normal(shape).astype(np.float32)
        for key, shape in shapes.items()
    }
    inputs = ["x", *tensors, "lengths" if lengths else ""]
    cells = ["h", "c"] if kind == "LSTM" else ["h"]
    inputs += [f"{cell}{ways}" if state else "" for cell in cells]
    if kind == "LSTM":
        peepholes = _RNG.standard_normal((ways, 3 * _HIDDEN)).astype(np.float32)
        tensors[f"{name}_p"] = peepholes
        inputs.append(f"{name}_p")
    outputs = [f"{name}_y", *(f"{name}_y{cell}" for cell in cells)]
    node = helper.make_node(kind, inputs, outputs, hidden_size=_HIDDEN, **attributes)
    return node, tensors, outputs


def of_nodes(steps: int, batch: int, made: list[Any]) -> onnx.ModelProto:
    shapes = {"x": (steps, batch, _SIZE), "lengths": (batch,)}
    shapes |= {f"{cell}{ways}": (ways, batch, _HIDDEN) for cell in "hc" for ways in (1, 2)}
    read = {name for node, _, _ in made for name in node.input}
    inputs = [
        helper.make_tensor_value_info(name, 6 if name == "lengths" else 1, shape)
        for name, shape in shapes.items()
        if name in read
    ]
    outputs = [helper.make_tensor_value_info(n, 1, None) for _, _, own in made for n in own]
    tensors = [
        numpy_helper.from_array(value, name)
        for _, constants, _ in made
        for name, value in constants.items()
    ]
    graph = helper.make_graph([node for node, _, _ in made], "net", inputs, outputs, tensors)
    opset = helper.make_opsetid("", 14)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def test_loops_compute_what_steps_do() -> None:
    """Directions, sequences that end early or have no step, states, peepholes, other functions."""
    both = {"direction": "bidirectional", "lengths": True, "state": True}
    model = of_nodes(
        4,
        3,
        [
            recurrent("RNN", "a", activations=["Relu"], direction="reverse"),
            recurrent("RNN", "b", clip=0.4, **both),
            recurrent("GRU", "c"),
            recurrent("GRU", "d", linear_before_reset=1, **both),
            recurrent("LSTM", "e", direction="reverse", lengths=True),
            recurrent("LSTM", "f", **both),
        ],
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    inputs = {
        value.name: np.array([2, 0, 4], np.int32)
        if value.name == "lengths"
        else _RNG.standard_normal(value.shape).astype(np.float32)
        for value in session.get_inputs()
    }
    found = run_on_cpu(import_model(model, in_loops=True).mod, list(inputs.values()))
    for own, wanted in zip(found, session.run(None, inputs), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-4, atol=1e-5)


def test_a_layer_is_a_few_kernels() -> None:
    kinds = ["GRU", "LSTM", "RNN"]
    model = of_nodes(100, 1, [recurrent(kind, kind.lower()) for kind in kinds])
    compiled = tvm_tile.compile(model, "nvidia/h100", options=Forced(control="kernel"))
    launches = compiled.report.launches
    assert launches is not None
    assert launches.outside + launches.captured <= 10 * len(kinds)


def test_steps_are_written_out_where_no_kernel_holds_their_loop() -> None:
    """Kernels with loops are of float32; and which they would have been, is told."""
    node, tensors, outputs = recurrent("RNN", "half")
    model = of_nodes(3, 1, [(node, tensors, outputs)])
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = 10
    for tensor in model.graph.initializer:
        tensor.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name)
        )
    compiled = tvm_tile.compile(model, "nvidia/h100", options=Forced(control="kernel"))
    assert any("is written out" in note for note in compiled.report.notes)
    assert {graph.function for graph in compiled.report.graphs} == {"main"}
