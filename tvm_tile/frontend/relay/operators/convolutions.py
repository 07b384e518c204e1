"""Convolutions, of one to three dimensions, in any layout."""

from __future__ import annotations

from tvm.relax import op

from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.layouts import relayout, spatial_axes
from tvm_tile.frontend.relay.operators.products import operands, result_dtype
from tvm_tile.frontend.relay.operators.windows import numbers, paddings
from tvm_tile.frontend.relay.values import (
    cast,
    dtype_of,
    permuted,
    reshaped,
    shape_of,
    sliced,
)

_OPERATORS = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}


def convolution(call: OperatorCall, x: Value, kernel: Value, out: str) -> Value:
    """What the call's attributes make of some data and kernels, with elements of a type."""
    attributes = call.attributes
    layout = str(attributes["data_layout"])
    axes = spatial_axes(layout)
    rank = len(axes)
    if rank not in _OPERATORS:
        raise ValueError(f"a convolution in layout {layout}")
    groups = int(attributes["groups"])
    data = relayout(call, x, layout, "NC" + axes)
    plain = relayout(call, kernel, str(attributes["kernel_layout"]), "OI" + axes)
    plain = _by_groups(call, plain, shape_of(data)[1], groups)
    channels = attributes.get("channels")
    if channels is not None and int(channels) != shape_of(plain)[0]:
        raise ValueError(f"{int(channels)} channels of kernels {list(shape_of(plain))}")
    data, plain, wide = operands(call, data, plain, out)
    made = _OPERATORS[rank](
        data,
        plain,
        strides=numbers(call, "strides", rank),
        padding=paddings(call, rank),
        dilation=numbers(call, "dilation", rank),
        groups=groups,
        data_layout="NC" + axes,
        kernel_layout="OI" + axes,
        out_dtype=None if wide == dtype_of(data) else wide,
    )
    result = cast(call, call.emit(made), out)
    return relayout(call, result, "NC" + axes, str(attributes.get("out_layout") or layout))


def _by_groups(call: OperatorCall, kernel: Value, channels: int, groups: int) -> Value:
    """Kernels with a row for each channel of the result.

    Those of a convolution of each channel alone may be [channels, kernels of each, ...].
    """
    outputs, inputs, *extents = shape_of(kernel)
    if groups == channels == outputs and inputs > 1:
        return reshaped(call, kernel, (outputs * inputs, 1, *extents))
    if groups < 1 or inputs * groups != channels or outputs % groups:
        raise ValueError(f"kernels {[outputs, inputs]} on {channels} channels, {groups} groups")
    return kernel


def _convolution(call: OperatorCall) -> Value:
    x, kernel = call.arguments
    return convolution(call, x, kernel, result_dtype(call, x))


def _backward_weight(call: OperatorCall) -> Value:
    """The gradient of a convolution with respect to its kernels: what the gradient of its result,
    as kernels, makes of the data, with channels for batches. Steps between the places of one are
    the other's dilation.

    The attributes' names are those of a convolution; their layouts are, in this order, the
    gradient's, the data's and the kernels'.
    """
    gradient, data = call.arguments
    attributes = call.attributes
    out = result_dtype(call, gradient)
    gradient = relayout(call, gradient, str(attributes["data_layout"]), "NCHW")
    data = relayout(call, data, str(attributes["kernel_layout"]), "NCHW")
    batch, channels, *extents = shape_of(data)
    outputs, groups = shape_of(gradient)[1], int(attributes["groups"])
    if groups < 1 or channels % groups or outputs % groups:
        raise ValueError(f"{channels} channels to {outputs} in {groups} groups")
    inputs = channels // groups
    parts = reshaped(call, data, (batch, groups, inputs, *extents))
    turned = permuted(call, parts, [2, 1, 0, 3, 4])
    turned = reshaped(call, turned, (inputs, groups * batch, *extents))
    x, kernel, wide = operands(call, turned, permuted(call, gradient, [1, 0, 2, 3]), out)
    made = op.nn.conv2d(
        x,
        kernel,
        strides=numbers(call, "dilation", 2),
        padding=paddings(call, 2),
        dilation=numbers(call, "strides", 2),
        groups=groups,
        out_dtype=None if wide == dtype_of(x) else wide,
    )
    sums = cast(call, call.emit(made), out)
    sizes = numbers(call, "kernel_size", 2)
    # Steps of the convolution may have left out the last rows and columns of the data.
    cut = sliced(call, sums, [range(inputs), range(outputs), *map(range, sizes)])
    layout = str(attributes.get("out_layout") or "OIHW")
    return relayout(call, permuted(call, cut, [1, 0, 2, 3]), "OIHW", layout)


CONVERTERS: dict[str, Converter] = {
    "nn.contrib_conv2d_NCHWc": _convolution,
    "nn.contrib_depthwise_conv2d_NCHWc": _convolution,
    "nn.conv1d": _convolution,
    "nn.conv2d": _convolution,
    "nn.conv2d_backward_weight": _backward_weight,
    "nn.conv3d": _convolution,
}
