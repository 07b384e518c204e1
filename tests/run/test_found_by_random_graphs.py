"""What random graphs found wrong, each as small as it can be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tvm_tile
from tvm_tile.verify.compare import compare

torch = pytest.importorskip("torch")
pytest.importorskip("pyopencl")
F = torch.nn.functional

WEIGHT = torch.randn(6, 9, 3, generator=torch.Generator().manual_seed(0))
EMPTY = torch.zeros(1, 0, 1)
CAUSAL = torch.ones(64, 64, dtype=torch.bool).tril()


class Applied(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> object:
        return self.function(*inputs)


def results(function: Callable[..., object], *inputs: torch.Tensor) -> list[torch.Tensor]:
    """What the emulated device makes of a function."""
    program = torch.export.export(Applied(function), inputs)
    model = tvm_tile.compile(program, device="emulated")
    found = model(*inputs)
    return [torch.as_tensor(one) for one in (found if isinstance(found, tuple) else (found,))]


def drawn(*shape: int) -> torch.Tensor:
    """A tensor of random numbers, the same each time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1])
def test_step_of_a_sum_that_is_longer_than_the_tensor(stride: int, padding: int) -> None:
    """Chunks of 16 channels where there are 9: what lies behind these is no zero."""

    def convolution(x: torch.Tensor) -> torch.Tensor:
        return F.conv1d(x, WEIGHT, None, stride, padding)

    x = drawn(3, 9, 6)
    (found,) = results(convolution, x)
    torch.testing.assert_close(found, convolution(x), rtol=1e-4, atol=1e-5)


def test_mask_behind_a_product_in_vectors() -> None:
    """OpenCL's vectors of truths are -1, not 1, as integers."""

    def masked(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.where(CAUSAL, a @ b.transpose(-1, -2), 99.0)

    a, b = drawn(11, 64, 5), drawn(11, 64, 5) + 1
    (found,) = results(masked, a, b)
    torch.testing.assert_close(found, masked(a, b), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", [torch.sin, torch.cos, torch.tan])
def test_infinity_spoils_no_neighbours(function: Callable[..., torch.Tensor]) -> None:
    x = drawn(64, 8)
    x[::7, 3] = np.inf
    (found,) = results(function, x)
    torch.testing.assert_close(found, function(x), equal_nan=True)


def test_constant_without_elements_is_an_output() -> None:
    found = results(lambda x: (x + 1, EMPTY), drawn(3))
    assert [tuple(one.shape) for one in found] == [(3,), (1, 0, 1)]


def test_constant_without_elements_is_an_operand() -> None:
    (found,) = results(lambda x: x * EMPTY, drawn(2, 1, 3))
    assert tuple(found.shape) == (2, 0, 3)


def test_view_of_a_result_without_elements() -> None:
    """An extent of 0 is none of the operand's, as a reshape of ONNX or TVM would have it."""
    onnx = pytest.importorskip("onnx")
    helper, single = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Unsqueeze", ["e", "axes"], ["y"]),
    ]
    axes = helper.make_tensor("axes", onnx.TensorProto.INT64, [1], [1])
    x, e, y = (
        helper.make_tensor_value_info(name, single, shape)
        for name, shape in (("x", (5, 0, 7)), ("e", (5, 0, 7)), ("y", (5, 1, 0, 7)))
    )
    graph = helper.make_graph(nodes, "empty", [x], [e, y], [axes])
    opset = helper.make_opsetid("", 18)
    model = tvm_tile.compile(helper.make_model(graph, opset_imports=[opset]), "emulated")
    found = model(np.zeros((5, 0, 7), np.float32))
    assert [np.shape(one) for one in found] == [(5, 0, 7), (5, 1, 0, 7)]


def test_indices_choose_for_a_whole_vector() -> None:
    """OpenCL's select looks at the first bit of what it chooses by, which 1 has not."""
    indices = torch.tensor([i for i in range(63) if i % 7])
    (found,) = results(lambda x: x.index_fill(1, indices, 1.5), drawn(9, 63, 16))
    torch.testing.assert_close(found, drawn(9, 63, 16).index_fill(1, indices, 1.5))


def test_celu_of_a_single_number_is_one() -> None:
    """ONNX defines it by a function whose constant has a dimension."""
    onnx = pytest.importorskip("onnx")
    values = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ()) for n in "xy"]
    node = onnx.helper.make_node("Celu", ["x"], ["y"], alpha=1.5)
    graph = onnx.helper.make_graph([node], "celu", values[:1], values[1:])
    opset = onnx.helper.make_opsetid("", 17)
    model = tvm_tile.compile(onnx.helper.make_model(graph, opset_imports=[opset]), "emulated")
    found = torch.as_tensor(model(np.float32(-0.7).reshape(())))
    torch.testing.assert_close(found, F.celu(torch.tensor(-0.7), 1.5))


def test_single_wrong_truth_is_found() -> None:
    found = compare(np.array(True), np.array(False), 1e-5, [])
    assert (found.wrong, found.example) == (1, "at [] True instead of False")
