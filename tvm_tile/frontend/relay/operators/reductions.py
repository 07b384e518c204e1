"""Operators of Relay that make one number of many."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm.relax import op

from tvm_tile.frontend.ops.values import constant, counted_axis, dtype_of, shape_of
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.values import (
    counted_axes,
    is_float,
    require_floats,
    require_numbers,
    wide_type,
)


def _reduced_axes(call: OperatorCall) -> tuple[int, ...]:
    """The axes that are reduced: those that are named, all others, or all where none is named."""
    rank, axis = len(shape_of(call.arguments[0])), call.attributes["axis"]
    named = counted_axes(axis, rank)
    if not named or axis is None:
        return tuple(range(rank))
    return tuple(i for i in range(rank) if (i in named) != bool(call.attributes["exclude"]))


def _reduced(
    call: OperatorCall, x: Value, function: Callable[..., Value], of_nothing: int | None = None
) -> Value:
    """A tensor reduced along the attributes' axes; the tensor itself where there are none.

    Args:
        call: the operator's.
        x: its operand, perhaps in another type.
        function: Relax's.
        of_nothing: what no numbers become; ``None`` if that is not defined.

    Raises:
        ValueError: there are no numbers to reduce.
    """
    axes, keeps = _reduced_axes(call), bool(call.attributes["keepdims"])
    shape = shape_of(x)
    if not axes:
        return x
    if 0 not in shape:
        return call.emit(function(x, list(axes), keeps))
    left = [1 if i in axes else extent for i, extent in enumerate(shape) if keeps or i not in axes]
    if of_nothing is None and 0 not in left:
        raise ValueError("the extreme of no elements")
    return call.filled(left, of_nothing or 0, dtype_of(x))


def _arithmetic(function: Callable[..., Value], of_nothing: int) -> Converter:
    """A sum or a product, whose type is the operand's; of halves in float32."""

    def convert(call: OperatorCall, x: Value) -> Value:
        require_numbers(x)
        dtype = dtype_of(x)
        return call.cast(
            _reduced(call, call.cast(x, wide_type(dtype)), function, of_nothing), dtype
        )

    return convert


def _of_flags(function: Callable[..., Value], of_nothing: int | None, dtype: str = "") -> Converter:
    """A reduction of truth values as numbers, to the operand's type or another one."""

    def convert(call: OperatorCall, x: Value) -> Value:
        own = dtype or dtype_of(x)
        wide = call.cast(call.cast(x, own), "int8") if own == "bool" else x
        return call.cast(_reduced(call, wide, function, of_nothing), own)

    return convert


def _count(call: OperatorCall) -> int:
    shape = shape_of(call.arguments[0])
    return math.prod(shape[axis] for axis in _reduced_axes(call))


def _mean(call: OperatorCall, x: Value) -> Value:
    """Mean in the operand's type; for integers the quotient is cut off towards zero."""
    require_numbers(x)
    dtype, count = dtype_of(x), _count(call)
    total = _reduced(call, call.cast(x, wide_type(dtype)), op.sum, 0)
    if not is_float(dtype) and not 0 < count <= np.iinfo(dtype).max:
        raise NotImplementedError(f"a mean of {count} elements of {dtype}")
    return _over(call, total, count, dtype)


def _over(call: OperatorCall, total: Value, count: int, dtype: str) -> Value:
    """A sum divided by a number of elements, in a type."""
    wide = dtype_of(total)
    if not count:
        return call.cast(call.emit(op.multiply(total, constant(math.nan, wide))), dtype)
    return call.cast(call.emit(op.divide(total, constant(count, wide))), dtype)


def _variance(call: OperatorCall, x: Value, mean: Value, *, unbiased: bool) -> Value:
    """The mean square of the differences from a mean that is given."""
    require_floats(x)
    x, mean = (call.cast(value, wide_type(dtype_of(value))) for value in (x, mean))
    difference = call.emit(op.subtract(x, mean))
    total = _reduced(call, call.emit(op.multiply(difference, difference)), op.sum, 0)
    return _over(call, total, _count(call) - bool(unbiased), dtype_of(call.arguments[0]))


def _place(function: Callable[..., Value]) -> Converter:
    """Where the largest or the smallest element is, among those that are reduced; int32."""

    def convert(call: OperatorCall, x: Value, *, keepdims: bool, select_last_index: bool) -> Value:
        shape, axes, count = shape_of(x), _reduced_axes(call), _count(call)
        if 1 < len(axes) < len(shape):
            raise NotImplementedError(f"places along the axes {list(axes)} of {len(shape)}")
        if not count:
            raise ValueError("the place of an extreme among no elements")
        x = call.cast(x, "int8") if dtype_of(x) == "bool" else x
        rows, place = (x, axes[0]) if len(axes) == 1 else (call.reshaped(x, (count,)), 0)
        if select_last_index:
            rows = call.emit(op.flip(rows, place))
        found = call.cast(call.emit(function(rows, place)), "int32")
        if select_last_index:
            found = call.emit(op.subtract(constant(count - 1, "int32"), found))
        wide = [1 if axis in axes else extent for axis, extent in enumerate(shape)]
        return call.reshaped(found, wide) if keepdims else found

    return convert


def _scan(function: Callable[..., Value]) -> Converter:
    """Sums or products of all elements up to each; without an axis of the flattened tensor."""

    def convert(call: OperatorCall, x: Value, *, axis: int | None = None) -> Value:
        dtype = str(call.attributes.get("dtype") or dtype_of(x))
        if axis is None:
            x, axis = call.reshaped(x, [math.prod(shape_of(x))]), 0
        axis = counted_axis(axis, len(shape_of(x)))
        x = call.cast(x, dtype)
        require_numbers(x)
        return call.emit(function(x, axis, dtype, exclusive=bool(call.attributes.get("exclusive"))))

    return convert


CONVERTERS: dict[str, Converter] = {
    "sum": _arithmetic(op.sum, 0),
    "prod": _arithmetic(op.prod, 1),
    "mean": _mean,
    "variance": _variance,
    "max": _of_flags(op.max, None),
    "min": _of_flags(op.min, None),
    "all": _of_flags(op.min, 1, "bool"),
    "any": _of_flags(op.max, 0, "bool"),
    "argmax": _place(op.argmax),
    "argmin": _place(op.argmin),
    "cumsum": _scan(op.cumsum),
    "cumprod": _scan(op.cumprod),
}
