"""Kernels of open extents for GPUs that are not here: they are ours, and they build."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import tvm_tile
from tvm_tile import Open, Options

WIDTH, HEADS, MOST = 128, 2, 256


class Block(nn.Module):
    """Causal attention, and a product behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.behind = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.before(x).chunk(3, -1)
        apart = [p.view(1, x.shape[1], HEADS, WIDTH // HEADS).transpose(1, 2) for p in parts]
        found = functional.scaled_dot_product_attention(*apart, is_causal=True)
        return x + self.behind(found.transpose(1, 2).reshape(x.shape))


@pytest.mark.parametrize("device", ["nvidia/h200", "amd/mi300x"])
def test_they_are_ours_and_leave_early(device: str) -> None:
    model = tvm_tile.compile(
        Block().eval().half(),
        device,
        inputs={"x": (1, Open(1, MOST, "n"), WIDTH)},
        example_inputs=(torch.zeros(1, MOST, WIDTH).half(),),
        options=Options(cache=False),
    )
    assert not [kernel for kernel in model.report.kernels if kernel.fallback]
    assert any("tvm_tile_leave_unless(" in kernel.source for kernel in model.program.kernels)
