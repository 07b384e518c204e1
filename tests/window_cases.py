"""Small functions whose windows a thread reads and stores several elements at a time, or must not.

Halves are for GPUs only: the emulated device has none.
"""

from __future__ import annotations

from typing import Any

from kernel_bodies import case, conv, pool
from kernels import Input
from tvm.relax import op


def half(*shape: int) -> Input:
    return Input(shape, "float16")


def channels_last(groups: int, **options: Any) -> Any:
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
    return conv(groups=groups, out_dtype="float32", **layouts, **options)


def along(groups: int, **options: Any) -> Any:
    return lambda x, w: op.nn.conv1d(x, w, groups=groups, out_dtype="float32", **options)


def normalized(x: Any, w: Any, b: Any) -> Any:
    """What follows in a conformer: to half precision, a bias, and a gate."""
    y = op.nn.conv1d(x, w, groups=6, padding=15, out_dtype="float32")
    z = op.astype(op.add(op.astype(y, "float16"), b), "float32")
    return op.astype(op.multiply(z, op.sigmoid(z)), "float16")


def rounded(x: Any, w: Any, b: Any) -> Any:
    y = op.nn.conv2d(x, w, groups=16, padding=1, data_layout="NHWC", kernel_layout="OHWI",
                     out_layout="NHWC", out_dtype="float32")  # fmt: skip
    return op.add(op.astype(y, "float16"), b)


HALVES = (
    case("conv_depthwise_half", "window", conv(padding=1, groups=4, out_dtype="float32"),
         half(1, 4, 23, 13), half(4, 1, 3, 3)),
    case("max_pool_half", "window", pool("max_pool2d", 3, strides=2, padding=1),
         half(2, 3, 13, 15)),
    # Rows of odd lengths begin anywhere, and so do windows with gaps.
    case("conv1d_depthwise_odd", "window", along(6, padding=3), half(2, 6, 31), half(6, 1, 7)),
    case("conv1d_depthwise_gaps", "window", along(6, padding=4, dilation=2),
         half(2, 6, 32), half(6, 1, 5)),
    case("conv_nhwc_depthwise_odd", "window", channels_last(7, padding=1),
         half(1, 9, 11, 7), half(7, 3, 3, 1)),
)  # fmt: skip

VECTORS = (
    # Along the strip, whose first window begins anywhere in a vector.
    case("conv1d_depthwise_vectors", "window", along(6, padding=3), half(2, 6, 48), half(6, 1, 7)),
    case("conv1d_depthwise_valid", "window", along(6), half(2, 6, 36), half(6, 1, 5)),
    case("conv1d_depthwise_causal", "window", along(6, padding=(6, 0)),
         half(2, 6, 24), half(6, 1, 7)),
    case("conv1d_depthwise_step", "window", along(6, padding=(2, 1), strides=2),
         half(2, 6, 48), half(6, 1, 5)),
    case("conv1d_depthwise_float", "window", along(6, padding=2), (2, 6, 40), (6, 1, 5)),
    case("conv1d_depthwise_gate", "window", normalized,
         half(2, 6, 56), half(6, 1, 31), half(1, 6, 1)),
    case("max_pool1d_vectors", "window", pool("max_pool1d", 3, padding=1), half(2, 5, 24)),
    # Channels.
    case("conv_nhwc_depthwise_half", "window", channels_last(12, padding=1),
         half(2, 13, 11, 12), half(12, 3, 3, 1)),
    case("conv_nhwc_depthwise_half_step", "window", channels_last(16, padding=2, strides=2),
         half(1, 15, 17, 16), half(16, 5, 5, 1)),
    case("conv_nhwc_depthwise_gaps", "window", channels_last(8, padding=2, dilation=2),
         half(1, 15, 17, 8), half(8, 3, 3, 1)),
    case("conv_nhwc_depthwise_bias", "window", rounded,
         half(2, 13, 11, 16), half(16, 3, 3, 1), half(16)),
    case("max_pool_nhwc", "window", pool("max_pool2d", 3, strides=2, padding=1, layout="NHWC"),
         (2, 13, 15, 8)),
)  # fmt: skip
