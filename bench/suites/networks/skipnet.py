"""SkipNet: a recurrent gate decides before every block whether it runs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from bench.suites.networks.lstm import Cell


class SkipNet(nn.Module):
    """Images (B, 3, H, W) to (B, classes).

    Wang et al., "SkipNet: Learning Dynamic Routing in Convolutional Networks", 2018: ResNet-101
    whose blocks, all but the first, run when an image's gate is open, and then on all images.

    Args:
        width: channels of the stem.
        blocks: of the four stages.
        gate: width of the gate's features and of its LSTM.
        classes: outputs.
    """

    def __init__(self, width: int, blocks: Sequence[int], gate: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            *_convolution(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)
        )
        self.blocks, self.shortcuts = nn.ModuleList(), nn.ModuleList()
        self.features = nn.ModuleList()
        channels = width
        for stage, count in enumerate(blocks):
            inner = width << stage
            for i in range(count):
                stride = 2 if stage and i == 0 else 1
                fitted = nn.Sequential(*_convolution(channels, 4 * inner, 1, stride))
                self.blocks.append(_bottleneck(channels, inner, stride))
                self.shortcuts.append(nn.Identity() if i else fitted)
                channels = 4 * inner
                feature = nn.Linear(channels, gate)
                # Biases this large make an untrained gate certain, and blocks different.
                feature.bias = nn.Parameter(4 * torch.randn(gate))
                self.features.append(feature)
        self.gate = Cell(gate, gate)
        self.open = nn.Linear(gate, 1)
        self.classify = nn.Linear(channels, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.stem(image)
        x = torch.relu(self.blocks[0](x) + self.shortcuts[0](x))
        h = c = x.new_zeros(x.shape[0], self.gate.state.in_features)
        for feature, block, shortcut in zip(
            self.features, self.blocks[1:], self.shortcuts[1:], strict=False
        ):
            h, c = self.gate(feature(x.mean((2, 3))), h, c)
            mask = (self.open(h) > 0).to(x.dtype).reshape(-1, 1, 1, 1)
            passed = shortcut(x)
            if mask.sum() > 0:
                x = torch.relu(block(x) + passed) * mask + passed * (1 - mask)
            else:
                x = passed
        return self.classify(x.mean((2, 3)))


def _bottleneck(channels: int, inner: int, stride: int) -> nn.Module:
    return nn.Sequential(
        *(*_convolution(channels, inner, 1), nn.ReLU()),
        *(*_convolution(inner, inner, 3, stride), nn.ReLU()),
        *_convolution(inner, 4 * inner, 1),
    )


def _convolution(channels: int, filters: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(channels, filters, kernel, stride, kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(filters)]
