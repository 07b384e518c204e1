"""What pads a sum is not written by the kernel of the sum, which makes fewer elements."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_tile

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
