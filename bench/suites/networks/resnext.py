"""ResNeXt for small images, with its branches side by side or as grouped convolutions."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class ResNeXt(nn.Module):
    """Images (B, 3, H, W) to (B, classes); 29 layers with three blocks a stage.

    Xie et al., "Aggregated Residual Transformations for Deep Neural Networks", 2017. Rammer
    measured the paper's first form, in which the branches are separate operators.

    Args:
        blocks: of each of the three stages of 64, 128 and 256 channels.
        cardinality: branches of a block.
        depth: channels of a branch.
        classes: outputs.
        grouped: write the branches of a block as one grouped convolution.
    """

    def __init__(
        self, blocks: int, cardinality: int, depth: int, classes: int, *, grouped: bool = False
    ) -> None:
        super().__init__()
        branches = _Grouped if grouped else _Branches
        self.stem = _convolution(3, 64, 3)
        units, channels = [], 64
        for filters in (64, 128, 256):
            for _ in range(blocks):
                stride = 1 if filters == channels else 2
                split = branches(channels, cardinality, depth, stride)
                units.append(_Block(split, channels, filters, cardinality * depth))
                channels = filters
        self.units = nn.Sequential(*units)
        self.classify = nn.Linear(channels, classes, bias=False)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.classify(self.units(self.stem(image)).mean((2, 3)))


def _convolution(
    channels: int, filters: int, kernel: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, filters, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(filters),
        nn.ReLU(),
    )


class _Branches(nn.Module):
    """Each branch: 1×1 to ``depth`` channels, then 3×3; their outputs side by side."""

    def __init__(self, channels: int, cardinality: int, depth: int, stride: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(_convolution(channels, depth, 1, stride), _convolution(depth, depth, 3))
            for _ in range(cardinality)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class _Grouped(nn.Sequential):
    """All branches at once."""

    def __init__(self, channels: int, cardinality: int, depth: int, stride: int) -> None:
        width = cardinality * depth
        super().__init__(
            _convolution(channels, width, 1, stride),
            _convolution(width, width, 3, groups=cardinality),
        )


class _Block(nn.Module):
    def __init__(self, split: nn.Module, channels: int, filters: int, width: int) -> None:
        super().__init__()
        self.split = split
        self.merge = nn.Sequential(
            nn.Conv2d(width, filters, 1, bias=False), nn.BatchNorm2d(filters)
        )
        self.added = (filters - channels) // 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.merge(self.split(x))
        if self.added:
            x = F.pad(F.avg_pool2d(x, 2), (0, 0, 0, 0, self.added, self.added))
        return torch.relu(y + x)


def grouped_weights(branches: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The state of a grouped :class:`ResNeXt` from that of one with separate branches."""
    state: dict[str, torch.Tensor] = {}
    parts: dict[str, list[torch.Tensor]] = {}
    for name, tensor in branches.items():
        unit, found, rest = name.partition(".branches.")
        if found:
            parts.setdefault(f"{unit}.{rest.partition('.')[2]}", []).append(tensor)
        else:
            state[name] = tensor
    for name, tensors in parts.items():
        state[name] = torch.cat(tensors) if tensors[0].ndim else tensors[0]
    return state
