"""ONNX's quantized operators, as integer arithmetic and one rounding.

Sums of products of 8-bit integers are exact in int32, as ONNX defines them; scales and rounding
are in float32 (or in the scale's type).
"""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

from tvm_tile.frontend.onnx.model import dtype_name
from tvm_tile.frontend.onnx.node import Node, axis_of
from tvm_tile.frontend.ops.values import Value, along, constant, dtype_of, shape_of

_INTEGERS = frozenset({"int8", "uint8", "int16", "uint16", "int32"})
_FLOATS = {"float8_e4m3fn": 448.0}  # that numbers are rounded to, and the largest one


def convert_quantize(node: Node) -> Value:
    """QuantizeLinear: by one scale, by one for each place along an axis, or for each block."""
    x, scale, zero = node.inputs[0], node.inputs[1], node.input(2)
    code = int(node.attrs.get("output_dtype", 0))
    dtype = dtype_of(zero) if zero is not None else dtype_name(code) if code else "uint8"
    if code and dtype_name(code) != dtype:
        raise ValueError(f"output_dtype {dtype_name(code)} with zero points of {dtype}")
    x = x if "float" in dtype_of(x) else op.astype(x, dtype_of(scale))
    # From opset 23 on an attribute may ask for another precision of the division.
    precision = int(node.attrs.get("precision", 0))
    wide = dtype_name(precision) if precision else "float32"
    wide = "float64" if dtype_of(x) == "float64" else wide
    scale, zero = (_spread(node, value, x) for value in (scale, zero))
    x, scale = node.emit(op.astype(x, wide)), op.astype(scale, wide)
    if dtype in _FLOATS:
        return _rounded(node, op.divide(x, scale), dtype)
    return _quantized(x, scale, zero, dtype)


def convert_dequantize(node: Node) -> Value:
    """DequantizeLinear; of constants, of floats of 8 bits of any kind."""
    x, scale, zero = node.inputs[0], node.inputs[1], node.input(2)
    is_constant = node.constant(0) is not None and dtype_of(x).startswith("float8")
    if not is_constant and dtype_of(x) not in _FLOATS:
        _require_integers(dtype_of(x))
    scale_dtype = dtype_of(scale)
    scale, zero = (_spread(node, value, x) for value in (scale, zero))
    code = int(node.attrs.get("output_dtype", 0))
    wide = "float32" if dtype_of(x).startswith("float8") else "int32"
    difference = op.astype(x, wide)
    if zero is not None:
        difference = op.subtract(difference, op.astype(zero, wide))
    # float16 and bfloat16 cannot hold every difference: one rounding, at the end.
    result = op.multiply(op.astype(difference, "float32"), op.astype(scale, "float32"))
    return op.astype(result, dtype_name(code) if code else scale_dtype)


def convert_dynamic_quantize(node: Node) -> Value:
    """DynamicQuantizeLinear: scale and zero point follow from the extremes, zero among them."""
    x = node.inputs[0]
    nothing = constant(0, "float32")
    low = node.emit(op.minimum(op.min(x), nothing))
    scale = node.emit((op.maximum(op.max(x), nothing) - low) / constant(255, "float32"))
    # All zeros: any scale will do, and ONNX Runtime's is 1.
    safe = node.emit(op.where(op.equal(scale, nothing), constant(1, "float32"), scale))
    zero = op.clip(op.round(op.divide(op.negative(low), safe)), 0, 255)
    zero = node.emit(op.astype(zero, "uint8"))
    return relax.Tuple([node.emit(_quantized(x, safe, zero, "uint8")), scale, zero])


def convert_quantized_matmul(node: Node) -> Value:
    """Convert QLinearMatMul: codes are multiplied as integers, and sums scaled in float32."""
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = node.inputs
    rank = len(a.ty.shape)
    # Of the left factor one for each row, of the right one for each column.
    rows = [v if len(v.ty.shape) != 1 else op.expand_dims(v, -1) for v in (a_scale, a_zero)]
    product = op.matmul(_shifted(node, a, rows[1]), _shifted(node, b, b_zero))
    if rank == 0:
        raise ValueError("a factor without dimensions")
    factor = op.multiply(*(op.astype(v, "float32") for v in (rows[0], b_scale)))
    real = op.multiply(op.astype(node.emit(product), "float32"), factor)
    return _quantized(node.emit(real), op.astype(scale, "float32"), zero, dtype_of(zero))


def convert_matmul_integer(node: Node) -> Value:
    """Convert MatMulInteger: codes less their zero points, multiplied as integers."""
    a, b, a_zero, b_zero = (node.input(i) for i in range(4))
    if a_zero is not None and len(a_zero.ty.shape) == 1:
        a_zero = op.expand_dims(a_zero, -1)
    return op.matmul(_shifted(node, a, a_zero), _shifted(node, b, b_zero))


