"""Convolutions and transposed ones, of one to three dimensions, in any layout."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tvm.relax import op

from tvm_tile.frontend.ops.values import dtype_of, shape_of
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.layouts import Layout, relayout, spatial_axes
from tvm_tile.frontend.relay.operators.products import operands, result_dtype
from tvm_tile.frontend.relay.operators.windows import numbers, paddings

_PLAIN = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}
_TRANSPOSED = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose, 3: op.nn.conv3d_transpose}


def convolution(
    call: OperatorCall, x: Value, kernel: Value, out: str, *, is_transposed: bool = False
) -> Value:
    """What the call's attributes make of some data and kernels, with elements of a type."""
    attributes = call.attributes
    layout, groups = str(attributes["data_layout"]), int(attributes["groups"])
    axes = spatial_axes(layout)
    rank = len(axes)
    if rank not in _PLAIN:
        raise ValueError(f"a convolution in layout {layout}")
    data = relayout(call, x, layout, "NC" + axes)
    read = _transposed_kernels if is_transposed else _kernels
    plain = read(call, kernel, axes, shape_of(data)[1], groups)
    outputs = shape_of(plain)[1] * groups if is_transposed else shape_of(plain)[0]
    channels = attributes.get("channels")
    if channels is not None and int(channels) != outputs:
        raise ValueError(f"{int(channels)} channels of kernels {list(shape_of(plain))}")
    moves: dict[str, Any] = {name: numbers(call, name, rank) for name in ("strides", "dilation")}
    moves["padding"] = paddings(call, rank)
    if is_transposed:
        moves["output_padding"] = numbers(call, "output_padding", rank, 0)
        _require_result(shape_of(data)[2:], shape_of(plain)[2:], **moves)
    data, plain, wide = operands(call, data, plain, out)
    if is_transposed and "int" in wide:  # None has a result of another type than the data.
        data, plain = call.cast(data, wide), call.cast(plain, wide)
    made = (_TRANSPOSED if is_transposed else _PLAIN)[rank](
        data,
        plain,
        **moves,
        groups=groups,
        data_layout="NC" + axes,
        kernel_layout=("IO" if is_transposed else "OI") + axes,
        out_dtype=None if wide == dtype_of(data) else wide,
    )
    result = call.cast(call.emit(made), out)
    return relayout(call, result, "NC" + axes, str(attributes.get("out_layout") or layout))


def _kernels(call: OperatorCall, kernel: Value, axes: str, channels: int, groups: int) -> Value:
    """Kernels with a row for each channel of the result.

    Those of a convolution of each channel alone may be [channels, kernels of each, ...].
    """
    plain = relayout(call, kernel, str(call.attributes["kernel_layout"]), "OI" + axes)
    outputs, inputs, *extents = shape_of(plain)
    if groups == channels == outputs and inputs > 1:
        return call.reshaped(plain, (outputs * inputs, 1, *extents))
    if groups < 1 or inputs * groups != channels or outputs % groups:
        raise ValueError(f"kernels {[outputs, inputs]} on {channels} channels, {groups} groups")
    return plain


def _transposed_kernels(
    call: OperatorCall, kernel: Value, axes: str, channels: int, _: int
) -> Value:
    """Kernels as [channels of the data, channels of a group of the result, ...].

    Up to TVM 0.8 layouts named these two the other way round, and what begins with OI never meant
    what it says: extents decide.
    """
    layout = str(call.attributes["kernel_layout"])
    if Layout.parse(layout).letters.startswith("OI"):
        layout = layout.translate(str.maketrans("OIoi", "IOio"))
    plain = relayout(call, kernel, layout, "IO" + axes)
    inputs, outputs, *_extents = shape_of(plain)
    if inputs != channels and outputs == channels:
        return call.permuted(plain, [1, 0, *range(2, 2 + len(axes))])
    if inputs != channels:
        raise ValueError(f"kernels {list(shape_of(kernel))} on {channels} channels")
    return plain


def _require_result(
    extents: Sequence[int],
    sizes: Sequence[int],
    *,
    strides: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
) -> None:
    if any(number >= stride for number, stride in zip(output_padding, strides, strict=True)):
        raise NotImplementedError(f"output_padding {output_padding} with strides {strides}")
    each = zip(extents, sizes, padding, padding[len(sizes) :], strides, dilation, strict=False)
    for extent, size, before, behind, stride, apart in each:
        if (extent - 1) * stride + (size - 1) * apart + 1 <= before + behind:
            raise ValueError(f"padding {list(padding)} of all that {list(extents)} elements make")


def _convolution(is_transposed: bool, call: OperatorCall, x: Value, kernel: Value) -> Value:
    return convolution(call, x, kernel, result_dtype(call, x), is_transposed=is_transposed)


def _backward_weight(call: OperatorCall, gradient: Value, data: Value, *, groups: int) -> Value:
    """The gradient of a convolution with respect to its kernels: what the gradient of its result,
    as kernels, makes of the data, with channels for batches. Steps between the places of one are
    the other's dilation.

    The attributes' names are those of a convolution; their layouts are, in this order, the
    gradient's, the data's and the kernels'.
    """
    out = result_dtype(call, gradient)
    gradient = relayout(call, gradient, str(call.attributes["data_layout"]), "NCHW")
    data = relayout(call, data, str(call.attributes["kernel_layout"]), "NCHW")
    batch, channels, *extents = shape_of(data)
    outputs = shape_of(gradient)[1]
    if groups < 1 or channels % groups or outputs % groups:
        raise ValueError(f"{channels} channels to {outputs} in {groups} groups")
    inputs = channels // groups
    parts = call.reshaped(data, (batch, groups, inputs, *extents))
    turned = call.reshaped(
        call.permuted(parts, [2, 1, 0, 3, 4]), (inputs, groups * batch, *extents)
    )
    x, kernel, wide = operands(call, turned, call.permuted(gradient, [1, 0, 2, 3]), out)
    made = op.nn.conv2d(
        x,
        kernel,
        strides=numbers(call, "dilation", 2),
        padding=paddings(call, 2),
        dilation=numbers(call, "strides", 2),
        groups=groups,
        out_dtype=None if wide == dtype_of(x) else wide,
    )
    sums = call.cast(call.emit(made), out)
    sizes = numbers(call, "kernel_size", 2)
    # Steps of the convolution may have left out the last rows and columns of the data.
    cut = call.sliced(sums, [range(inputs), range(outputs), *map(range, sizes)])
    layout = str(call.attributes.get("out_layout") or "OIHW")
    return relayout(call, call.permuted(cut, [1, 0, 2, 3]), "OIHW", layout)


_SAME = ("nn.contrib_conv2d_NCHWc", "nn.contrib_depthwise_conv2d_NCHWc")
CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(
        (*_SAME, *(f"nn.conv{rank}d" for rank in _PLAIN)), partial(_convolution, False)
    ),
    **{f"nn.conv{rank}d_transpose": partial(_convolution, True) for rank in _PLAIN},
    "nn.conv2d_backward_weight": _backward_weight,
}
