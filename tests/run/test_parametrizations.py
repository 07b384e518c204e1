"""Layers whose weights are computed of parameters in each call are layers of constants."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

import tvm_tile


@pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")
@torch.no_grad()
def test_parametrized_layers() -> None:
    torch.manual_seed(0)
    maps = ("matrix_exp", "cayley", "householder")
    layers = [orthogonal(nn.Linear(6, 6), orthogonal_map=name) for name in maps]
    others = (orthogonal(nn.Linear(6, 4)), spectral_norm(nn.Linear(4, 6)))
    module = nn.Sequential(*layers, *others, weight_norm(nn.Linear(6, 3))).eval()
    x = torch.randn(2, 6)
    model = tvm_tile.compile(module, "emulated", example_inputs=(torch.zeros(2, 6),))
    expected = module.double()(x.double())
    torch.testing.assert_close(torch.as_tensor(model(x)).double(), expected, rtol=1e-5, atol=1e-5)
