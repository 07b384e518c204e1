"""Functions of single numbers, as formulas of several steps.

Those are computed in float32 where the result is of half precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

Formula = Callable[[Tensor], Tensor]
Decompositions = Mapping[OpOverload, Callable[..., Any]]
"""Operator -> what computes the same by others; ``NotImplemented`` for forms that stay whole."""


def result_of_floats(*values: Any) -> torch.dtype:
    """The element type of an operator that makes floating-point numbers of integers, too."""
    kind = ELEMENTWISE_TYPE_PROMOTION_KIND.INT_TO_FLOAT
    return elementwise_dtypes(*values, type_promotion_kind=kind)[1]


def widened(x: Tensor) -> Tensor:
    """Numbers of half precision in float32, others as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _stepwise(formula: Formula, x: Tensor) -> Tensor:
    dtype = result_of_floats(x)
    return formula(widened(x.to(dtype))).to(dtype)


def _log1p(x: Tensor) -> Tensor:
    """``log(1 + x)``, exact for small ``x``: what the sum lost cancels in ``x / (sum - 1)``."""
    total = 1 + x
    log = total.log()
    small = torch.where(total == 1, x, log * x / (total - 1))
    return torch.where(x > 1, log, small)


def _expm1(x: Tensor) -> Tensor:
    """``exp(x) - 1``, exact for small ``x``, as in :func:`_log1p`."""
    power = x.exp()
    plain = power - 1
    small = torch.where(power == 1, x, plain * x / power.log())
    return torch.where(x.abs() > 1, plain, small)


def polynomial(coefficients: Sequence[float], x: Tensor) -> Tensor:
    """The value by Horner's rule; the coefficient of degree 0 comes first."""
    *others, value = coefficients
    result = torch.full_like(x, value)
    for coefficient in reversed(others):
        result = result * x + coefficient
    return result


def _erfinv(x: Tensor) -> Tensor:
    found = inverse_erf(x, (1 - x) * (1 + x))
    if x.dtype == torch.float64:
        for _ in range(2):  # Newton's steps, as in PyTorch: each doubles how many digits are right
            slope = (-(found * found)).exp() * (2 / math.sqrt(math.pi))
            nearer = found - (found.erf() - x) / slope
            found = torch.where(x.abs() == 1, found, nearer)
    return found


def inverse_erf(x: Tensor, product: Tensor) -> Tensor:
    """Giles' fit in single precision: a polynomial in ``w = -log((1 - x) * (1 + x))``.

    Args:
        x: from -1 to 1, where the result is infinite.
        product: ``(1 - x) * (1 + x)``, which the caller may know more exactly.
    """
    w = -product.log()
    centre, tail = polynomial(_ERFINV_CENTRE, w - 2.5), polynomial(_ERFINV_TAIL, w.sqrt() - 3)
    return torch.where(x.abs() == 1, x * math.inf, torch.where(w < 5, centre, tail) * x)


_ERFINV_CENTRE = (
    *(1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087),
    *(-4.39150654e-06, -3.5233877e-06, 3.43273939e-07, 2.81022636e-08),
)
_ERFINV_TAIL = (
    *(2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773),
    *(-0.00367342844, 0.00134934322, 0.000100950558, -0.000200214257),
)


def _round(x: Tensor, *, decimals: int) -> Tensor:
    if not x.is_floating_point():
        return x.clone() if decimals >= 0 else NotImplemented
    wide, scale = widened(x), 10.0 ** abs(decimals)
    rounded = (wide * scale).round() / scale if decimals >= 0 else (wide / scale).round() * scale
    return rounded.to(x.dtype)


def _signbit(x: Tensor) -> Tensor:
    """Whether a number is below zero, or minus zero."""
    is_below = x < 0
    if not x.is_floating_point():
        return is_below
    return is_below | ((x == 0) & (x.reciprocal() < 0))


def _copysign(x: Tensor, other: Tensor | float) -> Tensor:
    size = x.to(result_of_floats(x, other)).abs()
    if not isinstance(other, Tensor):
        return size.clone() if math.copysign(1, other) > 0 else -size
    return torch.where(other.signbit(), -size, size)


