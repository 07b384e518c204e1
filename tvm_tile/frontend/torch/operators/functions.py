"""Functions of one number, element by element: exponentials, angles, activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from tvm import relax

from tvm_tile.frontend.torch.convert import Converter, Converters
from tvm_tile.frontend.torch.emit import Emit, Refusal, constant, dtype_of

Function = Callable[[relax.Expr], relax.Expr]


def _of_floats(function: Function) -> Converter:
    """A converter of an operator that makes floating-point numbers of integers, too."""

    def convert(emit: Emit, x: relax.Expr) -> relax.Expr:
        return function(emit.cast(x, emit.dtype))

    return convert


def _formula(function: Callable[[Emit, relax.Expr], relax.Expr]) -> Converter:
    """A converter of several steps, which are in float32 where the result is of half precision."""

    def convert(emit: Emit, x: relax.Expr) -> relax.Expr:
        wide = emit.wide(emit.cast(x, emit.dtype))
        return emit.cast(emit(function(emit, wide)), emit.dtype)

    return convert


def _rounding(function: Function) -> Converter:
    def convert(emit: Emit, x: relax.Expr) -> relax.Expr:
        return function(x) if dtype_of(x).is_floating_point else x

    return convert


def _asking(function: Function) -> Converter:
    """A converter of a question whose answer is no for every integer."""

    def convert(emit: Emit, x: relax.Expr) -> relax.Expr:
        return function(x) if dtype_of(x).is_floating_point else emit.full(False)

    return convert


def _number(value: float, like: relax.Expr) -> relax.Expr:
    return constant(value, dtype_of(like))


def _reciprocal(emit: Emit, x: relax.Expr) -> relax.Expr:
    return relax.op.divide(_number(1, x), x)


def _log_to_base(base: float) -> Callable[[Emit, relax.Expr], relax.Expr]:
    def log(emit: Emit, x: relax.Expr) -> relax.Expr:
        return relax.op.divide(emit(relax.op.log(x)), _number(math.log(base), x))

    return log


def _log1p(emit: Emit, x: relax.Expr) -> relax.Expr:
    """``log(1 + x)``, exact for small ``x``: what the sum lost cancels in ``x / (sum - 1)``."""
    one = _number(1, x)
    total = emit(relax.op.add(one, x))
    log = emit(relax.op.log(total))
    mended = emit(relax.op.divide(relax.op.multiply(log, x), relax.op.subtract(total, one)))
    small = emit(relax.op.where(emit(relax.op.equal(total, one)), x, mended))
    return relax.op.where(emit(relax.op.greater(x, one)), log, small)


def expm1(emit: Emit, x: relax.Expr) -> relax.Expr:
    """``exp(x) - 1``, exact for small ``x``, as in :func:`_log1p`."""
    one = _number(1, x)
    power = emit(relax.op.exp(x))
    plain = emit(relax.op.subtract(power, one))
    mended = emit(relax.op.divide(relax.op.multiply(plain, x), relax.op.log(power)))
    small = emit(relax.op.where(emit(relax.op.equal(power, one)), x, mended))
    is_large = emit(relax.op.greater(relax.op.abs(x), one))
    return relax.op.where(is_large, plain, small)


def polynomial(emit: Emit, coefficients: Sequence[float], x: relax.Expr) -> relax.Expr:
    """By Horner's rule; the coefficient of degree 0 comes first."""
    value = _number(coefficients[-1], x)
    for coefficient in reversed(coefficients[:-1]):
        value = emit(relax.op.add(relax.op.multiply(value, x), _number(coefficient, x)))
    return value


def _erfinv(emit: Emit, x: relax.Expr) -> relax.Expr:
    one = _number(1, x)
    product = relax.op.multiply(relax.op.subtract(one, x), relax.op.add(one, x))
    found = inverse_erf(emit, x, emit(product))
    if dtype_of(x) != torch.float64:
        return found
    for _ in range(2):  # Newton's steps, as in PyTorch: each doubles how many digits are right
        found = _nearer_inverse(emit, x, emit(found))
    return found


def _nearer_inverse(emit: Emit, x: relax.Expr, found: relax.Expr) -> relax.Expr:
    """One of Newton's steps towards the root of ``erf(found) - x``; infinite ones stay."""
    error = emit(relax.op.subtract(emit(relax.op.erf(found)), x))
    square = emit(relax.op.multiply(found, found))
    slope = relax.op.multiply(
        emit(relax.op.exp(emit(relax.op.negative(square)))), _number(2 / math.sqrt(math.pi), x)
    )
    step = emit(relax.op.subtract(found, emit(relax.op.divide(error, emit(slope)))))
    is_end = emit(relax.op.equal(relax.op.abs(x), _number(1, x)))
    return relax.op.where(is_end, found, step)


