"""Relay's products of integers and fixed-point numbers."""

from __future__ import annotations

from tvm.relax import op

from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.values import cast, constant, dtype_of, reshaped, shape_of

_Q = 31  # fraction bits of a multiplier


def _fixed_point_multiply(call: OperatorCall) -> Value:
    """``x * multiplier / 2**31 * 2**shift``, halves rounded up."""
    (x,) = call.arguments
    shift = int(call.attributes["shift"])
    multiplier = constant(int(call.attributes["multiplier"]), "int64")
    left, right = (constant(max(0, s), "int64") for s in (shift, -shift))
    return _fixed_product(call, x, multiplier, left, right)


def _fixed_point_multiply_per_axis(call: OperatorCall) -> Value:
    """Multiply in fixed point by multipliers and shifts that lie along some axes."""
    x, *given = call.arguments
    rank, axes = len(shape_of(x)), [int(axis) for axis in call.attributes["axes"]]
    if axes != sorted(set(axes)) or not all(0 <= axis < rank for axis in axes):
        raise NotImplementedError(f"axes {axes} of a tensor of {rank} dimensions")
    wide = [shape_of(x)[axis] if axis in axes else 1 for axis in range(rank)]
    multiplier, left, right = (cast(call, reshaped(call, value, wide), "int64") for value in given)
    if not call.attributes["is_lshift_required"]:
        left = constant(0, "int64")
    return _fixed_product(call, x, multiplier, left, right)


def _fixed_product(
    call: OperatorCall, x: Value, multiplier: Value, left: Value, right: Value
) -> Value:
    if dtype_of(x) != "int32":
        raise NotImplementedError(f"elements of {dtype_of(x)}")
    total = call.emit(op.add(right, constant(_Q, "int64")))
    one = constant(1, "int64")
    half = call.emit(op.left_shift(one, call.emit(op.subtract(total, one))))
    moved = call.emit(op.left_shift(cast(call, x, "int64"), left))
    product = call.emit(op.multiply(moved, multiplier))
    return cast(call, call.emit(op.right_shift(call.emit(op.add(product, half)), total)), "int32")


CONVERTERS: dict[str, Converter] = {
    "fixed_point_multiply": _fixed_point_multiply,
    "fixed_point_multiply_per_axis": _fixed_point_multiply_per_axis,
}
