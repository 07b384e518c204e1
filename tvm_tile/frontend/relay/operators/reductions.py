"""Operators of Relay that make one number of many."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm.relax import op

from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.values import (
    cast,
    constant,
    counted_axes,
    counted_axis,
    dtype_of,
    filled,
    is_float,
    reshaped,
    shape_of,
)

_HALVES = ("float16", "bfloat16")


def _reduced_axes(call: OperatorCall) -> tuple[int, ...]:
    """The axes that are reduced: those that are named, all others, or all where none is named."""
    return reduced_axes(
        len(shape_of(call.arguments[0])), call.attributes["axis"], call.attributes["exclude"]
    )


def reduced_axes(rank: int, axis: int | tuple[int, ...] | None, exclude: bool) -> tuple[int, ...]:
    """The axes that an operator reduces.

    Args:
        rank: of the operand.
        axis: those that are named.
        exclude: whether the others are meant.
    """
    named = counted_axes(axis, rank)
    if not named or axis is None:
        return tuple(range(rank))
    return tuple(i for i in range(rank) if (i in named) != bool(exclude))


@dataclass(frozen=True, slots=True)
class _Reduction:
    """How many numbers become one.

    Attributes:
        function: Relax's.
        of_nothing: what no numbers become; ``None`` if that is not defined.
    """

    function: Callable[..., Value]
    of_nothing: int | None = None

    def along_axes(self, call: OperatorCall, x: Value) -> Value:
        """A tensor reduced along the attributes' axes; the tensor itself where there are none.

        Raises:
            ValueError: there are no numbers to reduce.
        """
        axes, keeps = _reduced_axes(call), bool(call.attributes["keepdims"])
        if not axes:
            return x
        shape = shape_of(x)
        if 0 not in shape:
            return call.emit(self.function(x, list(axes), keeps))
        left = [1 if i in axes else extent for i, extent in enumerate(shape)]
        if not keeps:
            left = [extent for i, extent in enumerate(left) if i not in axes]
        if self.of_nothing is None and 0 not in left:
            raise ValueError("the extreme of no elements")
        return filled(call, left, self.of_nothing or 0, dtype_of(x))


_SUM, _PRODUCT = _Reduction(op.sum, 0), _Reduction(op.prod, 1)


def _arithmetic(reduction: _Reduction) -> Converter:
    """A sum or a product, whose type is the operand's; of halves in float32."""

    def convert(call: OperatorCall) -> Value:
        (x,) = call.arguments
        dtype = dtype_of(x)
        if dtype == "bool":
            raise NotImplementedError("elements of bool")
        wide = cast(call, x, "float32") if dtype in _HALVES else x
        return cast(call, reduction.along_axes(call, wide), dtype)

    return convert


def _extreme(reduction: _Reduction) -> Converter:
    """The largest or the smallest; of truth values whether any or whether all are true."""

    def convert(call: OperatorCall) -> Value:
        (x,) = call.arguments
        dtype = dtype_of(x)
        wide = cast(call, x, "int8") if dtype == "bool" else x
        return cast(call, reduction.along_axes(call, wide), dtype)

    return convert


def _quantifier(reduction: _Reduction) -> Converter:
    def convert(call: OperatorCall) -> Value:
        flags = cast(call, cast(call, call.arguments[0], "bool"), "int8")
        return cast(call, reduction.along_axes(call, flags), "bool")

    return convert


def _count(call: OperatorCall) -> int:
    shape = shape_of(call.arguments[0])
    return math.prod(shape[axis] for axis in _reduced_axes(call))


def _mean(call: OperatorCall) -> Value:
    """Mean in the operand's type; for integers the quotient is cut off towards zero."""
    (x,) = call.arguments
    total = _arithmetic(_SUM)(call) if dtype_of(x) not in _HALVES else _wide_sum(call, x)
    return _over(call, total, _count(call), dtype_of(x))


