"""Conformer, a speech encoder."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Conformer(nn.Sequential):
    """Frames (B, T, width) to (B, T, width).

    Gulati et al., "Conformer: Convolution-augmented Transformer for Speech Recognition", 2020,
    with absolute instead of relative positions in its attention.
    """

    def __init__(self, layers: int, width: int, heads: int, ffn: int, kernel: int) -> None:
        super().__init__(*(_Block(width, heads, ffn, kernel) for _ in range(layers)))


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, ffn: int, kernel: int) -> None:
        super().__init__()
        self.before = _feed_forward(width, ffn)
        self.attention = _Attention(width, heads)
        self.convolution = _Convolution(width, kernel)
        self.after = _feed_forward(width, ffn)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 0.5 * self.before(x)
        x = x + self.attention(x)
        x = x + self.convolution(x)
        x = x + 0.5 * self.after(x)
        return self.norm(x)


def _feed_forward(width: int, ffn: int) -> nn.Module:
    return nn.Sequential(
        nn.LayerNorm(width), nn.Linear(width, ffn), nn.SiLU(), nn.Linear(ffn, width)
    )


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.projections = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        split = self.projections(self.norm(x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.output(mixed.transpose(1, 2).flatten(2))


class _Convolution(nn.Module):
    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.batch_norm = nn.BatchNorm1d(width)
        self.project = nn.Conv1d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gated = F.glu(self.expand(self.norm(x).transpose(1, 2)), dim=1)
        mixed = F.silu(self.batch_norm(self.depthwise(gated)))
        return self.project(mixed).transpose(1, 2)
