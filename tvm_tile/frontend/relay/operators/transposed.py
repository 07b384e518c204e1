"""Transposed convolutions, of one to three dimensions, in any layout."""

from __future__ import annotations

from collections.abc import Sequence

from tvm.relax import op

from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.layouts import Layout, relayout, spatial_axes
from tvm_tile.frontend.relay.operators.products import operands, result_dtype
from tvm_tile.frontend.relay.operators.windows import numbers, paddings
from tvm_tile.frontend.relay.values import cast, dtype_of, permuted, shape_of

_OPERATORS = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose, 3: op.nn.conv3d_transpose}


def transposed_convolution(call: OperatorCall, x: Value, kernel: Value, out: str) -> Value:
    """What the call's attributes make of some data and kernels, with elements of a type."""
    attributes = call.attributes
    layout = str(attributes["data_layout"])
    axes = spatial_axes(layout)
    rank = len(axes)
    if rank not in _OPERATORS:
        raise ValueError(f"a transposed convolution in layout {layout}")
    groups = int(attributes["groups"])
    data = relayout(call, x, layout, "NC" + axes)
    plain = _kernels(call, kernel, axes, shape_of(data)[1])
    channels = attributes.get("channels")
    if channels is not None and int(channels) != shape_of(plain)[1] * groups:
        raise ValueError(f"{int(channels)} channels of kernels {list(shape_of(plain))}")
    strides, dilation = numbers(call, "strides", rank), numbers(call, "dilation", rank)
    added = _added(call, rank, strides)
    padding = paddings(call, rank)
    _require_result(shape_of(data)[2:], shape_of(plain)[2:], padding, strides, dilation)
    data, plain, wide = operands(call, data, plain, out)
    if "int" in wide:  # There is no operator whose result has another type than the data.
        data, plain = cast(call, data, wide), cast(call, plain, wide)
    made = _OPERATORS[rank](
        data,
        plain,
        strides=strides,
        padding=padding,
        output_padding=added,
        dilation=dilation,
        groups=groups,
        data_layout="NC" + axes,
        kernel_layout="IO" + axes,
        out_dtype=None if wide == dtype_of(data) else wide,
    )
    result = cast(call, call.emit(made), out)
    return relayout(call, result, "NC" + axes, str(attributes.get("out_layout") or layout))


def _kernels(call: OperatorCall, kernel: Value, axes: str, channels: int) -> Value:
    """Kernels as [channels of the data, channels of a group of the result, ...].

    Up to TVM 0.8 layouts named these two the other way round, and what begins with OI never meant
    what it says: extents decide.
    """
    layout = str(call.attributes["kernel_layout"])
    if Layout.parse(layout).letters.startswith("OI"):
        layout = layout.translate(str.maketrans("OIoi", "IOio"))
    plain = relayout(call, kernel, layout, "IO" + axes)
    inputs, outputs, *_ = shape_of(plain)
    if inputs != channels and outputs == channels:
        plain = permuted(call, plain, [1, 0, *range(2, 2 + len(axes))])
    elif inputs != channels:
        raise ValueError(f"kernels {list(shape_of(kernel))} on {channels} channels")
    return plain


def _require_result(
    extents: Sequence[int],
    sizes: Sequence[int],
    padding: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
) -> None:
    each = zip(extents, sizes, padding, padding[len(sizes) :], strides, dilation, strict=False)
    for extent, size, before, behind, stride, apart in each:
        if (extent - 1) * stride + (size - 1) * apart + 1 <= before + behind:
            raise ValueError(f"padding {list(padding)} of all that {list(extents)} elements make")


def _added(call: OperatorCall, rank: int, strides: list[int]) -> list[int]:
    """What is added behind the result along each axis."""
    added = [int(number) for number in call.attributes["output_padding"]]
    added = added * rank if len(added) == 1 else added
    if len(added) != rank or min(added) < 0:
        raise ValueError(f"output_padding {added} for {rank} axes")
    if any(number >= stride for number, stride in zip(added, strides, strict=True)):
        raise NotImplementedError(f"output_padding {added} with strides {strides}")
    return added


def _transposed_convolution(call: OperatorCall) -> Value:
    x, kernel = call.arguments
    return transposed_convolution(call, x, kernel, result_dtype(call, x))


CONVERTERS: dict[str, Converter] = {
    "nn.conv1d_transpose": _transposed_convolution,
    "nn.conv2d_transpose": _transposed_convolution,
    "nn.conv3d_transpose": _transposed_convolution,
}
