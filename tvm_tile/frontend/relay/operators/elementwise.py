"""Operators of Relay that compute each element for itself."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import te, tirx
from tvm.relax import op

from tvm_tile.frontend.powers import integer_power
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.values import (
    cast,
    clipped,
    constant,
    dtype_of,
    is_float,
    is_integer,
    shape_of,
)

_HALVES = ("float16", "bfloat16")


def widened(call: OperatorCall, function: Callable[[Value], Value], value: Value) -> Value:
    """A function of floating-point numbers; of halves computed in float32, as C's libraries do.

    Raises:
        NotImplementedError: the elements are integers or truth values.
    """
    dtype = dtype_of(value)
    if not is_float(dtype):
        raise NotImplementedError(f"elements of {dtype}")
    return cast(call, call.emit(function(_wide(call, value))), dtype)


def _wide(call: OperatorCall, value: Value) -> Value:
    """The value in a type of which TVM has all functions."""
    return cast(call, value, "float32") if dtype_of(value) in _HALVES else value


def _transcendental(function: Callable[[Value], Value]) -> Converter:
    return lambda call: widened(call, function, call.arguments[0])


def _logarithm(call: OperatorCall) -> Value:
    """``log2`` or ``log10``, for which Relax has no operator."""
    function = tirx.log2 if call.name == "log2" else tirx.log10

    def elements(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *at: function(x(*at)), name=call.name)

    return widened(call, lambda x: call.compute(elements, x, name=call.name), call.arguments[0])


def _rounding(function: Callable[[Value], Value]) -> Converter:
    """A converter of a function that rounds; integers stay what they are."""

    def convert(call: OperatorCall) -> Value:
        (x,) = call.arguments
        return call.emit(function(x)) if is_float(dtype_of(x)) else x

    return convert


def _round(call: OperatorCall) -> Value:
    """The nearest integer, of two the one further from zero.

    Sums of x and 0.5 are rounded themselves; the part behind the point is exact.
    """
    (x,) = call.arguments
    return rounded_from_zero(call, x) if is_float(dtype_of(x)) else x


def rounded_from_zero(call: OperatorCall, x: Value) -> Value:
    """The nearest integers of floating-point numbers, halves away from zero."""
    dtype = dtype_of(x)
    whole = call.emit(op.trunc(x))
    rest = call.emit(op.abs(call.emit(op.subtract(x, whole))))
    further = call.emit(op.add(whole, call.emit(op.sign(x))))
    is_half = call.emit(op.greater_equal(rest, constant(0.5, dtype)))
    return call.emit(op.where(is_half, further, whole))


def _abs(call: OperatorCall) -> Value:
    (x,) = call.arguments
    return x if dtype_of(x) == "bool" else call.emit(op.abs(x))


def _sign(call: OperatorCall) -> Value:
    """TVM's asks whether unsigned numbers are below zero."""
    (x,) = call.arguments
    dtype = dtype_of(x)
    if dtype.startswith("uint"):
        return call.emit(op.minimum(x, constant(1, dtype)))
    return x if dtype == "bool" else call.emit(op.sign(x))


def _negative(call: OperatorCall) -> Value:
    (x,) = call.arguments
    dtype = dtype_of(x)
    if dtype == "bool":
        raise NotImplementedError("elements of bool")
    if dtype.startswith("uint"):  # LLVM may take it that differences are not below zero
        return cast(call, call.emit(op.negative(cast(call, x, "int64"))), dtype)
    return call.emit(op.negative(x))


def _classified(function: Callable[[Value], Value], of_others: bool) -> Converter:
    """A question about floating-point numbers; of others the answer is known."""

    def convert(call: OperatorCall) -> Value:
        (x,) = call.arguments
        if is_float(dtype_of(x)):
            return call.emit(function(_wide(call, x)))
        return call.emit(op.full(shape_of(x), constant(of_others, "bool")))

    return convert


def _not(call: OperatorCall) -> Value:
    return call.emit(op.logical_not(cast(call, call.arguments[0], "bool")))


def _bitwise_not(call: OperatorCall) -> Value:
    (x,) = call.arguments
    if is_float(dtype_of(x)):
        raise NotImplementedError(f"elements of {dtype_of(x)}")
    return call.emit((op.logical_not if dtype_of(x) == "bool" else op.bitwise_not)(x))


Join = Callable[[Value, Value], Value]


