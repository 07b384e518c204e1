"""Norms over the last axis, and other operators on whole rows; weights and biases are inputs."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn import functional as F

# Stated, because torch's default for the RMS norm depends on the dtype.
EPSILON = 1e-5


class Softmax(Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x, -1)


class LayerNorm(Module):
    def forward(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(x, weight.shape, weight, bias, EPSILON)


class RmsNorm(Module):
    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, EPSILON)


class CumulativeSum(Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(x, -1)


class CumulativeSumOfColumns(Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(x, 0)


class LargestOfRow(Module):
    """What is where the largest element is: its place alone is not one, among equal elements."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.gather(x, -1, torch.argmax(x, -1, keepdim=True))


class TopValues(Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x: Tensor) -> Tensor:
        return torch.topk(x, self.count, -1).values


class GroupNorm(Module):
    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.group_norm(x, self.groups, weight, bias, EPSILON)


class InstanceNorm(Module):
    def forward(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.instance_norm(x, None, None, weight, bias, True, 0.1, EPSILON)
