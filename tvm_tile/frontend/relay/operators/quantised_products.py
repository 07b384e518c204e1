"""Sums of products of quantised numbers, which are exact in int32, and fixed-point products."""

from __future__ import annotations

from collections.abc import Sequence

from tvm.relax import op

from tvm_tile.frontend.ops.values import constant, dtype_of, shape_of
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.convolutions import convolution
from tvm_tile.frontend.relay.operators.layouts import Layout
from tvm_tile.frontend.relay.operators.products import batch_operands, dense, product, unpacked
from tvm_tile.frontend.relay.operators.quantised import shifted
from tvm_tile.frontend.relay.values import is_integer

_Q = 31  # fraction bits of a multiplier


def _out_dtype(call: OperatorCall) -> str:
    return str(call.attributes.get("out_dtype") or "int32")


def _shifted(call: OperatorCall, index: int, zero: int, axis: int) -> Value:
    """An argument less its zero point, another argument; as it is where that is known to be 0."""
    x, known = call.arguments[index], call.known(zero)
    if not is_integer(dtype_of(x)):
        raise NotImplementedError(f"quantised numbers of {dtype_of(x)}")
    if known is not None and not known.any():
        return x
    return shifted(call, x, call.arguments[zero], axis)


def _channel(call: OperatorCall, name: str, letter: str) -> int:
    """The axis of channels of a layout; zero points of parts of it are none of Relay's."""
    return Layout.parse(str(call.attributes[name])).letters.index(letter)


def _convolution(call: OperatorCall, *_: Value) -> Value:
    x = _shifted(call, 0, 2, _channel(call, "data_layout", "C"))
    kernel = _shifted(call, 1, 3, _channel(call, "kernel_layout", "O"))
    return convolution(call, x, kernel, _out_dtype(call))


def _require_one_zero(call: OperatorCall, of: str) -> None:
    zero = call.known(3)
    if zero is None or zero.size != 1:
        raise NotImplementedError(f"zero points of {of}")


def _transposed_convolution(call: OperatorCall, *_: Value) -> Value:
    _require_one_zero(call, "a transposed convolution's kernels")
    x = _shifted(call, 0, 2, _channel(call, "data_layout", "C"))
    return convolution(call, x, _shifted(call, 1, 3, 0), _out_dtype(call), is_transposed=True)


def _dense(call: OperatorCall, *_: Value) -> Value:
    return dense(call, _shifted(call, 0, 2, -1), _shifted(call, 1, 3, 0), _out_dtype(call))


def _packed_dense(call: OperatorCall, *_: Value) -> Value:
    _require_one_zero(call, "packed weights")
    weight = unpacked(call, _shifted(call, 1, 3, 0))
    return dense(call, _shifted(call, 0, 2, -1), weight, _out_dtype(call))


def _batch_matmul(call: OperatorCall, *_: Value) -> Value:
    a, b = batch_operands(call, _shifted(call, 0, 2, -1), _shifted(call, 1, 3, -1))
    return product(call, a, b, _out_dtype(call))


def _fixed_point_multiply(call: OperatorCall, x: Value, *, multiplier: int, shift: int) -> Value:
    """``x * multiplier / 2**31 * 2**shift``, halves rounded up."""
    given = (multiplier, max(0, shift), max(0, -shift))
    return _fixed_product(call, x, *(constant(number, "int64") for number in given))


def _fixed_point_multiply_per_axis(
    call: OperatorCall, x: Value, *given: Value, axes: Sequence[int], is_lshift_required: bool
) -> Value:
    """Multiply in fixed point by multipliers and shifts that lie along some axes."""
    shape, rank = shape_of(x), len(shape_of(x))
    if list(axes) != sorted(set(axes)) or not all(0 <= axis < rank for axis in axes):
        raise NotImplementedError(f"axes {axes} of a tensor of {rank} dimensions")
    wide = [shape[axis] if axis in axes else 1 for axis in range(rank)]
    multiplier, left, right = (call.cast(call.reshaped(v, wide), "int64") for v in given)
    left = left if is_lshift_required else constant(0, "int64")
    return _fixed_product(call, x, multiplier, left, right)


def _fixed_product(
    call: OperatorCall, x: Value, multiplier: Value, left: Value, right: Value
) -> Value:
    if dtype_of(x) != "int32":
        raise NotImplementedError(f"elements of {dtype_of(x)}")
    total, one = call.emit(op.add(right, constant(_Q, "int64"))), constant(1, "int64")
    half = op.left_shift(one, op.subtract(total, one))
    product = op.multiply(op.left_shift(call.cast(x, "int64"), left), multiplier)
    return call.cast(call.emit(op.right_shift(op.add(product, half), total)), "int32")


CONVERTERS: dict[str, Converter] = {
    "fixed_point_multiply": _fixed_point_multiply,
    "fixed_point_multiply_per_axis": _fixed_point_multiply_per_axis,
    "qnn.batch_matmul": _batch_matmul,
    "qnn.contrib_dense_pack": _packed_dense,
    "qnn.conv2d": _convolution,
    "qnn.conv2d_transpose": _transposed_convolution,
    "qnn.dense": _dense,
}