def _operands(call: OperatorCall) -> tuple[Value, Value, str]:
    """Both operands and their element type."""
    left, right = call.arguments
    dtypes = dtype_of(left), dtype_of(right)
    if dtypes[0] != dtypes[1]:
        raise ValueError(f"operands of {dtypes[0]} and {dtypes[1]}")
    return left, right, dtypes[0]


def _joined(join: Join, of_bools: Join | None = None) -> Converter:
    """An operator on two tensors of one type, of truth values perhaps another one."""

    def convert(call: OperatorCall) -> Value:
        left, right, dtype = _operands(call)
        if dtype != "bool":
            return call.emit(join(left, right))
        if of_bools is None:
            raise NotImplementedError("elements of bool")
        return call.emit(of_bools(left, right))

    return convert


def _compared(join: Join) -> Converter:
    """A comparison; TVM has none of truth values."""

    def convert(call: OperatorCall) -> Value:
        left, right, dtype = _operands(call)
        if dtype == "bool":
            left, right = (cast(call, side, "int8") for side in (left, right))
        elif left.same_as(right) and is_float(dtype):
            return _compared_with_itself(call, left, join)
        result = call.emit(join(left, right))
        if join is op.not_equal and is_float(dtype):
            return call.emit(op.logical_not(call.emit(op.equal(left, right))))
        return result

    return convert


def _compared_with_itself(call: OperatorCall, x: Value, join: Join) -> Value:
    """TVM takes x == x to be true of NaN, too."""
    is_nan = call.emit(op.isnan(_wide(call, x)))
    if join is op.not_equal:
        return is_nan
    if join in (op.less, op.greater):
        return call.emit(op.full(shape_of(x), constant(False, "bool")))
    return call.emit(op.logical_not(is_nan))


def _logical(join: Join) -> Converter:
    def convert(call: OperatorCall) -> Value:
        left, right = (cast(call, side, "bool") for side in call.arguments)
        return call.emit(join(left, right))

    return convert


def _bitwise(join: Join, of_bools: Join | None = None) -> Converter:
    def convert(call: OperatorCall) -> Value:
        left, right, dtype = _operands(call)
        if is_float(dtype) or (dtype == "bool" and of_bools is None):
            raise NotImplementedError(f"elements of {dtype}")
        return call.emit((of_bools or join)(left, right) if dtype == "bool" else join(left, right))

    return convert


def _power(call: OperatorCall) -> Value:
    left, right, dtype = _operands(call)
    if is_integer(dtype):
        return call.emit(integer_power(call.emit, left, right))
    if dtype == "bool":
        raise NotImplementedError("elements of bool")
    return cast(call, call.emit(op.power(_wide(call, left), _wide(call, right))), dtype)


def _divisible(call: OperatorCall) -> tuple[Value, Value, str]:
    """Both operands of a division; of integers none is divided by a zero that is known."""
    left, right, dtype = _operands(call)
    if dtype == "bool":
        raise NotImplementedError("elements of bool")
    divisor = call.known(1)
    if is_integer(dtype) and divisor is not None and not divisor.all():
        raise ValueError("a division of integers by zero")
    return left, right, dtype


def _divide(call: OperatorCall) -> Value:
    """A quotient; of integers it is cut off towards zero."""
    left, right, dtype = _divisible(call)
    divisor = call.known(1)
    if is_float(dtype) and divisor is not None and not divisor.ndim and not divisor:
        # TVM divides by no constant that is zero.
        infinite = math.copysign(math.inf, float(divisor))
        return call.emit(op.multiply(left, constant(infinite, dtype)))
    return call.emit(op.divide(left, right))


def _truncated_divide(call: OperatorCall) -> Value:
    quotient = _divide(call)
    return call.emit(op.trunc(quotient)) if is_float(dtype_of(quotient)) else quotient


def _remainder(join: Join) -> Converter:
    """A remainder, or a quotient that is rounded down; of halves computed in float32."""

    def convert(call: OperatorCall) -> Value:
        left, right, dtype = _divisible(call)
        return cast(call, call.emit(join(_wide(call, left), _wide(call, right))), dtype)

    return convert