def convert_quantized_conv(node: Node) -> Value:
    """Convert QLinearConv: codes are summed as integers, and sums scaled in float32."""
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero, bias = (node.input(i) for i in range(9))
    rank = len(x.ty.shape)
    total = _integer_conv(node, x, x_zero, w, w_zero)
    if bias is not None:
        total = op.add(total, along(bias, 1, rank))
    if len(w_scale.ty.shape) == 1:
        w_scale = along(w_scale, 1, rank)
    real = op.multiply(op.astype(node.emit(total), "float32"), op.multiply(x_scale, w_scale))
    return _quantized(node.emit(real), scale, zero, dtype_of(zero))


def convert_conv_integer(node: Node) -> Value:
    """Convert ConvInteger: a convolution of codes less their zero points, in integers."""
    x, w, x_zero, w_zero = (node.input(i) for i in range(4))
    return _integer_conv(node, x, x_zero, w, w_zero)


_CONVOLUTIONS = {
    3: (op.nn.conv1d, "NCW", "OIW"),
    4: (op.nn.conv2d, "NCHW", "OIHW"),
    5: (op.nn.conv3d, "NCDHW", "OIDHW"),
}


def _integer_conv(
    node: Node, x: Value, x_zero: Value | None, w: Value, w_zero: Value | None
) -> Value:
    """The padding is of zero points, hence of zeros once these are taken off."""
    rank = len(x.ty.shape)
    if w_zero is not None and len(w_zero.ty.shape) == 1:
        w_zero = along(w_zero, 0, rank)
    convolve, layout, kernel_layout = _CONVOLUTIONS[rank]
    strides, dilations = (node.numbers(name, rank - 2, 1) for name in ("strides", "dilations"))
    pads = node.pads(shape_of(x)[2:], shape_of(w)[2:], strides, dilations)
    return convolve(
        _shifted(node, x, x_zero),
        _shifted(node, w, w_zero),
        strides=strides,
        padding=pads,
        dilation=dilations,
        groups=int(node.attrs.get("group", 1)),
        data_layout=layout,
        kernel_layout=kernel_layout,
    )


def _shifted(node: Node, x: Value, zero: Value | None) -> Value:
    wide = op.astype(x, "int32")
    return node.emit(wide if zero is None else op.subtract(wide, op.astype(zero, "int32")))


def _quantized(x: Value, scale: Value, zero: Value | None, dtype: str) -> Value:
    """``x / scale``, rounded to even, moved by the zero point, within the type's bounds."""
    _require_integers(dtype)
    number = op.round(op.divide(x, scale))
    if zero is not None:
        number = op.add(number, op.astype(zero, dtype_of(x)))
    bounds = np.iinfo(dtype)
    return op.astype(op.clip(number, bounds.min, bounds.max), dtype)


def _rounded(node: Node, number: Value, dtype: str) -> Value:
    """A number as a float of 8 bits; of one that is too large, the largest."""
    zero = node.constant(2)
    if not int(node.attrs.get("saturate", 1)):
        raise NotImplementedError(f"quantization to {dtype} that does not saturate")
    if node.input(2) is not None and (zero is None or zero.astype(np.float32).any()):
        raise NotImplementedError(f"quantization to {dtype} with a zero point that is not 0")
    limit = _FLOATS[dtype]
    return op.astype(node.emit(op.clip(node.emit(number), -limit, limit)), dtype)


def _spread(node: Node, value: Value | None, x: Value) -> Value | None:
    """A parameter of quantization in a shape that broadcasts with ``x``."""
    if value is None:
        return None
    shape, extents = shape_of(value), shape_of(x)
    block = int(node.attrs.get("block_size", 0))
    if not block:
        if not shape or (shape == (1,) and len(extents) != 1):
            return op.reshape(value, ())
        axis = axis_of(node, 1, len(extents))
        if len(shape) != 1 or shape[0] != extents[axis]:
            raise ValueError(f"{list(shape)} scales for an axis of {extents[axis]}")
        return along(value, axis, len(extents))
    axis = axis_of(node, 1, len(extents))
    if len(shape) != len(extents) or shape[axis] != -(-extents[axis] // block):
        raise ValueError(f"{list(shape)} scales for blocks of {block} of {list(extents)}")
    repeated = node.emit(op.repeat(value, block, axis))
    return op.strided_slice(repeated, [axis], [0], [extents[axis]])


def _require_integers(dtype: str) -> None:
    if dtype not in _INTEGERS:
        raise NotImplementedError(f"quantization to {dtype}")
