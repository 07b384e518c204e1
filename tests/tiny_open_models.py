"""Models with an open extent that the emulated device runs in moments."""

from __future__ import annotations

import torch
from torch import nn

from bench.open_shapes.models import OpenModel
from bench.workload import Input


class _Masked(nn.Module):
    """The sum over the open axis, of what a mask lets pass."""

    def __init__(self, summed: nn.Module) -> None:
        super().__init__()
        self.summed = summed

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.summed(torch.where(mask.reshape(-1, 1), x, torch.zeros_like(x)))


class _LessSum(nn.Module):
    """With an argument that nobody passes, as networks of libraries have."""

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        summed = x - x.sum(0, keepdim=True)
        return summed if scale is None else summed * scale


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def _rows(count: int) -> Input:
    return Input((count, 8), "float32")


PERCEPTRON = OpenModel("perceptron", "rows", _perceptron, "input", _rows, 0, 1, 12, "float32")
LESS_SUM = OpenModel("less_sum", "rows", _LessSum, "x", _rows, 0, 2, 12, "float32", _Masked)