def _clip(call: OperatorCall) -> Value:
    """Between two bounds, which are of the element type; integers have no others."""
    (x,) = call.arguments
    dtype = dtype_of(x)
    low, high = float(call.attributes["a_min"]), float(call.attributes["a_max"])
    if math.isnan(low) or math.isnan(high):
        raise ValueError("a bound that is no number")
    if is_float(dtype):
        return clipped(call, x, *(float_bound(bound, dtype) for bound in (low, high)))
    if not is_integer(dtype):
        raise NotImplementedError(f"elements of {dtype}")
    return clipped(call, x, *(integer_bound(bound, dtype) for bound in (low, high)))


def float_bound(bound: float, dtype: str) -> float:
    """A number, or the infinity that it becomes in a type of floating-point numbers."""
    is_finite = abs(bound) <= float(tirx.max_value(dtype).value)
    return bound if is_finite else math.copysign(math.inf, bound)


def integer_bound(bound: float, dtype: str) -> int:
    """A number cut off towards zero, or the nearest one that a type of integers has."""
    limits = np.iinfo(dtype)
    finite = int(min(max(bound, -(2.0**64)), 2.0**64))
    return min(max(finite, int(limits.min)), int(limits.max))


def _cast(call: OperatorCall) -> Value:
    return cast(call, call.arguments[0], str(call.attributes["dtype"]))


def _cast_like(call: OperatorCall) -> Value:
    x, like = call.arguments
    return cast(call, x, dtype_of(like))


def _reinterpret(call: OperatorCall) -> Value:
    """The same bits as elements of another type."""
    (x,) = call.arguments
    dtype, found = str(call.attributes["dtype"]), dtype_of(x)
    if dtype == found:
        return x
    if "bool" in (dtype, found) or _bits(dtype) != _bits(found):
        raise NotImplementedError(f"{found} as {dtype}")

    def elements(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *at: tirx.reinterpret(dtype, x(*at)), name="reinterpret")

    return call.compute(elements, x, name="reinterpret")


def _bits(dtype: str) -> int:
    return int(dtype.lstrip("abcdefghijklmnopqrstuvwxyz"))


def _where(call: OperatorCall) -> Value:
    condition, yes, no = call.arguments
    if dtype_of(yes) != dtype_of(no):
        raise ValueError(f"operands of {dtype_of(yes)} and {dtype_of(no)}")
    return call.emit(op.where(cast(call, condition, "bool"), yes, no))


def _same(call: OperatorCall) -> Value:
    return call.arguments[0]


_IDENTITIES = (
    *("copy", "on_device", "device_copy", "annotation.stop_fusion", "annotation.checkpoint"),
    *("annotation.cast_hint", "annotation.compiler_begin", "annotation.compiler_end"),
    *("annotation.bitpack_start", "annotation.bitpack_end", "annotation.with_funcid"),
)
_TRANSCENDENTAL = (
    *("exp", "erf", "sigmoid", "tanh", "cos", "sin", "tan", "atan", "cosh", "sinh", "asinh"),
    *("acosh", "atanh", "acos", "asin", "log", "sqrt", "rsqrt"),
)

CONVERTERS: dict[str, Converter] = {
    **{name: _transcendental(getattr(op, name)) for name in _TRANSCENDENTAL},
    # Relay's own are approximations of these.
    **{f"fast_{name}": _transcendental(getattr(op, name)) for name in ("exp", "tanh", "erf")},
    **dict.fromkeys(("log2", "log10"), _logarithm),
    **{name: _rounding(getattr(op, name)) for name in ("ceil", "floor", "trunc")},
    **dict.fromkeys(_IDENTITIES, _same),
    "round": _round,
    "abs": _abs,
    "sign": _sign,
    "negative": _negative,
    "isnan": _classified(op.isnan, False),
    "isinf": _classified(op.isinf, False),
    "isfinite": _classified(op.isfinite, True),
    "logical_not": _not,
    "bitwise_not": _bitwise_not,
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
    **{
        name: _compared(getattr(op, name))
        for name in ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
    },
    **{name: _logical(getattr(op, name)) for name in ("logical_and", "logical_or", "logical_xor")},
    "bitwise_and": _bitwise(op.bitwise_and, op.logical_and),
    "bitwise_or": _bitwise(op.bitwise_or, op.logical_or),
    "bitwise_xor": _bitwise(op.bitwise_xor, op.logical_xor),
    "left_shift": _bitwise(op.left_shift),
    "right_shift": _bitwise(op.right_shift),
    "clip": _clip,
    "cast": _cast,
    "cast_like": _cast_like,
    "reinterpret": _reinterpret,
    "where": _where,
}
