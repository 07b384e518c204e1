"""Mobile networks of inverted bottlenecks, each block of its own kind: those of searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

Activation = Callable[[], nn.Module]


@dataclass(frozen=True, slots=True)
class Stage:
    """Blocks of one width.

    Attributes:
        width: channels between blocks.
        stride: of the first block.
        activation: within blocks.
        squeezes: whether blocks weigh their channels by what is in all of them.
    """

    width: int
    stride: int
    activation: Activation
    squeezes: bool = False


# Cai et al., "Once-for-All", 2020: MobileNetV3-Large's stages.
ONCE_FOR_ALL = (
    Stage(24, 2, nn.ReLU),
    Stage(40, 2, nn.ReLU, squeezes=True),
    Stage(80, 2, nn.Hardswish),
    Stage(112, 1, nn.Hardswish, squeezes=True),
    Stage(160, 2, nn.Hardswish, squeezes=True),
)
# Cai et al., "ProxylessNAS", 2019.
PROXYLESS = tuple(
    Stage(width, stride, nn.ReLU6)
    for width, stride in ((24, 2), (40, 2), (80, 2), (96, 1), (192, 2), (320, 1))
)


def once_for_all(chosen: Mapping[str, int | str], classes: int = 1000) -> nn.Module:
    """Images (B, 3, H, W) to (B, classes).

    Args:
        chosen: ``"width"``, in per cent, and the block ``"stage0.00"`` and so on of each stage:
            window and expansion such as ``"3x6"``, or nothing where the block is left out.
        classes: outputs.
    """
    return nn.Sequential(
        *_body(chosen, _scaled(16, chosen), _scaled(16, chosen), nn.Hardswish, ONCE_FOR_ALL),
        *_convolution(_scaled(160, chosen), _scaled(960, chosen), 1, 1, nn.Hardswish),
        nn.AdaptiveAvgPool2d(1),
        nn.Conv2d(_scaled(960, chosen), _scaled(1280, chosen), 1, bias=False),
        nn.Hardswish(),
        nn.Flatten(),
        nn.Linear(_scaled(1280, chosen), classes),
    )


def proxyless(
    chosen: Mapping[str, int | str], classes: int = 1000, stages: Sequence[Stage] = PROXYLESS
) -> nn.Module:
    """The same without weighed channels; ``stages`` may be MobileNetV2's, too."""
    return nn.Sequential(
        *_body(chosen, _scaled(32, chosen), _scaled(16, chosen), nn.ReLU6, stages),
        *_convolution(_scaled(stages[-1].width, chosen), _scaled(1280, chosen), 1, 1, nn.ReLU6),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(_scaled(1280, chosen), classes),
    )


class InvertedBottleneck(nn.Module):
    """A convolution of single channels between two of single points; what comes in is added where
    it has the shape of what goes out.

    Args:
        channels: coming in.
        stage: what its blocks have in common.
        kind: window and expansion, such as ``"5x4"``.
        stride: of the window.
    """

    def __init__(self, channels: int, stage: Stage, kind: str, stride: int) -> None:
        super().__init__()
        window, expansion = kind.split("x")
        inner = _to_eights(channels * float(expansion))
        steps: list[nn.Module] = []
        if inner != channels:
            steps += _convolution(channels, inner, 1, 1, stage.activation)
        steps += _convolution(inner, inner, int(window), stride, stage.activation, groups=inner)
        if stage.squeezes:
            steps.append(SqueezeAndExcite(inner))
        self.steps = nn.Sequential(*steps, *_convolution(inner, stage.width, 1, 1))
        self.adds = stride == 1 and channels == stage.width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.steps(x) if self.adds else self.steps(x)


class SqueezeAndExcite(nn.Module):
    """Channels times weights that are computed from the means of all channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, _to_eights(channels / 4), 1)
        self.excite = nn.Conv2d(self.squeeze.out_channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        means = x.mean((2, 3), keepdim=True)
        return x * functional.hardsigmoid(self.excite(functional.relu(self.squeeze(means))))


def _body(
    chosen: Mapping[str, int | str],
    stem: int,
    first: int,
    activation: Activation,
    stages: Sequence[Stage],
) -> Iterator[nn.Module]:
    """The stem, a block that expands nothing, and the chosen ones."""
    yield from _convolution(3, stem, 3, 2, activation)
    # As in both papers, the first block has the activation of the first stage.
    yield InvertedBottleneck(stem, Stage(first, 1, stages[0].activation), "3x1", 1)
    channels = first
    for number, given in enumerate(stages):
        stage = Stage(_scaled(given.width, chosen), given.stride, given.activation, given.squeezes)
        stride = stage.stride
        for kind in _blocks(chosen, f"stage{number}."):
            yield InvertedBottleneck(channels, stage, kind, stride)
            channels, stride = stage.width, 1


def _blocks(chosen: Mapping[str, int | str], place: str) -> list[str]:
    return [str(kind) for key, kind in sorted(chosen.items()) if key.startswith(place) and kind]


def _convolution(
    channels: int,
    filters: int,
    window: int,
    stride: int,
    activation: Activation | None = None,
    groups: int = 1,
) -> list[nn.Module]:
    convolution = nn.Conv2d(
        channels, filters, window, stride, padding=window // 2, groups=groups, bias=False
    )
    norm = nn.BatchNorm2d(filters)
    return [convolution, norm] if activation is None else [convolution, norm, activation()]


def _scaled(width: int, chosen: Mapping[str, int | str]) -> int:
    return _to_eights(width * int(chosen["width"]) / 100)


def _to_eights(width: float) -> int:
    """The nearest multiple of eight, unless that is less than nine tenths."""
    nearest = max(8, int(width + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * width else nearest