def _wide_sum(call: OperatorCall, x: Value) -> Value:
    return _SUM.along_axes(call, cast(call, x, "float32"))


def _over(call: OperatorCall, total: Value, count: int, dtype: str) -> Value:
    """A sum divided by a number of elements."""
    wide = dtype_of(total)
    if not is_float(dtype) and not 0 < count <= np.iinfo(dtype).max:
        raise NotImplementedError(f"a mean of {count} elements of {dtype}")
    if not count:
        return cast(call, call.emit(op.multiply(total, constant(math.nan, wide))), dtype)
    return cast(call, call.emit(op.divide(total, constant(count, wide))), dtype)


def _variance(call: OperatorCall) -> Value:
    """The mean square of the differences from a mean that is given."""
    x, mean = call.arguments
    dtype = dtype_of(x)
    if not is_float(dtype):
        raise NotImplementedError(f"elements of {dtype}")
    x, mean = (cast(call, value, "float32") if dtype in _HALVES else value for value in (x, mean))
    difference = call.emit(op.subtract(x, mean))
    total = _SUM.along_axes(call, call.emit(op.multiply(difference, difference)))
    count = _count(call) - (1 if call.attributes["unbiased"] else 0)
    return _over(call, total, count, dtype)


def _place(function: Callable[..., Value]) -> Converter:
    """Where the largest or the smallest element is, among those that are reduced; int32."""

    def convert(call: OperatorCall) -> Value:
        (x,) = call.arguments
        shape, axes = shape_of(x), _reduced_axes(call)
        count = math.prod(shape[axis] for axis in axes)
        if 1 < len(axes) < len(shape):
            raise NotImplementedError(f"places along the axes {list(axes)} of {len(shape)}")
        if not count:
            raise ValueError("the place of an extreme among no elements")
        x = cast(call, x, "int8") if dtype_of(x) == "bool" else x
        rows, place = (x, axes[0]) if len(axes) == 1 else (reshaped(call, x, (count,)), 0)
        is_last = bool(call.attributes["select_last_index"])
        if is_last:
            rows = call.emit(op.flip(rows, place))
        found = cast(call, call.emit(function(rows, place)), "int32")
        if is_last:
            found = call.emit(op.subtract(constant(count - 1, "int32"), found))
        if call.attributes["keepdims"]:
            wide = [1 if axis in axes else extent for axis, extent in enumerate(shape)]
            return reshaped(call, found, wide)
        return found

    return convert


def _scan(function: Callable[..., Value]) -> Converter:
    """Sums or products of all elements up to each; without an axis of the flattened tensor."""

    def convert(call: OperatorCall) -> Value:
        (x,) = call.arguments
        attributes = call.attributes
        dtype = str(attributes.get("dtype") or dtype_of(x))
        if dtype == "bool":
            raise NotImplementedError("elements of bool")
        axis = attributes.get("axis")
        if axis is None:
            x, axis = reshaped(call, x, [math.prod(shape_of(x))]), 0
        axis = counted_axis(int(axis), len(shape_of(x)))
        x = cast(call, x, dtype)
        if 0 in shape_of(x):
            return x
        exclusive = bool(attributes.get("exclusive"))
        return call.emit(function(x, axis, dtype, exclusive=exclusive))

    return convert


CONVERTERS: dict[str, Converter] = {
    "sum": _arithmetic(_SUM),
    "prod": _arithmetic(_PRODUCT),
    "mean": _mean,
    "variance": _variance,
    "max": _extreme(_Reduction(op.max)),
    "min": _extreme(_Reduction(op.min)),
    "all": _quantifier(_Reduction(op.min, 1)),
    "any": _quantifier(_Reduction(op.max, 0)),
    "argmax": _place(op.argmax),
    "argmin": _place(op.argmin),
    "cumsum": _scan(op.cumsum),
    "cumprod": _scan(op.cumprod),
}
