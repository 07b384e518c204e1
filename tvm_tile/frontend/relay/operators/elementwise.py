"""Operators of Relay that compute each element for itself."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import te, tirx
from tvm.relax import op

from tvm_tile.frontend.ops.values import constant, dtype_of, shape_of
from tvm_tile.frontend.powers import integer_power
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.values import (
    is_float,
    is_integer,
    require_numbers,
    require_one_type,
    wide_type,
)

Function = Callable[..., Value]


def _transcendental(function: Function) -> Converter:
    return lambda call, x: call.widened(function, x)


def _logarithm(call: OperatorCall, x: Value) -> Value:
    """``log2`` or ``log10``, for which Relax has no operator."""
    function = tirx.log2 if call.name == "log2" else tirx.log10

    def elements(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *at: function(x(*at)), name=call.name)

    return call.widened(lambda x: call.compute(elements, x, name=call.name), x)


def _rounding(function: Callable[[OperatorCall, Value], Value]) -> Converter:
    """A converter of a function that rounds; integers stay what they are."""
    return lambda call, x: function(call, x) if is_float(dtype_of(x)) else x


def rounded_from_zero(call: OperatorCall, x: Value) -> Value:
    """The nearest integers of floating-point numbers, halves away from zero.

    Sums of x and 0.5 are rounded themselves; the part behind the point is exact.
    """
    whole = call.emit(op.trunc(x))
    rest = op.abs(op.subtract(x, whole))
    is_half = op.greater_equal(rest, constant(0.5, dtype_of(x)))
    return call.emit(op.where(is_half, op.add(whole, op.sign(x)), whole))


def _abs(call: OperatorCall, x: Value) -> Value:
    return x if dtype_of(x) == "bool" else call.emit(op.abs(x))


def _sign(call: OperatorCall, x: Value) -> Value:
    """TVM's asks whether unsigned numbers are below zero."""
    dtype = dtype_of(x)
    if dtype.startswith("uint"):
        return call.emit(op.minimum(x, constant(1, dtype)))
    return x if dtype == "bool" else call.emit(op.sign(x))


def _negative(call: OperatorCall, x: Value) -> Value:
    require_numbers(x)
    dtype = dtype_of(x)
    if dtype.startswith("uint"):  # LLVM may take it that differences are not below zero
        return call.cast(call.emit(op.negative(call.cast(x, "int64"))), dtype)
    return call.emit(op.negative(x))


def _classified(function: Function, of_others: bool) -> Converter:
    """A question about floating-point numbers; of others the answer is known."""

    def convert(call: OperatorCall, x: Value) -> Value:
        if is_float(dtype_of(x)):
            return call.emit(function(call.cast(x, wide_type(dtype_of(x)))))
        return call.filled(shape_of(x), of_others, "bool")

    return convert


def _logical(function: Function) -> Converter:
    return lambda call, *values: call.emit(function(*(call.cast(v, "bool") for v in values)))


def _joined(function: Function, of_bools: Function | None = None) -> Converter:
    """An operator on tensors of one type, of truth values perhaps another one."""

    def convert(call: OperatorCall, *values: Value) -> Value:
        is_flag = require_one_type(*values) == "bool"
        if of_bools is None:
            require_numbers(*values)
        return call.emit((of_bools if is_flag and of_bools else function)(*values))

    return convert


def _bitwise(function: Function, of_bools: Function | None = None) -> Converter:
    inner = _joined(function, of_bools)

    def convert(call: OperatorCall, *values: Value) -> Value:
        if is_float(dtype_of(values[0])):
            raise NotImplementedError(f"elements of {dtype_of(values[0])}")
        return inner(call, *values)

    return convert


def _compared(function: Function) -> Converter:
    """A comparison; TVM has none of truth values, and takes x == x to be true of NaN, too."""

    def convert(call: OperatorCall, left: Value, right: Value) -> Value:
        dtype = require_one_type(left, right)
        if dtype == "bool":
            left, right = (call.cast(side, "int8") for side in (left, right))
        if not is_float(dtype):
            return call.emit(function(left, right))
        if left.same_as(right):
            if function in (op.less, op.greater):
                return call.filled(shape_of(left), False, "bool")
            is_nan = op.isnan(call.cast(left, wide_type(dtype)))
            return call.emit(is_nan if function is op.not_equal else op.logical_not(is_nan))
        if function is op.not_equal:
            return call.emit(op.logical_not(op.equal(left, right)))
        return call.emit(function(left, right))

    return convert


def _power(call: OperatorCall, left: Value, right: Value) -> Value:
    dtype = require_one_type(left, right)
    if is_integer(dtype):
        return call.emit(integer_power(call.emit, left, right))
    return call.widened(op.power, left, right)


def _divisible(call: OperatorCall, left: Value, right: Value) -> str:
    """The type of a division's operands; of integers none is divided by a zero that is known."""
    require_numbers(left, right)
    dtype, divisor = require_one_type(left, right), call.known(1)
    if is_integer(dtype) and divisor is not None and not divisor.all():
        raise ValueError("a division of integers by zero")
    return dtype


def _divide(call: OperatorCall, left: Value, right: Value) -> Value:
    """A quotient; of integers it is cut off towards zero."""
    dtype, divisor = _divisible(call, left, right), call.known(1)
    if is_float(dtype) and divisor is not None and not divisor.ndim and not divisor:
        # TVM divides by no constant that is zero.
        infinite = math.copysign(math.inf, float(divisor))
        return call.emit(op.multiply(left, constant(infinite, dtype)))
    return call.emit(op.divide(left, right))


