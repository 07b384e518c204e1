"""Special functions: polynomials of Abramowitz and Stegun, and Lanczos' gamma function.

Their errors are below 2e-7, about a rounding of float32; in float64 they are not broken down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from tvm_tile.frontend.torch.decompositions.formulas import (
    Decompositions,
    Formula,
    inverse_erf,
    polynomial,
    result_of_floats,
)


def _single(formula: Formula, x: Tensor) -> Tensor:
    """Compute in float32, whatever the type of the result."""
    dtype = result_of_floats(x)
    return NotImplemented if dtype == torch.float64 else formula(x.to(dtype).float()).to(dtype)


def _bessel(
    near: Sequence[float], far: Sequence[float], *, odd: bool = False, scaled: bool = False
) -> Formula:
    """A modified Bessel function of the first kind, by ``(x / 3.75) ** 2`` and by ``3.75 / x``.

    Args:
        near: the polynomial of the first, for ``|x| < 3.75``.
        far: the polynomial of the second, times ``exp(|x|) / sqrt(|x|)``.
        odd: whether ``near`` is to be multiplied by ``x``, and the sign of ``x`` counts.
        scaled: whether the result is multiplied by ``exp(-|x|)``.
    """

    def formula(x: Tensor) -> Tensor:
        size, ratio = x.abs(), x / 3.75
        inner, outer = polynomial(near, ratio * ratio), polynomial(far, 3.75 / size) / size.sqrt()
        if scaled:
            inner = inner * (-size).exp()
        else:
            outer = outer * size.exp()
        if odd:
            inner, outer = inner * x, outer * x.sign()
        return torch.where(size < 3.75, inner, outer)

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


def _erfc(x: Tensor) -> Tensor:
    """``1 - erf(x)`` with a relative error of 1e-7 where that difference is small, too."""
    tail = _erfc_tail(x.abs()) * (-(x * x)).exp()
    return torch.where(x < 0, 2 - tail, tail)


def _erfc_tail(size: Tensor) -> Tensor:
    """``exp(x * x) * erfc(x)`` of what is not negative.

    Numerical Recipes' Chebyshev fit: ``t * exp(polynomial(t))``, ``t = 1 / (1 + x / 2)``.
    """
    t = (size * 0.5 + 1).reciprocal()
    return t * polynomial(_ERFC, t).exp()


_ERFC = (
    *(-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806),
    *(0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277),
)


def _erfcx(x: Tensor) -> Tensor:
    """``exp(x * x) * erfc(x)``."""
    tail = _erfc_tail(x.abs())
    return torch.where(x < 0, 2 * (x * x).exp() - tail, tail)


def _ndtri(x: Tensor) -> Tensor:
    """The quantile of the normal distribution: ``sqrt(2) * erfinv(2 * x - 1)``."""
    rest = 1 - x
    return inverse_erf(x - rest, 4 * x * rest) * math.sqrt(2)


_LANCZOS = (
    *(676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059),
    *(12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7),
)


def _lgamma(x: Tensor) -> Tensor:
    """The logarithm of the gamma function's size; below a half by its reflection.

    Near 1 and 2, where it is 0, the error is absolute, not relative.
    """
    is_low = x < 0.5
    z = torch.where(is_low, -x, x - 1)
    total = 0.99999999999980993 + sum(c / (z + i) for i, c in enumerate(_LANCZOS, 1))
    # (z + 0.5) * log(t) - t, without a difference of two large numbers' roundings.
    power = (z + 0.5) * ((z + 7.5).log() - 1)
    value = power + (0.5 * math.log(2 * math.pi) - 7) + total.log()
    low = math.log(math.pi) - ((x - x.floor()) * math.pi).sin().log() - value
    is_endless = x.isinf() | ((x == x.floor()) & (x <= 0))
    return torch.where(is_endless, math.inf, torch.where(is_low, low, value))


_DIGAMMA_STEPS = 6
_DIGAMMA = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132)


def _digamma(x: Tensor) -> Tensor:
    """The derivative of ``lgamma``: raised by 6, then its series; below 0 by its reflection."""
    is_low = x < 0
    z = torch.where(is_low, 1 - x, x)
    steps = sum((z + i).reciprocal() for i in range(_DIGAMMA_STEPS))
    large = z + _DIGAMMA_STEPS
    inverse = large.reciprocal()
    square = inverse * inverse
    value = large.log() - 0.5 * inverse - steps + polynomial(_DIGAMMA, square) * square
    angle = (x - x.floor()) * math.pi
    result = torch.where(is_low, value - angle.cos() / angle.sin() * math.pi, value)
    return torch.where(is_low & (x == x.floor()), math.nan, result)


def _polygamma(n: int, x: Tensor) -> Tensor:
    return _single(_digamma, x) if n == 0 else NotImplemented


_ATEN = torch.ops.aten
_FORMULAS = {
    _ATEN.i0: _bessel(*_I0),
    _ATEN.special_i0e: _bessel(*_I0, scaled=True),
    _ATEN.special_i1: _bessel(*_I1, odd=True),
    _ATEN.special_i1e: _bessel(*_I1, odd=True, scaled=True),
    _ATEN.special_modified_bessel_i0: _bessel(*_I0),
    _ATEN.special_modified_bessel_i1: _bessel(*_I1, odd=True),
    _ATEN.erfc: _erfc,
    _ATEN.special_erfcx: _erfcx,
    _ATEN.special_ndtri: _ndtri,
    _ATEN.lgamma: _lgamma,
    _ATEN.digamma: _digamma,
}
DECOMPOSITIONS: Decompositions = {
    **{packet.default: partial(_single, formula) for packet, formula in _FORMULAS.items()},
    _ATEN.polygamma.default: _polygamma,
}
