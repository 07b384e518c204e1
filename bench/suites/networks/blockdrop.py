"""BlockDrop: a small network decides which blocks of a larger one run."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class BlockDrop(nn.Module):
    """Images (B, 3, H, W) to (B, classes); H and W divisible by 4.

    Wu et al., "BlockDrop: Dynamic Inference Paths in Residual Networks", 2018: ResNet-32 with
    fifteen blocks, and a policy network with three. A block runs when an image wants it, and
    then on all images.

    Args:
        width: channels of the first of three stages; each doubles them.
        blocks: of every stage.
        classes: outputs.
    """

    def __init__(self, width: int, blocks: int, classes: int) -> None:
        super().__init__()
        self.policy = _FlatResNet(width, 1, 3 * blocks)
        self.network = _FlatResNet(width, blocks, classes)
        # A trained policy is certain; this one wants every second block.
        certain = torch.tensor([8.0 if i % 2 else -8.0 for i in range(3 * blocks)])
        self.policy.classify.bias = nn.Parameter(certain)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        # A probability of one half is a logit of zero.
        wanted = (self.policy(image) > 0).to(image.dtype)
        x = self.network.stem(image)
        for action, block, shortcut in zip(
            wanted.unbind(1), self.network.blocks, self.network.shortcuts, strict=True
        ):
            x = shortcut(x) if action.sum() == 0 else _mixed(block, shortcut, x, action)
        return self.network.classify(x.mean((2, 3)))


def _mixed(
    block: nn.Module, shortcut: nn.Module, x: torch.Tensor, action: torch.Tensor
) -> torch.Tensor:
    """The block for the images that want it, its shortcut for the others."""
    passed, mask = shortcut(x), action.reshape(-1, 1, 1, 1)
    return torch.relu(block(x) + passed) * mask + passed * (1 - mask)


class _FlatResNet(nn.Module):
    """A residual network with its blocks in one list."""

    def __init__(self, width: int, blocks: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_convolution(3, width, 1), nn.ReLU())
        self.blocks, self.shortcuts = nn.ModuleList(), nn.ModuleList()
        channels = width
        for stage in range(3):
            for _ in range(blocks):
                filters = width << stage
                halves = filters != channels
                self.blocks.append(_block(channels, filters, 2 if halves else 1))
                self.shortcuts.append(_Halve() if halves else nn.Identity())
                channels = filters
        self.classify = nn.Linear(channels, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.stem(image)
        for block, shortcut in zip(self.blocks, self.shortcuts, strict=True):
            x = torch.relu(block(x) + shortcut(x))
        return self.classify(x.mean((2, 3)))


class _Halve(nn.Module):
    """Half the resolution, and as many zero channels beside."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.avg_pool2d(x, 2)
        return torch.cat([x, torch.zeros_like(x)], dim=1)


def _block(channels: int, filters: int, stride: int) -> nn.Module:
    return nn.Sequential(
        *(*_convolution(channels, filters, stride), nn.ReLU()), *_convolution(filters, filters, 1)
    )


def _convolution(channels: int, filters: int, stride: int) -> list[nn.Module]:
    convolution = nn.Conv2d(channels, filters, 3, stride, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(filters)]
