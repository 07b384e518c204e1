"""Kernels of open extents for GPUs that are not here: they are ours, and they build."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import tvm_tile
from tvm_tile import Open, Options

pytestmark = pytest.mark.bank(4)

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


class Doubled(nn.Module):
    """A sum of a tensor with itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


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


@pytest.mark.parametrize(
    ("device", "dtype"),
    [
        ("nvidia/h200", torch.float16),
        ("nvidia/h200", torch.float32),
        ("amd/mi300x", torch.float16),
        ("emulated", torch.float32),
        ("emulated", torch.int8),
    ],
)
def test_copies_of_two_open_extents_are_ours(device: str, dtype: torch.dtype) -> None:
    """Their lanes are neighbours, which is seen though extents between them are not known."""
    model = tvm_tile.compile(
        Doubled(),
        device,
        inputs={"x": (Open(1, 8, "b"), Open(2, 64, "t"), WIDTH)},
        example_inputs=(torch.zeros(8, 64, WIDTH, dtype=dtype),),
        options=Options(cache=False),
    )
    assert not [kernel for kernel in model.report.kernels if kernel.fallback]
    copies = [kernel.tile for kernel in model.report.kernels if "as the call takes" in kernel.tile]
    assert len(copies) == 2
    assert all(f"of {16 // dtype.itemsize}," in tile for tile in copies)
    if device == "emulated":
        for b, t in ((8, 64), (1, 2), (3, 17), (7, 63)):
            x = torch.randint(-9, 9, (b, t, WIDTH)).to(dtype)
            assert torch.equal(model(x), x + x)
