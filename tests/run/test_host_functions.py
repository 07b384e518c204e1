"""Functions of TVM's that run on the host hand kernels tensors that lie on the kernels' device."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

import tvm_tile
from tvm_tile.registered import host_functions

X = np.random.default_rng(0).integers(-2, 3, (30, 2)).astype("float32")
node = helper.make_node
ROWS = np.stack(np.nonzero(X))
CASES = {
    "places": ([node("NonZero", ["x"], ["p"]), node("Add", ["p", "p"], ["y"])], ROWS * 2),
    "elements": (
        [
            node("NonZero", ["x"], ["p"]),
            node("Transpose", ["p"], ["q"], perm=[1, 0]),
            node("GatherND", ["x", "q"], ["y"]),
        ],
        X[X != 0],
    ),
    "how many": (
        [
            node("NonZero", ["x"], ["p"]),
            node("Shape", ["p"], ["s"]),
            node("Add", ["s", "s"], ["y"]),
        ],
        np.array(ROWS.shape) * 2,
    ),
    "unique": (
        [node("Unique", ["x"], ["v", "", "u"], sorted=1), node("Add", ["u", "u"], ["y"])],
        np.unique(X, return_inverse=True)[1].ravel() * 2,
    ),
}


def model(nodes: list[Any], dtype: Any) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    result = value("y", helper.np_dtype_to_tensor_dtype(dtype), None)
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, (30, 2))], [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("name", CASES)
def test_emulated(name: str) -> None:
    nodes, wanted = CASES[name]
    got = tvm_tile.compile(model(nodes, wanted.dtype), "emulated")(X)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("name", CASES)
def test_on_a_gpu_and_on_any_stream_of_it(name: str) -> None:
    nodes, wanted = CASES[name]
    compiled = tvm_tile.compile(model(nodes, wanted.dtype), "auto")
    np.testing.assert_array_equal(compiled(X), wanted)
    with torch.cuda.stream(torch.cuda.Stream()):
        got = compiled(torch.from_numpy(X).cuda())
    np.testing.assert_array_equal(got.cpu().numpy(), wanted)


class _Device:
    """A device that notes what is waited for."""

    type = "cuda"

    def __init__(self) -> None:
        self.waited: list[Any] = []

    def sync(self, stream: Any = None) -> None:
        self.waited.append(stream)


class _Tensor:
    shape = (1,)

    def __init__(self, device: Any) -> None:
        self.device = device


@pytest.mark.parametrize("several", [False, True])
def test_kernels_are_waited_for_and_results_are_moved(
    several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tvm_ffi

    device, on_host = _Device(), _Tensor("cpu")
    monkeypatch.setattr(tvm_ffi, "get_raw_stream", lambda one: 7)
    monkeypatch.setattr(host_functions, "_copied", lambda result, to: (result, to))
    run = host_functions._on_device(lambda tensor, *_: [on_host] * 2 if several else on_host)
    moved = on_host, device
    assert run(_Tensor(device), 1) == ([moved, moved] if several else moved)
    assert device.waited == [7, None]
