"""ShuffleNet V2, image classification."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class ShuffleNetV2(nn.Module):
    """Images (B, 3, H, W) to (B, classes).

    Ma et al., "ShuffleNet V2: Practical Guidelines for Efficient CNN Architecture Design", 2018.

    Args:
        repeats: units of each stage; the first of a stage halves the resolution.
        channels: of the stem, of each stage, and of the last convolution.
        classes: outputs.
    """

    def __init__(self, repeats: Sequence[int], channels: Sequence[int], classes: int) -> None:
        super().__init__()
        stem, *stages, last = channels
        self.stem = nn.Sequential(*_convolution(3, stem, 3, 2), nn.MaxPool2d(3, 2, padding=1))
        units: list[nn.Module] = []
        width = stem
        for count, filters in zip(repeats, stages, strict=True):
            units += [_Downsampling(width, filters), *(_Unit(filters) for _ in range(count - 1))]
            width = filters
        self.stages = nn.Sequential(*units)
        self.last = nn.Sequential(*_convolution(width, last, 1))
        self.classify = nn.Linear(last, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.classify(self.last(self.stages(self.stem(image))).mean((2, 3)))


def _convolution(channels: int, filters: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(
        channels, filters, kernel, stride=stride, padding=kernel // 2, bias=False
    )
    return [convolution, nn.BatchNorm2d(filters), nn.ReLU()]


def _depthwise(channels: int, stride: int) -> list[nn.Module]:
    convolution = nn.Conv2d(
        channels, channels, 3, stride=stride, padding=1, groups=channels, bias=False
    )
    return [convolution, nn.BatchNorm2d(channels)]


def _shuffle(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The channels of the two, taken in turns."""
    return torch.stack([left, right], dim=2).flatten(1, 2)


class _Unit(nn.Module):
    """Half of the channels pass, half are convolved."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            *_convolution(half, half, 1), *_depthwise(half, 1), *_convolution(half, half, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        passed, rest = x.chunk(2, dim=1)
        return _shuffle(passed, self.branch(rest))


class _Downsampling(nn.Module):
    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        half = filters // 2
        self.shortcut = nn.Sequential(*_depthwise(channels, 2), *_convolution(channels, half, 1))
        self.branch = nn.Sequential(
            *_convolution(channels, half, 1), *_depthwise(half, 2), *_convolution(half, half, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _shuffle(self.shortcut(x), self.branch(x))