def inverse_erf(emit: Emit, x: relax.Expr, product: relax.Expr) -> relax.Expr:
    """Giles' fit in single precision: a polynomial in ``w = -log((1 - x) * (1 + x))``.

    Args:
        emit: writes it.
        x: from -1 to 1, where the result is infinite.
        product: ``(1 - x) * (1 + x)``, which the caller may know more exactly.
    """
    w = emit(relax.op.negative(emit(relax.op.log(product))))
    centre = polynomial(emit, _ERFINV_CENTRE, emit(relax.op.subtract(w, _number(2.5, x))))
    root = emit(relax.op.subtract(emit(relax.op.sqrt(w)), _number(3, x)))
    tail = polynomial(emit, _ERFINV_TAIL, root)
    fit = emit(relax.op.where(emit(relax.op.less(w, _number(5, x))), centre, tail))
    inside = emit(relax.op.multiply(fit, x))
    is_end = emit(relax.op.equal(relax.op.abs(x), _number(1, x)))
    return relax.op.where(is_end, emit(relax.op.multiply(x, _number(math.inf, x))), inside)


_ERFINV_CENTRE = (
    *(1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087),
    *(-4.39150654e-06, -3.5233877e-06, 3.43273939e-07, 2.81022636e-08),
)
_ERFINV_TAIL = (
    *(2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773),
    *(-0.00367342844, 0.00134934322, 0.000100950558, -0.000200214257),
)


def _round(emit: Emit, x: relax.Expr, decimals: int) -> relax.Expr:
    if not dtype_of(x).is_floating_point:
        if decimals >= 0:
            return x
        raise Refusal("integers to tens")
    wide = emit.wide(x)
    scale = _number(10.0 ** abs(decimals), wide)
    there, back = relax.op.multiply, relax.op.divide
    if decimals < 0:
        there, back = back, there
    rounded = emit(relax.op.round(emit(there(wide, scale))))
    return emit.cast(emit(back(rounded, scale)), emit.dtype)


def _sign(emit: Emit, x: relax.Expr) -> relax.Expr:
    return x if dtype_of(x) == torch.bool else relax.op.sign(x)


def _signbit(emit: Emit, x: relax.Expr) -> relax.Expr:
    return emit.full(False) if dtype_of(x) == torch.bool else signbit(emit, x)