def _hypot(x: Tensor, other: Tensor) -> Tensor:
    """The length of a vector, scaled by the larger side, whose square might be too large."""
    dtype = torch.result_type(x, other)
    sides = [widened(side.to(dtype)).abs() for side in (x, other)]
    large, small = torch.maximum(*sides), torch.minimum(*sides)
    ratio = small / large
    length = torch.where(large == 0, large, large * (1 + ratio * ratio).sqrt())
    # Infinite whatever the other one is, be it no number.
    is_infinite = (sides[0] == math.inf) | (sides[1] == math.inf)
    return torch.where(is_infinite, math.inf, length).to(dtype)


def _divide(x: Tensor, other: Tensor | float, *, rounding_mode: str | None) -> Tensor:
    """Divide and round as PyTorch does: down by the remainder, which is exact; not of integers."""
    dtype = torch.result_type(x, other)
    if rounding_mode is None or not dtype.is_floating_point:
        return NotImplemented
    left, right = widened(x.to(dtype)), _side(other, dtype)
    plain = left / right
    if rounding_mode == "trunc":
        return plain.trunc().to(dtype)
    rest = torch.fmod(left, right)
    quotient = (left - rest) / right
    lower = torch.where(_is_apart(rest, right), quotient - 1, quotient)
    floor = lower.floor()
    rounded = torch.where(lower - floor > 0.5, floor + 1, floor)
    # Zero of the quotient's sign.
    signed = torch.where(lower == 0, plain * 0, rounded)
    by_zero = right == 0 if isinstance(right, Tensor) else torch.full_like(plain, right == 0) != 0
    return torch.where(by_zero, plain, signed).to(dtype)


def _side(value: Tensor | float, dtype: torch.dtype) -> Tensor | float:
    """A number as it is: PyTorch does not round it to half precision, which a floor would show."""
    return widened(value.to(dtype)) if isinstance(value, Tensor) else value


def _is_apart(rest: Tensor, divisor: Tensor | float) -> Tensor:
    return (rest != 0) & ((rest < 0) ^ (divisor < 0))


def _remainder(x: Tensor | float, other: Tensor | float) -> Tensor:
    """What is left, of the divisor's sign; not of integers."""
    dtype = torch.result_type(x, other)
    if not dtype.is_floating_point:
        return NotImplemented
    left, right = _side(x, dtype), _side(other, dtype)
    if not isinstance(left, Tensor):
        left = torch.full_like(right, left)
    rest = torch.fmod(left, right)
    return torch.where(_is_apart(rest, right), rest + right, rest).to(dtype)


def _ignoring_nan(join: Callable[[Tensor, Tensor], Tensor], x: Tensor, other: Tensor) -> Tensor:
    """Join two elements, or take the other one where one is no number."""
    chosen = torch.where(other.isnan(), x, join(x, other))
    return torch.where(x.isnan(), other, chosen)


_ATEN = torch.ops.aten
_FORMULAS: dict[Any, Formula] = {
    _ATEN.log1p: _log1p,
    _ATEN.expm1: _expm1,
    _ATEN.log2: lambda x: x.log() / math.log(2),
    _ATEN.log10: lambda x: x.log() / math.log(10),
    _ATEN.exp2: lambda x: torch.pow(2.0, x),
    _ATEN.erfinv: _erfinv,
}
DECOMPOSITIONS: Decompositions = {
    **{packet.default: partial(_stepwise, formula) for packet, formula in _FORMULAS.items()},
    _ATEN.round.decimals: _round,
    _ATEN.signbit.default: _signbit,
    _ATEN.copysign.Tensor: _copysign,
    _ATEN.copysign.Scalar: _copysign,
    _ATEN.hypot.default: _hypot,
    **dict.fromkeys((_ATEN.div.Tensor_mode, _ATEN.div.Scalar_mode), _divide),
    **dict.fromkeys((_ATEN.remainder.Tensor, _ATEN.remainder.Scalar), _remainder),
    _ATEN.remainder.Scalar_Tensor: _remainder,
    _ATEN.fmax.default: partial(_ignoring_nan, torch.maximum),
    _ATEN.fmin.default: partial(_ignoring_nan, torch.minimum),
}
