"""NAFNet, image restoration without nonlinear activations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class NAFNet(nn.Module):
    """Images (B, 3, H, W) to images; H and W divisible by two to the number of levels.

    Chen et al., "Simple Baselines for Image Restoration", 2022.

    Args:
        width: channels of the highest resolution; every level doubles them.
        middle: blocks at the lowest resolution.
        encoder: blocks of each level on the way down.
        decoder: blocks of each level on the way up.
    """

    def __init__(
        self, width: int, middle: int, encoder: Sequence[int], decoder: Sequence[int]
    ) -> None:
        super().__init__()
        widths = [width << level for level in range(len(encoder) + 1)]
        self.intro = nn.Conv2d(3, width, 3, padding=1)
        self.encoders = nn.ModuleList(
            _blocks(c, count) for c, count in zip(widths, encoder, strict=False)
        )
        self.downs = nn.ModuleList(nn.Conv2d(c, 2 * c, 2, 2) for c in widths[:-1])
        self.middle = _blocks(widths[-1], middle)
        self.ups = nn.ModuleList(
            nn.Sequential(nn.Conv2d(c, 2 * c, 1, bias=False), nn.PixelShuffle(2))
            for c in reversed(widths[1:])
        )
        self.decoders = nn.ModuleList(
            _blocks(c, count) for c, count in zip(reversed(widths[:-1]), decoder, strict=True)
        )
        self.ending = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.intro(image)
        skips = []
        for blocks, down in zip(self.encoders, self.downs, strict=True):
            x = blocks(x)
            skips.append(x)
            x = down(x)
        x = self.middle(x)
        for up, skip, blocks in zip(self.ups, reversed(skips), self.decoders, strict=True):
            x = blocks(up(x) + skip)
        return self.ending(x) + image


def _blocks(channels: int, count: int) -> nn.Module:
    return nn.Sequential(*(_Block(channels) for _ in range(count)))


class _Block(nn.Module):
    """Gated depthwise convolution with channel attention, then a gated feed-forward part.

    The factors of the two parts start at 0 in the paper; trained ones do not stay there.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = _ChannelNorm(channels)
        self.expand = nn.Conv2d(channels, 2 * channels, 1)
        self.depthwise = nn.Conv2d(2 * channels, 2 * channels, 3, padding=1, groups=2 * channels)
        self.attention = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels, 1))
        self.project = nn.Conv2d(channels, channels, 1)
        self.norm_2 = _ChannelNorm(channels)
        self.expand_2 = nn.Conv2d(channels, 2 * channels, 1)
        self.project_2 = nn.Conv2d(channels, channels, 1)
        self.factor = nn.Parameter(torch.rand(1, channels, 1, 1))
        self.factor_2 = nn.Parameter(torch.rand(1, channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = _gate(self.depthwise(self.expand(self.norm(x))))
        x = x + self.project(y * self.attention(y)) * self.factor
        return x + self.project_2(_gate(self.expand_2(self.norm_2(x)))) * self.factor_2


def _gate(x: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, dim=1)
    return left * right


class _ChannelNorm(nn.Module):
    """Layer norm over the channels of every pixel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(1, keepdim=True)
        deviation = torch.sqrt((centred * centred).mean(1, keepdim=True) + 1e-6)
        return centred / deviation * self.weight + self.bias
