"""Restormer, image restoration with attention across channels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F


class Restormer(nn.Module):
    """Images (B, 3, H, W) to images; H and W divisible by 8.

    Zamir et al., "Restormer: Efficient Transformer for High-Resolution Image Restoration", 2022.

    Args:
        width: channels of the highest resolution; each of three levels below doubles them.
        blocks: of the four levels.
        refinement: blocks after the decoder.
        heads: of the four levels.
        expansion: of the feed-forward parts.
    """

    def __init__(
        self,
        width: int,
        blocks: Sequence[int],
        refinement: int,
        heads: Sequence[int],
        expansion: float,
    ) -> None:
        super().__init__()

        def level(channels: int, count: int, level_heads: int) -> nn.Module:
            return nn.Sequential(*(_Block(channels, level_heads, expansion) for _ in range(count)))

        widths = [width << i for i in range(4)]
        self.embed = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.encoders = nn.ModuleList(
            level(c, n, h) for c, n, h in zip(widths, blocks, heads, strict=True)
        )
        self.downs = nn.ModuleList(_down(c) for c in widths[:3])
        self.ups = nn.ModuleList(_up(c) for c in reversed(widths[1:]))
        # The highest resolution keeps the channels of the skip beside its own.
        self.reduce = nn.ModuleList(nn.Conv2d(2 * c, c, 1, bias=False) for c in widths[2:0:-1])
        self.decoders = nn.ModuleList(
            level(c, blocks[i], heads[i])
            for i, c in ((2, widths[2]), (1, widths[1]), (0, widths[1]))
        )
        self.refine = level(widths[1], refinement, heads[0])
        self.output = nn.Conv2d(widths[1], 3, 3, padding=1, bias=False)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        skips = [self.encoders[0](self.embed(image))]
        for down, encoder in zip(self.downs, self.encoders[1:], strict=True):
            skips.append(encoder(down(skips[-1])))
        x = skips.pop()
        fits = (*self.reduce, nn.Identity())
        for up, fit, decoder in zip(self.ups, fits, self.decoders, strict=True):
            x = decoder(fit(torch.cat([up(x), skips.pop()], dim=1)))
        return self.output(self.refine(x)) + image


def _down(channels: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, channels // 2, 3, padding=1, bias=False), nn.PixelUnshuffle(2)
    )


def _up(channels: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, channels * 2, 3, padding=1, bias=False), nn.PixelShuffle(2)
    )


class _Block(nn.Module):
    def __init__(self, channels: int, heads: int, expansion: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.attention = _ChannelAttention(channels, heads)
        self.norm_2 = nn.LayerNorm(channels)
        self.feed_forward = _GatedFeedForward(channels, int(channels * expansion))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(_per_pixel(self.norm, x))
        return x + self.feed_forward(_per_pixel(self.norm_2, x))


def _per_pixel(norm: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A layer norm over the channels of (B, C, H, W)."""
    return norm(x.flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, x.shape[2:])


class _ChannelAttention(nn.Module):
    """Transposed attention: every channel attends to those of its head, over all pixels."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
        self.project = nn.Conv2d(channels, 3 * channels, 1, bias=False)
        self.depthwise = nn.Conv2d(
            3 * channels, 3 * channels, 3, padding=1, groups=3 * channels, bias=False
        )
        self.output = nn.Conv2d(channels, channels, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.flatten(2).unflatten(1, (self.heads, -1))
            for part in self.depthwise(self.project(x)).chunk(3, dim=1)
        )
        query, key = F.normalize(query, dim=-1), F.normalize(key, dim=-1)
        weights = (query @ key.transpose(-2, -1) * self.temperature).softmax(-1)
        return self.output((weights @ value).flatten(1, 2).unflatten(2, x.shape[2:]))


class _GatedFeedForward(nn.Module):
    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.expand = nn.Conv2d(channels, 2 * hidden, 1, bias=False)
        self.depthwise = nn.Conv2d(
            2 * hidden, 2 * hidden, 3, padding=1, groups=2 * hidden, bias=False
        )
        self.project = nn.Conv2d(hidden, channels, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, value = self.depthwise(self.expand(x)).chunk(2, dim=1)
        return self.project(F.gelu(gate) * value)
