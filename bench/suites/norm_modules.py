"""Norms over the last axis; weights and biases are inputs."""

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
