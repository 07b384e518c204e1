"""Define ONNX Runtime's operators on codes of 8 and 16 bits by standard ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tvm_tile.frontend.onnx.microsoft.function_body import FunctionBody

_ALL_TYPES_SINCE = 21  # opset of QuantizeLinear
_PER_AXIS_SINCE = 13


def _decoded(b: FunctionBody, place: int) -> str:
    """The numbers of three inputs: codes, a scale, and a zero point that may be left out."""
    return str(b("DequantizeLinear", *(b.input(place + i) for i in range(3))))


def _encoded(b: FunctionBody, x: str, place: int) -> tuple[str, ...]:
    """Codes of numbers, by the inputs scale and zero point; of the first input's type."""
    zero = b.input(place + 1) or np.zeros((), b.dtype(b.input(0)))
    return (b("QuantizeLinear", x, b.input(place), zero),)


def write_binary(b: FunctionBody) -> tuple[str, ...]:
    """QLinearAdd and QLinearMul: the codes of a sum or a product of numbers."""
    op_type = b.node.op_type.removeprefix("QLinear")
    return _encoded(b, b(op_type, _decoded(b, 0), _decoded(b, 3)), 6)


def write_unary(b: FunctionBody) -> tuple[str, ...]:
    """QLinearSigmoid, QLinearLeakyRelu, and pools, whose channels may be last."""
    op_type = b.node.op_type.removeprefix("QLinear")
    return _encoded(b, _channels_first(b, op_type, _decoded(b, 0)), 3)


