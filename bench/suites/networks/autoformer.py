"""Vision transformers of which every layer has heads and a width of its own."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

_HEAD = 64
_PATCH = 16


class AutoFormer(nn.Module):
    """Images (B, 3, H, W) to (B, classes).

    Chen et al., "AutoFormer: Searching Transformers for Visual Recognition", 2021; positions are
    absolute ones.

    Args:
        chosen: ``"image"``, ``"width"``, and the layer ``"layer00"`` and so on: its heads, and how
            many times wider its feed-forward part is, such as ``"3x3.5"``, or nothing where it is
            left out.
        classes: outputs.
    """

    def __init__(self, chosen: Mapping[str, int | str], classes: int = 1000) -> None:
        super().__init__()
        width, patches = int(chosen["width"]), (int(chosen["image"]) // _PATCH) ** 2
        self.patches = nn.Conv2d(3, width, _PATCH, _PATCH)
        self.summary = nn.Parameter(torch.randn(1, 1, width) / 50)
        self.positions = nn.Parameter(torch.randn(1, 1 + patches, width) / 50)
        kinds = [str(kind) for key, kind in sorted(chosen.items()) if key.startswith("layer")]
        self.layers = nn.Sequential(*(Layer(width, kind) for kind in kinds if kind))
        self.norm = nn.LayerNorm(width)
        self.classify = nn.Linear(width, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        patches = self.patches(image).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.summary.expand(len(image), -1, -1), patches], dim=1)
        tokens = self.norm(self.layers(tokens + self.positions))
        return self.classify(tokens[:, 1:].mean(1))


class Layer(nn.Module):
    """Attention among tokens (B, tokens, width), and a feed-forward part, each behind a norm."""

    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        heads, ratio = kind.split("x")
        inner = int(width * float(ratio))
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.drawn = nn.Linear(width, 3 * _HEAD * int(heads))
        self.out = nn.Linear(_HEAD * int(heads), width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        drawn = self.drawn(self.norms[0](x)).view(batch, tokens, 3, -1, _HEAD)
        queries, keys, values = drawn.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(queries, keys, values)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, -1))
        return x + self.feed_forward(self.norms[1](x))
