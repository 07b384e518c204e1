"""Relay's quantised numbers: an integer less a zero point, times a scale.

Integers are scaled as Relay scales them: by a multiplier of 31 bits and a shift, in int64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from tvm.relax import op

from tvm_tile.frontend.ops.values import along, constant, counted_axis, dtype_of, shape_of
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.elementwise import rounded_from_zero
from tvm_tile.frontend.relay.operators.shapes import joined
from tvm_tile.frontend.relay.values import require_floats

_BITS = 31
_ROUNDINGS = ("None", "UPWARD", "TONEAREST")
_COMPUTED = ("None", "int64", "float32", "float64")
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32")


@dataclass(frozen=True, slots=True)
class Quantised:
    """What integers stand for: all of them, or those at each place along an axis.

    Attributes:
        scales: one or several, in float64.
        zeros: zero points, one or several.
    """

    scales: np.ndarray
    zeros: np.ndarray

    @classmethod
    def of(cls, scale: np.ndarray, zero: np.ndarray) -> Quantised:
        """By a scale in float32 and a zero point, each a number or a vector.

        Raises:
            ValueError: a scale is no positive number.
        """
        scales = np.asarray(scale, "float32").astype("float64").ravel()
        if not (np.isfinite(scales) & (scales > 0)).all():
            raise ValueError(f"scales {scales.tolist()}")
        return cls(scales, zero.ravel())

    def equals(self, other: Quantised) -> bool:
        """Whether integers stand for the same numbers."""
        both = (self.scales, other.scales), (self.zeros, other.zeros)
        return all(a.size == b.size == 1 and a[0] == b[0] for a, b in both)


def quantised(call: OperatorCall, scale: int, zero: int) -> Quantised:
    """What two arguments say, which have to be known."""
    return Quantised.of(call.parameter(scale, "a scale"), call.parameter(zero, "a zero point"))


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Multipliers as ``mantissa * 2 ** (exponent - 31)``, with mantissas of 31 bits."""

    mantissas: np.ndarray
    exponents: np.ndarray

    @classmethod
    def of(cls, multipliers: np.ndarray) -> FixedPoint:
        """The nearest ones.

        Raises:
            NotImplementedError: one is beyond what int64 holds the products of.
        """
        mantissas, exponents = np.frexp(multipliers)
        if np.abs(exponents).max() >= _BITS:
            raise NotImplementedError(f"quantised numbers times {multipliers}")
        rounded = np.floor(mantissas * 2.0**_BITS + 0.5).astype("int64")
        full = rounded == 1 << _BITS
        return cls(np.where(full, rounded // 2, rounded), exponents.astype("int64") + full)

    @property
    def left(self) -> np.ndarray:
        """Places to the left, before the product."""
        return np.maximum(self.exponents, 0)

    @property
    def right(self) -> np.ndarray:
        """Places to the right, after it."""
        return _BITS + np.maximum(-self.exponents, 0)


def along_axis(call: OperatorCall, value: Value, axis: int, x: Value) -> Value:
    """A scale or zero point in a shape that broadcasts with what it belongs to."""
    shape, extents = shape_of(value), shape_of(x)
    if math.prod(shape) == 1:
        return call.reshaped(value, ())
    own = counted_axis(axis, len(extents))
    if len(shape) != 1 or shape[0] != extents[own]:
        raise ValueError(f"{list(shape)} scales or zero points for an axis of {extents[own]}")
    return call.emit(along(value, own, len(extents)))


def _spread(call: OperatorCall, numbers: np.ndarray, dtype: str, x: Value, axis: int) -> Value:
    """Numbers known now, one for all elements or one for each place along an axis."""
    shape = () if numbers.size == 1 else (numbers.size,)
    return along_axis(call, constant(numbers.reshape(shape), dtype), axis, x)


def scaled_integers(
    call: OperatorCall, x: Value, by: FixedPoint, axis: int, to_nearest: bool = False
) -> Value:
    """int64 times multipliers, rounded: halves up, or away from zero."""

    def line(numbers: np.ndarray) -> Value:
        return _spread(call, numbers, "int64", x, axis)

    moved = op.left_shift(x, line(by.left)) if by.left.any() else x
    wide = call.emit(op.multiply(moved, line(by.mantissas)))
    half = np.left_shift(np.int64(1), by.right - 1)
    more = line(half)
    if to_nearest:
        more = op.where(op.less(wide, constant(0, "int64")), line(half - 1), more)
    return call.emit(op.right_shift(op.add(wide, more), line(by.right)))


def _require_integers(dtype: str) -> None:
    if dtype not in _INTEGERS:
        raise NotImplementedError(f"quantised numbers of {dtype}")


def narrowed(call: OperatorCall, x: Value, dtype: str) -> Value:
    """The nearest numbers of an integer type."""
    bounds = np.iinfo(dtype)
    return call.cast(call.clipped(x, bounds.min, bounds.max), dtype)


def requantised(
    call: OperatorCall,
    x: Value,
    old: Quantised,
    new: Quantised,
    dtype: str,
    *,
    axis: int = -1,
    to_nearest: bool = False,
    compute: str = "int64",
) -> Value:
    """Integers that stand for the numbers of others, of another scale and zero point."""
    _require_integers(dtype_of(x))
    _require_integers(dtype)
    if new.scales.size != 1 or new.zeros.size != 1:
        raise NotImplementedError("a scale of the result for each channel")
    wide = call.emit(op.astype(x, compute))
    if old.zeros.any():
        wide = call.emit(op.subtract(wide, _spread(call, old.zeros, compute, x, axis)))
    ratios = old.scales / new.scales
    if (ratios != 1).any() and compute == "int64":
        wide = scaled_integers(call, wide, FixedPoint.of(ratios), axis, to_nearest)
    elif (ratios != 1).any():
        product = call.emit(op.multiply(wide, _spread(call, ratios, compute, x, axis)))
        rounded_up = op.floor(op.add(product, constant(0.5, compute)))
        wide = rounded_from_zero(call, product) if to_nearest else call.emit(rounded_up)
    if new.zeros.any():
        wide = call.emit(op.add(wide, constant(int(new.zeros[0]), compute)))
    return narrowed(call, wide, dtype) if compute == "int64" else _saturated(call, wide, dtype)


def _saturated(call: OperatorCall, x: Value, dtype: str) -> Value:
    """Whole real numbers as integers; bounds are the nearest that the real type has within."""
    bounds, real = np.iinfo(dtype), dtype_of(x)
    highest = np.array(bounds.max, real)
    if int(highest) > bounds.max:
        highest = np.nextafter(highest, np.array(0, real))
    return call.cast(call.clipped(x, bounds.min, float(highest)), dtype)


def _requantize(call: OperatorCall, x: Value, *_: Value, axis: int) -> Value:
    old, new = quantised(call, 1, 2), quantised(call, 3, 4)
    names = ("rounding", "compute_dtype", "out_dtype")
    rounding, compute, out = (call.attributes.get(name) or "None" for name in names)
    if rounding not in _ROUNDINGS or compute not in _COMPUTED:
        raise NotImplementedError(f"rounding {rounding} in {compute}")
    compute, out = (kind.replace("None", own) for kind, own in ((compute, "int64"), (out, "int8")))
    nearest = rounding == "TONEAREST"
    return requantised(call, x, old, new, out, axis=axis, to_nearest=nearest, compute=compute)


def _quantize(
    call: OperatorCall, x: Value, scale: Value, zero: Value, *, axis: int, out_dtype: str
) -> Value:
    """Halves go away from zero, before the zero point is added; up to TVM 0.7 they went after."""
    _require_integers(out_dtype)
    require_floats(x)
    x = call.cast(x, dtype_of(scale))
    scaled = call.emit(op.divide(x, along_axis(call, scale, axis, x)))
    shift = call.cast(along_axis(call, zero, axis, x), dtype_of(x))
    return _saturated(call, call.emit(op.add(rounded_from_zero(call, scaled), shift)), out_dtype)


def _dequantize(
    call: OperatorCall, x: Value, scale: Value, zero: Value, *, axis: int, out_dtype: str = ""
) -> Value:
    _require_integers(dtype_of(x))
    whole = shifted(call, x, zero, axis)
    factor = along_axis(call, scale, axis, x)
    real = call.emit(op.multiply(call.cast(whole, dtype_of(scale)), factor))
    return call.cast(real, out_dtype or "float32")


def shifted(call: OperatorCall, x: Value, zero: Value, axis: int) -> Value:
    """Integers less their zero points, in int32."""
    shift = call.cast(along_axis(call, zero, axis, x), "int32")
    return call.emit(op.subtract(call.cast(x, "int32"), shift))


def _sum(combine: Callable[..., Value], zeros_left: int, call: OperatorCall, *_: Value) -> Value:
    """Sums and differences, of integers that stand for numbers as those of the result do."""
    left, right = call.arguments[:2]
    dtype, new = dtype_of(left), quantised(call, 6, 7)

    def part(value: Value, index: int, side: str) -> Value:
        axis = int(call.attributes.get(f"{side}_axis", -1))
        old = quantised(call, index, index + 1)
        if old.equals(new):
            return call.cast(value, "int32")
        return requantised(call, value, old, new, "int32", axis=axis)

    total = combine(part(left, 2, "lhs"), part(right, 4, "rhs"))
    shift = constant(zeros_left * int(new.zeros[0]), "int32")
    return narrowed(call, call.emit(op.subtract(total, shift)), dtype)


def _mul(call: OperatorCall, left: Value, right: Value, *given: Value) -> Value:
    pair = quantised(call, 2, 3), quantised(call, 4, 5)
    if any(one.scales.size != 1 or one.zeros.size != 1 for one in pair):
        raise NotImplementedError("a product of numbers with a scale for each channel")
    for value in (left, right):
        _require_integers(dtype_of(value))
    product = op.multiply(shifted(call, left, given[1], -1), shifted(call, right, given[3], -1))
    scale = np.float32(pair[0].scales[0]) * np.float32(pair[1].scales[0])
    old = Quantised.of(np.array(scale), np.array(0))
    return requantised(call, call.emit(product), old, quantised(call, 6, 7), dtype_of(left))


def _concatenate(call: OperatorCall, values: Sequence[Value], *_: Value, axis: int) -> Value:
    new, parts = quantised(call, 3, 4), []
    for value, *own in zip(*call.arguments[:3], strict=True):
        old = quantised(replace(call, arguments=tuple(own)), 0, 1)
        same = old.equals(new)
        parts.append(value if same else requantised(call, value, old, new, dtype_of(value)))
    return joined(call, parts, counted_axis(axis, len(shape_of(values[0]))))


CONVERTERS: dict[str, Converter] = {
    "qnn.add": partial(_sum, op.add, 1),
    "qnn.concatenate": _concatenate,
    "qnn.dequantize": _dequantize,
    "qnn.mul": _mul,
    "qnn.quantize": _quantize,
    "qnn.requantize": _requantize,
    "qnn.subtract": partial(_sum, op.subtract, -1),
}
