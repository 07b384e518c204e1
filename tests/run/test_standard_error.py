"""Compiling a model prints nothing, nor does TVM's C++ beneath it, not even where it fails."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

import tvm_tile
from tvm_tile import Options
from tvm_tile.errors import UnsupportedOperatorError

DEVICE = "emulated"


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.filterwarnings("ignore")  # of torch.export
def test_cubes_are_products_without_a_word(
    dtype: torch.dtype, capfd: pytest.CaptureFixture[str]
) -> None:
    class Cubes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x + 0.044715 * x**3) + torch.pow(x, 3)

    x = torch.linspace(-3, 3, 64, dtype=dtype)
    device = "nvidia/h200" if dtype is torch.float16 else DEVICE
    options = Options(cache=False)
    model = tvm_tile.compile(Cubes().eval(), device, example_inputs=(x,), options=options)
    assert capfd.readouterr() == ("", "")
    if device == DEVICE:
        expected = Cubes()(x).numpy()
        np.testing.assert_allclose(model(x.numpy()), expected, rtol=1e-5, atol=1e-5)


def test_a_refused_model_is_told_by_its_error_alone(capfd: pytest.CaptureFixture[str]) -> None:
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, [4]), value("pads", TensorProto.INT64, [2])]
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("Pad", ["h", "pads"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "pad", inputs, [value("y", TensorProto.FLOAT, ["n"])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    gc.collect()  # of what tests before left, which TVM may have words for
    capfd.readouterr()
    with pytest.raises(UnsupportedOperatorError, match="Pad"):
        tvm_tile.compile(model, DEVICE)
    gc.collect()  # of what the error held
    assert capfd.readouterr() == ("", "")