def _truncated_divide(call: OperatorCall, left: Value, right: Value) -> Value:
    quotient = _divide(call, left, right)
    return call.emit(op.trunc(quotient)) if is_float(dtype_of(quotient)) else quotient


def _remainder(function: Function) -> Converter:
    """A remainder, or a quotient that is rounded down; of halves computed in float32."""

    def convert(call: OperatorCall, left: Value, right: Value) -> Value:
        if is_float(_divisible(call, left, right)):
            return call.widened(function, left, right)
        return call.emit(function(left, right))

    return convert


def _clip(call: OperatorCall, x: Value, *, a_min: float, a_max: float) -> Value:
    """Between two bounds, which are of the element type; integers have no others."""
    require_numbers(x)
    dtype = dtype_of(x)
    if math.isnan(a_min) or math.isnan(a_max):
        raise ValueError("a bound that is no number")
    bound = float_bound if is_float(dtype) else integer_bound
    return call.clipped(x, bound(a_min, dtype), bound(a_max, dtype))


def float_bound(bound: float, dtype: str) -> float:
    """A number, or the infinity that it becomes in a type of floating-point numbers."""
    is_finite = abs(bound) <= float(tirx.max_value(dtype).value)
    return bound if is_finite else math.copysign(math.inf, bound)


def integer_bound(bound: float, dtype: str) -> int:
    """A number cut off towards zero, or the nearest one that a type of integers has."""
    limits = np.iinfo(dtype)
    finite = int(min(max(bound, -(2.0**64)), 2.0**64))
    return min(max(finite, int(limits.min)), int(limits.max))


def _reinterpret(call: OperatorCall, x: Value, *, dtype: str) -> Value:
    """The same bits as elements of another type."""
    found = dtype_of(x)
    if dtype == found:
        return x
    if "bool" in (dtype, found) or _bits(dtype) != _bits(found):
        raise NotImplementedError(f"{found} as {dtype}")

    def elements(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *at: tirx.reinterpret(dtype, x(*at)), name="reinterpret")

    return call.compute(elements, x, name="reinterpret")


def _bits(dtype: str) -> int:
    return int(dtype.lstrip("abcdefghijklmnopqrstuvwxyz"))


def _where(call: OperatorCall, condition: Value, yes: Value, no: Value) -> Value:
    require_one_type(yes, no)
    return call.emit(op.where(call.cast(condition, "bool"), yes, no))


_IDENTITIES = (
    *("copy", "on_device", "device_copy", "annotation.stop_fusion", "annotation.checkpoint"),
    *("annotation.cast_hint", "annotation.compiler_begin", "annotation.compiler_end"),
    *("annotation.bitpack_start", "annotation.bitpack_end", "annotation.with_funcid"),
)
_TRANSCENDENTAL = (
    *("exp", "erf", "sigmoid", "tanh", "cos", "sin", "tan", "atan", "cosh", "sinh", "asinh"),
    *("acosh", "atanh", "acos", "asin", "log", "sqrt", "rsqrt"),
)
_COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")

CONVERTERS: dict[str, Converter] = {
    **{name: _transcendental(getattr(op, name)) for name in _TRANSCENDENTAL},
    # Relay's own are approximations of these.
    **{f"fast_{name}": _transcendental(getattr(op, name)) for name in ("exp", "tanh", "erf")},
    **dict.fromkeys(("log2", "log10"), _logarithm),
    "ceil": _rounding(lambda call, x: call.emit(op.ceil(x))),
    "floor": _rounding(lambda call, x: call.emit(op.floor(x))),
    "trunc": _rounding(lambda call, x: call.emit(op.trunc(x))),
    "round": _rounding(rounded_from_zero),
    **dict.fromkeys(_IDENTITIES, lambda call, x: x),
    "abs": _abs,
    "sign": _sign,
    "negative": _negative,
    "isnan": _classified(op.isnan, False),
    "isinf": _classified(op.isinf, False),
    "isfinite": _classified(op.isfinite, True),
    **{f"logical_{n}": _logical(getattr(op, f"logical_{n}")) for n in ("not", "and", "or", "xor")},
    "add": _joined(op.add),
    "subtract": _joined(op.subtract),
    "multiply": _joined(op.multiply, op.logical_and),
    "maximum": _joined(op.maximum, op.logical_or),
    "minimum": _joined(op.minimum, op.logical_and),
    "power": _power,
    "divide": _divide,
    "floor_divide": _remainder(op.floor_divide),
    "floor_mod": _remainder(op.floor_mod),
    # Of C's sign, which is the dividend's; of floating-point numbers exact.
    **dict.fromkeys(("mod", "trunc_mod"), _remainder(op.mod)),
    "trunc_divide": _truncated_divide,
    **{name: _compared(getattr(op, name)) for name in _COMPARISONS},
    "bitwise_not": _bitwise(op.bitwise_not, op.logical_not),
    "bitwise_and": _bitwise(op.bitwise_and, op.logical_and),
    "bitwise_or": _bitwise(op.bitwise_or, op.logical_or),
    "bitwise_xor": _bitwise(op.bitwise_xor, op.logical_xor),
    "left_shift": _bitwise(op.left_shift),
    "right_shift": _bitwise(op.right_shift),
    "clip": _clip,
    "cast": lambda call, x, *, dtype: call.cast(x, dtype),
    "cast_like": lambda call, x, like: call.cast(x, dtype_of(like)),
    "reinterpret": _reinterpret,
    "where": _where,
}
