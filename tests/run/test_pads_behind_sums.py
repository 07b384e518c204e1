"""What pads a sum is not written by the kernel of the sum, which makes fewer elements."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.script import tirx as T

import tvm_tile

pytestmark = pytest.mark.bank(4)

torch = pytest.importorskip("torch")
pytest.importorskip("pyopencl")


@pytest.mark.parametrize("extent", [5, 1])
def test_padding_at_the_end_behind_a_convolution(extent: int) -> None:
    class Padded(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = torch.nn.Conv2d(8, 16, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.pad(self.convolution(x).clamp(0, 6), (0, 1, 0, 1))

    module, x = Padded().eval(), torch.randn(1, 8, extent, extent)
    model = tvm_tile.compile(module, "emulated", example_inputs=(x,))
    expected = module(x).detach().numpy()
    np.testing.assert_allclose(model(x).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_padding_by_a_number_behind_a_sum_of_one_place() -> None:
    """Its pad reads the sum at its own place, under a condition: no fusion of element-wise ones."""

    def padded(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(torch.nn.functional.conv1d(x, w), (0, 1), value=1.5)

    class Padded(torch.nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return padded(x, w)

    inputs = torch.randn(3, 5, 1), torch.randn(1, 5, 1)
    model = tvm_tile.compile(Padded(), "emulated", example_inputs=inputs)
    assert sum("pad" in kernel.name for kernel in model.report.kernels) == 1
    assert not any("conv1d" in k.name and "pad" in k.name for k in model.report.kernels)
    torch.testing.assert_close(torch.as_tensor(model(*inputs)), padded(*inputs))


def test_no_rule_writes_sums_and_their_pads_at_once() -> None:
    """As one function, whoever made it so."""

    @T.prim_func(private=True, s_tir=True)
    def func(x: T.Buffer((3, 5), "float32"), y: T.Buffer((3, 2), "float32")) -> None:
        sums = T.sblock_alloc_buffer((3, 1), "float32")
        for i, j, k in T.grid(3, 1, 5):
            with T.sblock("sum"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    sums[vi, vj] = T.float32(0)
                sums[vi, vj] = sums[vi, vj] + x[vi, vk]
        for i, j in T.grid(3, 2):
            with T.sblock("pad"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = T.if_then_else(vj < 1, sums[vi, vj], T.float32(1.5))

    assert tvm_tile.schedule(func, "nvidia/h200") == ()
