"""Functions of quantised numbers: of 8 bits by a table of their 256 values, as in Relay."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from tvm.relax import op

from tvm_tile.frontend.ops.values import constant, counted_axis, dtype_of, shape_of
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.pools import average
from tvm_tile.frontend.relay.operators.quantised import (
    FixedPoint,
    Quantised,
    narrowed,
    quantised,
    requantised,
)

_BYTES = ("int8", "uint8")
# Of the integers of a softmax: powers before they are halved, inverse sums, shares of 1.
_SOFTMAX_SHIFT, _SOFTMAX_BITS, _SHARE_BITS = 8, 30, 7


_FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "abs": np.abs,
    "erf": np.vectorize(math.erf, otypes=["float32"]),
    "exp": np.exp,
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "log": np.log,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}


def _pair(call: OperatorCall) -> tuple[Quantised, Quantised, str]:
    """What the integers of the data and of the result stand for, and their type."""
    dtype = dtype_of(call.arguments[0])
    both = quantised(call, 1, 2), quantised(call, 3, 4)
    if dtype not in _BYTES:
        raise NotImplementedError(f"a function of quantised numbers of {dtype}")
    if any(one.scales.size != 1 or one.zeros.size != 1 for one in both):
        raise NotImplementedError("a function of numbers with a scale for each channel")
    return *both, dtype


def _every(dtype: str) -> np.ndarray:
    bounds = np.iinfo(dtype)
    return np.arange(bounds.min, bounds.max + 1)


def _looked_up(call: OperatorCall, table: np.ndarray, dtype: str) -> Value:
    """Look up each element in a table, which begins with the least number of its type."""
    bounds = np.iinfo(dtype)
    place = op.add(call.cast(call.arguments[0], "int32"), constant(-int(bounds.min), "int32"))
    known = constant(np.clip(table, bounds.min, bounds.max).astype(dtype), dtype)
    return call.emit(op.take(known, place, axis=0, mode="clip"))


def _function(function: Callable[[np.ndarray], np.ndarray], call: OperatorCall, *_: Value) -> Value:
    old, new, dtype = _pair(call)
    numbers = (_every(dtype) - old.zeros[0]).astype("float32") * np.float32(old.scales[0])
    with np.errstate(all="ignore"):
        found = (function(numbers) / np.float32(new.scales[0])).astype("float64")
    whole = np.copysign(np.floor(np.abs(found) + 0.5), found) + new.zeros[0]
    # Some integers may stand for no number of the function's domain.
    return _looked_up(call, np.where(np.isnan(whole), np.iinfo(dtype).min, whole), dtype)


def _leaky_relu(call: OperatorCall, *_: Value, alpha: float) -> Value:
    """Below zero ``alpha`` times the number, each of the two parts in fixed point."""
    old, new, dtype = _pair(call)
    integers = _every(dtype)
    moved = _times(integers - old.zeros[0], FixedPoint.of(old.scales / new.scales)) + new.zeros[0]
    parts = zip((moved, np.array(new.zeros[0])), (alpha, 1 - alpha), strict=True)
    below = sum(_times(part, FixedPoint.of(np.array([share]))) for part, share in parts)
    return _looked_up(call, np.where(integers < old.zeros[0], below, moved), dtype)


def _times(numbers: np.ndarray, by: FixedPoint) -> np.ndarray:
    wide = (numbers.astype("int64") << by.left[0]) * by.mantissas[0]
    result: np.ndarray = (wide + (1 << int(by.right[0]) - 1)) >> by.right[0]
    return result


def _softmax(call: OperatorCall, x: Value, *_: Value, axis: int) -> Value:
    """By integers alone, as Relay: the shift-only exponential of Li and Gu (I-ViT, 2022).

    ``exp(x * scale)`` is ``2 ** (-q - r / unit)``, where ``unit`` stands for 1, the product with
    the logarithm's ``1.0111`` is two shifts, and the power of the rest is a straight line.
    """
    old, new, dtype = _pair(call)
    unit = math.floor(1 / np.float32(old.scales[0]) + 0.5)
    if dtype != "int8" or not unit:
        raise NotImplementedError(f"a softmax of {dtype} with a scale of {old.scales[0]}")
    axes = [counted_axis(axis, len(shape_of(x)))]

    def number(value: int) -> Value:
        return constant(value, "int32")

    wide = call.cast(x, "int32")
    below = call.emit(op.subtract(wide, op.max(wide, axes, keepdims=True)))
    more, less = (op.right_shift(below, number(places)) for places in (1, 4))
    power = call.emit(op.negative(op.subtract(op.add(below, more), less)))  # not negative
    halvings = call.emit(op.floor_divide(power, number(unit)))
    rest = op.subtract(op.multiply(halvings, number(unit)), power)
    line = op.add(op.right_shift(rest, number(1)), number(unit))
    shift = call.emit(op.subtract(number(_SOFTMAX_SHIFT), halvings))
    is_nothing = call.emit(op.less(shift, number(0)))  # Relay shifts by negative numbers there
    places = op.where(is_nothing, number(0), shift)
    powers = call.emit(op.where(is_nothing, number(0), op.left_shift(line, places)))
    total = op.sum(powers, axes, keepdims=True)
    shares = op.multiply(op.floor_divide(number(1 << _SOFTMAX_BITS), total), powers)
    result = call.emit(op.right_shift(shares, number(_SOFTMAX_BITS - _SHARE_BITS)))
    share = Quantised.of(np.float32(1 / (1 << _SHARE_BITS)), np.int32(0))
    return requantised(call, result, share, new, dtype)


def _avg_pool2d(call: OperatorCall, x: Value, *_: Value) -> Value:
    old, new, dtype = _pair(call)
    same = old.equals(new)
    wide = call.cast(x, "int32") if same else requantised(call, x, old, new, "int32")
    return narrowed(call, average(call, wide), dtype)


CONVERTERS: dict[str, Converter] = {
    **{f"qnn.{name}": partial(_function, function) for name, function in _FUNCTIONS.items()},
    "qnn.avg_pool2d": _avg_pool2d,
    "qnn.leaky_relu": _leaky_relu,
    "qnn.softmax": _softmax,
}