def signbit(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Whether a number is below zero, or minus zero."""
    zero = _number(0, x)
    is_below = emit(relax.op.less(x, zero))
    if not dtype_of(x).is_floating_point:
        return is_below
    is_zero = emit(relax.op.equal(x, zero))
    is_inverse_below = emit(relax.op.less(emit(_reciprocal(emit, x)), zero))
    return relax.op.logical_or(is_below, emit(relax.op.logical_and(is_zero, is_inverse_below)))


def _copysign(emit: Emit, x: relax.Expr, other: relax.Expr | float) -> relax.Expr:
    size = emit(relax.op.abs(emit.operand(x, emit.dtype)))
    sign = emit.operand(other, emit.dtype)
    return relax.op.where(emit(signbit(emit, sign)), emit(relax.op.negative(size)), size)


def _hypot(emit: Emit, x: relax.Expr, other: relax.Expr) -> relax.Expr:
    """Scaled by the larger one, whose square might be too large."""
    sides = [emit(relax.op.abs(emit.wide(emit.operand(side, emit.dtype)))) for side in (x, other)]
    large, small = emit(relax.op.maximum(*sides)), emit(relax.op.minimum(*sides))
    zero, one = _number(0, large), _number(1, large)
    ratio = emit(relax.op.divide(small, large))
    root = emit(relax.op.sqrt(relax.op.add(one, relax.op.multiply(ratio, ratio))))
    length = emit(relax.op.multiply(large, root))
    finite = emit(relax.op.where(relax.op.equal(large, zero), large, length))
    # Infinite whatever the other one is, be it no number.
    infinity = _number(math.inf, large)
    ends = [emit(relax.op.equal(side, infinity)) for side in sides]
    is_infinite = emit(relax.op.logical_or(*ends))
    return emit.cast(emit(relax.op.where(is_infinite, infinity, finite)), emit.dtype)


def _atan2(emit: Emit, x: relax.Expr, other: relax.Expr) -> relax.Expr:
    sides = [emit.wide(emit.operand(side, emit.dtype)) for side in (x, other)]
    return emit.cast(emit(relax.op.atan2(*sides)), emit.dtype)


def _relu(emit: Emit, x: relax.Expr) -> relax.Expr:
    if dtype_of(x).is_floating_point:
        return relax.op.nn.relu(x)
    return relax.op.maximum(x, _number(0, x))


def _gelu(emit: Emit, x: relax.Expr, approximate: str) -> relax.Expr:
    return relax.op.nn.gelu_tanh(x) if approximate == "tanh" else relax.op.nn.gelu(x)


def _leaky_relu(emit: Emit, x: relax.Expr, negative_slope: float) -> relax.Expr:
    if negative_slope < 0:  # TVM takes the larger of the two lines
        steep = emit(relax.op.multiply(x, _number(negative_slope, x)))
        return relax.op.where(emit(relax.op.greater(x, _number(0, x))), x, steep)
    return relax.op.nn.leakyrelu(x, negative_slope)


def _elu(emit: Emit, x: relax.Expr, alpha: float, scale: float, input_scale: float) -> relax.Expr:
    wide = emit.wide(x)
    inner = emit(relax.op.multiply(wide, _number(input_scale, wide)))
    below = emit(relax.op.multiply(emit(expm1(emit, inner)), _number(alpha * scale, wide)))
    above = emit(relax.op.multiply(wide, _number(scale, wide)))
    is_above = emit(relax.op.greater(wide, _number(0, wide)))
    return emit.cast(emit(relax.op.where(is_above, above, below)), emit.dtype)


_ATEN = torch.ops.aten
_OF_FLOATS = {
    **{_ATEN.exp: relax.op.exp, _ATEN.log: relax.op.log, _ATEN.sqrt: relax.op.sqrt},
    **{_ATEN.rsqrt: relax.op.rsqrt, _ATEN.erf: relax.op.erf, _ATEN.sigmoid: relax.op.sigmoid},
    **{_ATEN.sin: relax.op.sin, _ATEN.cos: relax.op.cos, _ATEN.tan: relax.op.tan},
    **{_ATEN.sinh: relax.op.sinh, _ATEN.cosh: relax.op.cosh, _ATEN.tanh: relax.op.tanh},
    **{_ATEN.asin: relax.op.asin, _ATEN.acos: relax.op.acos, _ATEN.atan: relax.op.atan},
    **{_ATEN.asinh: relax.op.asinh, _ATEN.acosh: relax.op.acosh, _ATEN.atanh: relax.op.atanh},
}
_FORMULAS = {
    **{_ATEN.reciprocal: _reciprocal, _ATEN.log1p: _log1p, _ATEN.expm1: expm1},
    **{_ATEN.log2: _log_to_base(2), _ATEN.log10: _log_to_base(10)},
    _ATEN.erfinv: _erfinv,
    _ATEN.exp2: lambda emit, x: relax.op.power(_number(2, x), x),
}
_ROUNDINGS = {
    **{_ATEN.ceil: relax.op.ceil, _ATEN.floor: relax.op.floor},
    **{_ATEN.round: relax.op.round, _ATEN.trunc: relax.op.trunc},
}
_QUESTIONS = {_ATEN.isnan: relax.op.isnan, _ATEN.isinf: relax.op.isinf}

CONVERTERS: Converters = {
    **{packet.default: _of_floats(function) for packet, function in _OF_FLOATS.items()},
    **{packet.default: _formula(function) for packet, function in _FORMULAS.items()},
    **{packet.default: _rounding(function) for packet, function in _ROUNDINGS.items()},
    **{packet.default: _asking(function) for packet, function in _QUESTIONS.items()},
    _ATEN.round.decimals: _round,
    _ATEN.abs.default: lambda emit, x: relax.op.abs(x),
    _ATEN.neg.default: lambda emit, x: relax.op.negative(x),
    _ATEN.sign.default: _sign,
    _ATEN.signbit.default: _signbit,
    _ATEN.copysign.Tensor: _copysign,
    _ATEN.copysign.Scalar: _copysign,
    _ATEN.hypot.default: _hypot,
    _ATEN.atan2.default: _atan2,
    _ATEN.relu.default: _relu,
    _ATEN.gelu.default: _gelu,
    _ATEN.leaky_relu.default: _leaky_relu,
    _ATEN.elu.default: _elu,
}
