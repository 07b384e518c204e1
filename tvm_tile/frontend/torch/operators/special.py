"""Special functions: polynomials of Abramowitz and Stegun, and Lanczos' gamma function.

Their errors are below 2e-7, about a rounding of float32; float64 is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from tvm import relax

from tvm_tile.frontend.torch.convert import Converter, Converters
from tvm_tile.frontend.torch.emit import Emit, Refusal, constant, dtype_of
from tvm_tile.frontend.torch.operators.functions import inverse_erf, polynomial

Formula = Callable[[Emit, relax.Expr], relax.Expr]


def _single(formula: Formula) -> Converter:
    """A converter that computes in float32, whatever the type of its result."""

    def convert(emit: Emit, x: relax.Expr) -> relax.Expr:
        if emit.dtype == torch.float64:
            raise Refusal("a special function in float64")
        value = emit.cast(emit.cast(x, emit.dtype), torch.float32)
        return emit.cast(emit(formula(emit, value)), emit.dtype)

    return convert


def _number(value: float, like: relax.Expr) -> relax.Expr:
    return constant(value, dtype_of(like))


def _over(emit: Emit, value: float, x: relax.Expr) -> relax.Expr:
    return emit(relax.op.divide(_number(value, x), x))


def _bessel(near: Sequence[float], far: Sequence[float], odd: bool, scaled: bool) -> Formula:
    """A modified Bessel function of the first kind, by ``(x / 3.75) ** 2`` and by ``3.75 / x``.

    Args:
        near: the polynomial of the first, for ``|x| < 3.75``.
        far: the polynomial of the second, times ``exp(|x|) / sqrt(|x|)``.
        odd: whether ``near`` is to be multiplied by ``x``, and the sign of ``x`` counts.
        scaled: whether the result is multiplied by ``exp(-|x|)``.
    """

    def formula(emit: Emit, x: relax.Expr) -> relax.Expr:
        limit = _number(3.75, x)
        size = emit(relax.op.abs(x))
        ratio = emit(relax.op.divide(x, limit))
        inner = polynomial(emit, near, emit(relax.op.multiply(ratio, ratio)))
        outer = polynomial(emit, far, _over(emit, 3.75, size))
        outer = emit(relax.op.divide(outer, emit(relax.op.sqrt(size))))
        if scaled:
            inner = emit(relax.op.multiply(inner, relax.op.exp(emit(relax.op.negative(size)))))
        else:
            outer = emit(relax.op.multiply(outer, emit(relax.op.exp(size))))
        if odd:
            inner = emit(relax.op.multiply(inner, x))
            outer = emit(relax.op.multiply(outer, relax.op.sign(x)))
        return relax.op.where(emit(relax.op.less(size, limit)), inner, outer)

    return formula


_I0 = (
    (1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.0360768, 0.0045813),
    (
        *(0.39894228, 0.01328592, 0.00225319, -0.00157565, 0.00916281, -0.02057706),
        *(0.02635537, -0.01647633, 0.00392377),
    ),
)
_I1 = (
    (0.5, 0.87890594, 0.51498869, 0.15084934, 0.02658733, 0.00301532, 0.00032411),
    (
        *(0.39894228, -0.03988024, -0.00362018, 0.00163801, -0.01031555, 0.02282967),
        *(-0.02895312, 0.01787654, -0.00420059),
    ),
)


def _erfc(emit: Emit, x: relax.Expr) -> relax.Expr:
    """``1 - erf(x)`` with a relative error of 1e-7 where that difference is small, too."""
    size = emit(relax.op.abs(x))
    damping = emit(relax.op.exp(emit(relax.op.negative(relax.op.multiply(size, size)))))
    tail = emit(relax.op.multiply(_erfc_tail(emit, size), damping))
    mirrored = emit(relax.op.subtract(_number(2, x), tail))
    return relax.op.where(emit(relax.op.less(x, _number(0, x))), mirrored, tail)


def _erfc_tail(emit: Emit, size: relax.Expr) -> relax.Expr:
    """``exp(x * x) * erfc(x)`` of what is not negative.

    Numerical Recipes' Chebyshev fit: ``t * exp(polynomial(t))``, ``t = 1 / (1 + x / 2)``.
    """
    half = emit(relax.op.multiply(size, _number(0.5, size)))
    t = emit(_over(emit, 1, emit(relax.op.add(half, _number(1, size)))))
    return emit(relax.op.multiply(t, relax.op.exp(polynomial(emit, _ERFC, t))))


_ERFC = (
    *(-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806),
    *(0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277),
)


def _erfcx(emit: Emit, x: relax.Expr) -> relax.Expr:
    """``exp(x * x) * erfc(x)``."""
    tail = _erfc_tail(emit, emit(relax.op.abs(x)))
    square = emit(relax.op.exp(emit(relax.op.multiply(x, x))))
    mirrored = emit(relax.op.subtract(relax.op.multiply(_number(2, x), square), tail))
    return relax.op.where(emit(relax.op.less(x, _number(0, x))), mirrored, tail)


def _ndtri(emit: Emit, x: relax.Expr) -> relax.Expr:
    """The quantile of the normal distribution: ``sqrt(2) * erfinv(2 * x - 1)``."""
    one = _number(1, x)
    rest = emit(relax.op.subtract(one, x))
    product = emit(relax.op.multiply(relax.op.multiply(_number(4, x), x), rest))
    centred = emit(relax.op.subtract(x, rest))
    inverse = inverse_erf(emit, centred, product)
    return relax.op.multiply(emit(inverse), _number(math.sqrt(2), x))


_LANCZOS = (
    *(676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059),
    *(12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7),
)


def _lgamma(emit: Emit, x: relax.Expr) -> relax.Expr:
    """The logarithm of the gamma function's size; below a half by its reflection.

    Near 1 and 2, where it is 0, the error is absolute, not relative.
    """
    half, one = _number(0.5, x), _number(1, x)
    is_low = emit(relax.op.less(x, half))
    z = emit(relax.op.where(is_low, emit(relax.op.negative(x)), emit(relax.op.subtract(x, one))))
    total = _number(0.99999999999980993, x)
    for i, coefficient in enumerate(_LANCZOS, 1):
        part = _over(emit, coefficient, emit(relax.op.add(z, _number(i, x))))
        total = emit(relax.op.add(total, part))
    t = emit(relax.op.add(z, _number(7.5, x)))
    log = emit(relax.op.log(t))
    # (z + 0.5) * log(t) - t, without a difference of two large numbers' roundings.
    power = emit(relax.op.multiply(emit(relax.op.add(z, half)), emit(relax.op.subtract(log, one))))
    constant_part = _number(0.5 * math.log(2 * math.pi) - 7, x)
    value = emit(relax.op.add(relax.op.add(power, constant_part), relax.op.log(total)))
    fraction = emit(relax.op.subtract(x, relax.op.floor(x)))
    sine = emit(relax.op.sin(emit(relax.op.multiply(fraction, _number(math.pi, x)))))
    reflected = emit(relax.op.subtract(_number(math.log(math.pi), x), emit(relax.op.log(sine))))
    low = emit(relax.op.subtract(reflected, value))
    result = emit(relax.op.where(is_low, low, value))
    endless = relax.op.where(emit(relax.op.isinf(x)), _number(math.inf, x), result)
    is_pole = relax.op.logical_and(
        relax.op.equal(x, relax.op.floor(x)), relax.op.less_equal(x, _number(0, x))
    )
    return relax.op.where(emit(is_pole), _number(math.inf, x), emit(endless))


_DIGAMMA_STEPS = 6
_DIGAMMA = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132)


def _digamma(emit: Emit, x: relax.Expr) -> relax.Expr:
    """The derivative of ``lgamma``: raised by 6, then its series; below 0 by its reflection."""
    zero, one = _number(0, x), _number(1, x)
    is_low = emit(relax.op.less(x, zero))
    z = emit(relax.op.where(is_low, emit(relax.op.subtract(one, x)), x))
    steps = zero
    for i in range(_DIGAMMA_STEPS):
        steps = emit(relax.op.add(steps, _over(emit, 1, emit(relax.op.add(z, _number(i, x))))))
    large = emit(relax.op.add(z, _number(_DIGAMMA_STEPS, x)))
    inverse = _over(emit, 1, large)
    square = emit(relax.op.multiply(inverse, inverse))
    series = emit(relax.op.multiply(polynomial(emit, _DIGAMMA, square), square))
    log = emit(relax.op.log(large))
    half = emit(relax.op.multiply(inverse, _number(0.5, x)))
    value = emit(relax.op.add(relax.op.subtract(relax.op.subtract(log, half), steps), series))
    fraction = emit(relax.op.subtract(x, relax.op.floor(x)))
    angle = emit(relax.op.multiply(fraction, _number(math.pi, x)))
    cotangent = emit(relax.op.divide(emit(relax.op.cos(angle)), emit(relax.op.sin(angle))))
    mirrored = emit(relax.op.subtract(value, relax.op.multiply(cotangent, _number(math.pi, x))))
    result = emit(relax.op.where(is_low, mirrored, value))
    is_pole = emit(relax.op.logical_and(is_low, relax.op.equal(x, relax.op.floor(x))))
    return relax.op.where(is_pole, _number(math.nan, x), result)


def _polygamma(emit: Emit, n: int, x: relax.Expr) -> relax.Expr:
    if n != 0:
        raise Refusal(f"derivative {n}")
    return _single(_digamma)(emit, x)


_ATEN = torch.ops.aten
_FORMULAS = {
    _ATEN.i0: _bessel(*_I0, odd=False, scaled=False),
    _ATEN.special_i0e: _bessel(*_I0, odd=False, scaled=True),
    _ATEN.special_i1: _bessel(*_I1, odd=True, scaled=False),
    _ATEN.special_i1e: _bessel(*_I1, odd=True, scaled=True),
    _ATEN.special_modified_bessel_i0: _bessel(*_I0, odd=False, scaled=False),
    _ATEN.special_modified_bessel_i1: _bessel(*_I1, odd=True, scaled=False),
    _ATEN.erfc: _erfc,
    _ATEN.special_erfcx: _erfcx,
    _ATEN.special_ndtri: _ndtri,
    _ATEN.lgamma: _lgamma,
    _ATEN.digamma: _digamma,
}
CONVERTERS: Converters = {
    **{packet.default: _single(formula) for packet, formula in _FORMULAS.items()},
    _ATEN.polygamma.default: _polygamma,
}
