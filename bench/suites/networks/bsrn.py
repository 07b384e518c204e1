"""BSRN, efficient super-resolution."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class BSRN(nn.Module):
    """Images (B, 3, H, W) to (B, 3, upscale * H, upscale * W).

    Li et al., "Blueprint Separable Residual Network for Efficient Image Super-Resolution",
    2022.
    """

    def __init__(self, width: int, blocks: int, upscale: int) -> None:
        super().__init__()
        self.first = _separable(4 * 3, width)
        self.blocks = nn.ModuleList(_Distillation(width) for _ in range(blocks))
        self.fuse = nn.Sequential(
            nn.Conv2d(blocks * width, width, 1), nn.GELU(), _separable(width, width)
        )
        self.upsample = nn.Sequential(
            nn.Conv2d(width, 3 * upscale**2, 3, padding=1), nn.PixelShuffle(upscale)
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        first = x = self.first(torch.cat([image] * 4, dim=1))
        outputs = []
        for block in self.blocks:
            x = block(x)
            outputs.append(x)
        return self.upsample(self.fuse(torch.cat(outputs, dim=1)) + first)


def _separable(channels: int, filters: int) -> nn.Module:
    """Blueprint-separable convolution: across channels first, then 3×3 within each."""
    return nn.Sequential(
        nn.Conv2d(channels, filters, 1, bias=False),
        nn.Conv2d(filters, filters, 3, padding=1, groups=filters),
    )


class _Distillation(nn.Module):
    """Three refinements that each keep half of the channels aside, then two attentions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.kept = nn.ModuleList(nn.Conv2d(width, width // 2, 1) for _ in range(3))
        self.refined = nn.ModuleList(_separable(width, width) for _ in range(3))
        self.last = _separable(width, width // 2)
        self.fuse = nn.Conv2d(2 * width, width, 1)
        self.spatial = _SpatialAttention(width)
        self.contrast = _ContrastAttention(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value, parts = x, []
        for kept, refined in zip(self.kept, self.refined, strict=True):
            parts.append(F.gelu(kept(value)))
            value = F.gelu(refined(value) + value)
        parts.append(F.gelu(self.last(value)))
        return self.contrast(self.spatial(self.fuse(torch.cat(parts, dim=1)))) + x


class _SpatialAttention(nn.Module):
    """Enhanced spatial attention: a mask made at a sixth of the resolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        narrow = width // 4
        self.reduce = nn.Conv2d(width, narrow, 1)
        self.skip = nn.Conv2d(narrow, narrow, 1)
        self.down = nn.Conv2d(narrow, narrow, 3, stride=2)
        self.group = nn.Sequential(
            *(_separable(narrow, narrow), nn.GELU()),
            *(_separable(narrow, narrow), nn.GELU()),
            _separable(narrow, narrow),
        )
        self.expand = nn.Conv2d(narrow, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        narrow = self.reduce(x)
        coarse = self.group(F.max_pool2d(self.down(narrow), 7, stride=3))
        fine = F.interpolate(coarse, x.shape[2:], mode="bilinear", align_corners=False)
        return x * torch.sigmoid(self.expand(fine + self.skip(narrow)))


class _ContrastAttention(nn.Module):
    """Weights channels by what their mean and standard deviation say."""

    def __init__(self, width: int) -> None:
        super().__init__()
        squeezed = max(1, width // 16)
        self.weigh = nn.Sequential(
            *(nn.Conv2d(width, squeezed, 1), nn.ReLU()),
            *(nn.Conv2d(squeezed, width, 1), nn.Sigmoid()),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean((2, 3), keepdim=True)
        centred = x - mean
        deviation = torch.sqrt((centred * centred).mean((2, 3), keepdim=True))
        return x * self.weigh(deviation + mean)
