"""Products with windows over their values, and products behind these, for one kernel each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernels import Case, Input
from tvm import relax
from tvm.relax import op

Body = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution of an inverted bottleneck, and what follows it.

    Attributes:
        window: its height and width.
        channels: that it makes.
        after: what follows its bias.
        is_dense: whether a sum is of all channels, or of one.
        layout: of its weights.
        options: of the convolution.
    """

    window: tuple[int, int]
    channels: int
    after: Body
    is_dense: bool
    layout: str = "OHWI"
    options: tuple[tuple[str, Any], ...] = ()


def relu(x: Any, _: str) -> Any:
    return op.nn.relu(x)


def gate(x: Any, _: str) -> Any:
    halves = op.split(x, 2, axis=-1)
    return op.multiply(relax.TupleGetItem(halves, 0), relax.TupleGetItem(halves, 1))


def silu(x: Any, dtype: str) -> Any:
    wide = op.astype(x, "float32")
    return op.astype(op.multiply(wide, op.sigmoid(wide)), dtype)


def gelu(x: Any, dtype: str) -> Any:
    return op.astype(op.nn.gelu(op.astype(x, "float32")), dtype)


def plain(x: Any, _: str) -> Any:
    return x


def pointwise(channels: int, after: Body = relu, layout: str = "OHWI") -> Layer:
    return Layer((1, 1), channels, after, is_dense=True, layout=layout)


def depthwise(
    channels: int, size: int | tuple[int, int] = 3, after: Body = relu, **options: Any
) -> Layer:
    window = (size, size) if isinstance(size, int) else size
    return Layer(window, channels, after, is_dense=False, options=tuple(options.items()))


def stacked(
    name: str, image: tuple[int, ...], *layers: Layer, dtype: str = "float16", add: bool = False
) -> Case:
    """Layers one behind the other, channels last; ``add`` is for the input added in the end."""
    shapes: list[tuple[int, ...]] = [image]
    groups = []
    channels = image[-1]
    for layer in layers:
        sizes = dict(zip("OHW", (layer.channels, *layer.window), strict=True))
        sizes["I"] = channels if layer.is_dense else 1
        shapes.append(tuple(sizes[letter] for letter in layer.layout))
        shapes.append((1, 1, 1, layer.channels))
        groups.append(1 if layer.is_dense else channels)
        channels = layer.channels // (2 if layer.after is gate else 1)

    def body(x: Any, *weights: Any) -> Any:
        value = x
        for number, layer in enumerate(layers):
            kernel, bias = weights[2 * number : 2 * number + 2]
            options = {"data_layout": "NHWC", "kernel_layout": layer.layout}
            options |= {"groups": groups[number], "out_dtype": "float32"}
            wide = op.nn.conv2d(value, kernel, **options, **dict(layer.options))
            value = layer.after(op.add(op.astype(wide, dtype), bias), dtype)
        return op.add(value, x) if add else value

    return Case(name, "halo", body, tuple(Input(shape, dtype) for shape in shapes))


def _bottlenecks() -> list[Case]:
    whole = (pointwise(96), depthwise(96, padding=1), pointwise(24, plain))
    return [
        stacked("bottleneck", (2, 14, 14, 24), *whole),
        stacked("bottleneck_residual", (2, 14, 14, 24), *whole, add=True),
        stacked("bottleneck_bfloat16", (1, 9, 17, 24), *whole, dtype="bfloat16"),
        stacked("bottleneck_7x7", (3, 7, 7, 32), *whole),
        stacked(
            "bottleneck_strides",
            (2, 15, 13, 16),
            pointwise(64),
            depthwise(64, padding=1, strides=2),
            pointwise(40, plain),
        ),
        stacked(
            "bottleneck_silu",
            (1, 12, 20, 32),
            pointwise(128, silu),
            depthwise(128, 5, silu, padding=2),
            pointwise(200, plain),
        ),
        stacked(
            "bottleneck_unpadded",
            (1, 12, 20, 16),
            pointwise(32),
            depthwise(32, (3, 1)),
            pointwise(16, gelu),
        ),
        stacked(
            "bottleneck_gated",
            (2, 16, 16, 16),
            pointwise(64, plain),
            depthwise(64, 3, gate, padding=1),
            pointwise(16, plain),
            add=True,
        ),
    ]


def _halves() -> list[Case]:
    return [
        stacked("half", (2, 14, 14, 24), pointwise(96), depthwise(96, padding=1)),
        stacked(
            "half_dilated", (1, 21, 18, 48), pointwise(48), depthwise(48, padding=2, dilation=2)
        ),
        stacked(
            "half_gated", (1, 24, 24, 32), pointwise(64, plain), depthwise(64, 3, gate, padding=1)
        ),
        stacked(
            "half_gelu", (1, 31, 33, 16), pointwise(32, gelu), depthwise(32, 3, gelu, padding=1)
        ),
        stacked("half_odd_depth", (1, 10, 10, 20), pointwise(32), depthwise(32, padding=1)),
    ]


def _feed_forwards() -> list[Case]:
    return [
        stacked(
            "feed_forward", (2, 9, 9, 32), pointwise(128, gelu), pointwise(32, plain), add=True
        ),
        stacked("feed_forward_gated", (1, 8, 8, 16), pointwise(64, gate), pointwise(48, plain)),
        stacked("feed_forward_wide", (1, 5, 40, 96), pointwise(384), pointwise(192, plain)),
    ]


HALO_CASES = (*_bottlenecks(), *_halves(), *_feed_forwards())
