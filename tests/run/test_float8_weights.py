"""Weights of float8 are known while a model is imported."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tvm_tile
from tvm_tile import Options


class Float8(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randn(64, 96).to(dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.codes.t().reshape(64, 96).to(x.dtype)


@pytest.mark.parametrize("low_bit", [False, True])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_weights_of_float8(dtype: torch.dtype, low_bit: bool) -> None:
    model, x = Float8(dtype), torch.randn(3, 64)
    options = Options(cache=False, low_bit=low_bit)
    compiled = tvm_tile.compile(model, "emulated", example_inputs=(x,), options=options)
    wanted = x.double() @ model.codes.t().reshape(64, 96).double()
    assert torch.allclose(torch.from_dlpack(compiled(x)).double(), wanted, atol=1e-4)