def _channels_first(b: FunctionBody, op_type: str, x: str, *others: str) -> str:
    """An operator with the node's attributes, turned around it where the node's channels are last.

    Args:
        b: of the node.
        op_type: the operator's, whose channels are first.
        x: of the shape of the node's first input.
        others: its further operands.
    """
    attributes = {a.name: b.attribute(a.name) for a in b.node.attribute}
    if not attributes.pop("channels_last", 0):
        return str(b(op_type, x, *others, **attributes))
    rank = len(b.shape(b.input(0)))
    turned = b("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])
    y = b(op_type, turned, *others, **attributes)
    return str(b("Transpose", y, perm=[0, *range(2, rank), 1]))


def write_softmax(b: FunctionBody) -> tuple[str, ...]:
    """QLinearSoftmax; before opset 13 it is along all axes from the given one on."""
    extents = b.shape(b.input(0))
    axis = int(b.attribute("axis", -1)) % len(extents)
    x = _decoded(b, 0)
    if axis == len(extents) - 1:
        y = b("Softmax", x, axis=-1)
    elif b.integer("opset") >= _PER_AXIS_SINCE:
        order = list(range(len(extents)))
        order[axis], order[-1] = order[-1], order[axis]
        y = b("Transpose", b("Softmax", b("Transpose", x, perm=order), axis=-1), perm=order)
    else:
        rows = b("Reshape", x, [math.prod(extents[:axis]), math.prod(extents[axis:])])
        y = b("Reshape", b("Softmax", rows, axis=-1), list(extents))
    return _encoded(b, y, 3)


def write_concat(b: FunctionBody) -> tuple[str, ...]:
    """QLinearConcat, whose scale and zero point come first."""
    parts = [_decoded(b, place) for place in range(2, len(b.node.input), 3)]
    whole = b("Concat", *parts, axis=b.attribute("axis"))
    return (b("QuantizeLinear", whole, *b.inputs(2)),)


def write_where(b: FunctionBody) -> tuple[str, ...]:
    """QLinearWhere: codes of one tensor or another, on the result's scale."""
    whole = b("Where", b.input(0), _decoded(b, 1), _decoded(b, 4))
    return (b("QuantizeLinear", whole, b.input(7), b.input(8)),)


def write_conv(b: FunctionBody) -> tuple[str, ...]:
    """QLinearConv, whose channels may be last."""
    return (_channels_first(b, "QLinearConv", *b.inputs(9)),)


def integer_product(
    b: FunctionBody, a: str, a_zero: str, other: str, other_zero: str, factor: Any, bias: str = ""
) -> str:
    """The product of two matrices of codes, times the factor of their numbers, plus a bias."""
    product = b("MatMulInteger", a, other, a_zero, other_zero)
    return b.add(b("Mul", b.cast(product, b.real), factor), bias)


def write_matmul_to_float(b: FunctionBody) -> tuple[str, ...]:
    """MatMulIntegerToFloat: the numbers of a product of codes."""
    a, other, a_scale, scale, a_zero, zero, bias = b.inputs(7)
    return (integer_product(b, a, a_zero, other, zero, b("Mul", a_scale, scale), bias),)


def write_dynamic_matmul(b: FunctionBody) -> tuple[str, ...]:
    """DynamicQuantizeMatMul: a product of codes, of which the left ones are made first."""
    return (dynamic_product(b, *b.inputs(5)),)


def dynamic_product(
    b: FunctionBody, x: str, other: str, scale: str, zero: str, bias: str = ""
) -> str:
    """The product of numbers, of which codes are made, with codes, plus a bias."""
    codes, x_scale, x_zero = b("DynamicQuantizeLinear", x, results=3)
    return integer_product(b, codes, x_zero, other, zero, b("Mul", x_scale, scale), bias)


def write_gemm(b: FunctionBody) -> tuple[str, ...]:
    """QGemm: a linear layer of codes; the bias counts in units of the product."""
    a, a_scale, a_zero, other, scale, zero, bias, y_scale, y_zero = b.inputs(9)
    if b.attribute("transA", 0):
        a = b("Transpose", a, perm=[1, 0])
    if b.attribute("transB", 0):
        other = b("Transpose", other, perm=[1, 0])
    total = b.add(b("MatMulInteger", a, other, a_zero, zero), bias)
    factor = b("Mul", b("Mul", a_scale, scale), b.attribute("alpha", 1.0))
    y = b("Mul", b.cast(total, b.real), factor)
    return (b("QuantizeLinear", y, y_scale, y_zero) if y_scale else y,)


def write_quantize(b: FunctionBody) -> tuple[str, ...]:
    """QuantizeLinear; in older opsets of codes that are wider, too."""
    x, scale, zero = b.inputs(3)
    dtype = b.dtype(zero) if zero else np.dtype(np.uint8)
    if _is_standard(b, dtype, b.dtype(scale)):
        return (b("QuantizeLinear", x, scale, zero, axis=b.attribute("axis")),)
    number = b("Round", b("Div", *(b.cast(v, np.float32) for v in (x, _along(b, scale, x)))))
    if zero:
        number = b("Add", number, b.cast(_along(b, zero, x), np.float32))
    bounds = np.iinfo(dtype)
    clipped = b("Clip", number, np.float32(bounds.min), np.float32(bounds.max))
    return (b.cast(clipped, dtype),)


def write_dequantize(b: FunctionBody) -> tuple[str, ...]:
    """DequantizeLinear; in older opsets of codes that are wider, too."""
    x, scale, zero = b.inputs(3)
    if _is_standard(b, b.dtype(x), b.dtype(scale)):
        return (b("DequantizeLinear", x, scale, zero, axis=b.attribute("axis")),)
    number = b.cast(x, np.float32)
    if zero:
        number = b("Sub", number, b.cast(_along(b, zero, x), np.float32))
    number = b("Mul", number, b.cast(_along(b, scale, x), np.float32))
    return (b.cast(number, b.dtype(scale)),)


def _is_standard(b: FunctionBody, codes: np.dtype[Any], scale: np.dtype[Any]) -> bool:
    if b.opset >= _ALL_TYPES_SINCE:
        return True
    if codes.kind not in "iu":
        raise NotImplementedError(f"{codes.name} before opset {_ALL_TYPES_SINCE}")
    return scale == np.float32 and (codes.itemsize == 1 or codes == np.int32)


def _along(b: FunctionBody, parameter: str, x: str) -> str:
    """A scale or a zero point in a shape that broadcasts with ``x``."""
    axis = b.attribute("axis")
    extents = b.shape(parameter)
    if axis is None or not extents:
        return parameter
    behind = -int(axis) - 1 if axis < 0 else len(b.shape(x)) - int(axis) - 1
    return str(b("Reshape", parameter, [*extents, *[1] * behind]))
