"""Functions of complex numbers as formulas of their parts."""

from __future__ import annotations

import cmath
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tvm_tile.frontend.torch.emit import Refusal
from tvm_tile.frontend.torch.pairs.pair import Pair, parts

_ATEN = torch.ops.aten
_MOST_FACTORS = 8  # of a power that is written as products


def conjugate(z: Pair) -> Pair:
    """The conjugates of numbers."""
    return Pair(z.re, -z.im)


def joined(re: torch.Tensor, im: torch.Tensor) -> Pair:
    """The numbers of two parts, which are broadcast."""
    return Pair(*torch.broadcast_tensors(re, im))


def polar(abs: torch.Tensor, angle: torch.Tensor) -> Pair:
    """The numbers of some moduli and some angles in radians."""
    return joined(abs * torch.cos(angle), abs * torch.sin(angle))


def viewed_as_complex(x: torch.Tensor) -> Pair:
    """The numbers of a tensor whose last dimension holds their two parts."""
    return Pair(x.select(-1, 0), x.select(-1, 1))


def viewed_as_real(z: Pair) -> torch.Tensor:
    """A tensor whose last dimension holds the two parts of numbers."""
    return torch.stack((z.re, z.im), -1)


def bilinear(function: Callable[[Any, Any], Any], a: Any, b: Any) -> Pair:
    """What a function that is linear in both operands makes of pairs, real tensors and numbers."""
    (ar, ai), (br, bi) = parts(a), parts(b)
    if ai is None:
        return Pair(function(ar, br), function(ar, bi))
    if bi is None:
        return Pair(function(ar, br), function(ai, br))
    return Pair(function(ar, br) - function(ai, bi), function(ar, bi) + function(ai, br))


def product(a: Any, b: Any) -> Pair:
    """The product of numbers."""
    return bilinear(torch.mul, a, b)


def matrix_product(function: Callable[[Any, Any], Any], a: Any, b: Any) -> Pair:
    """The product of matrices, or of batches of such, as one of twice the extents::

    [ar ai] @ [ br bi]  =  [ar br - ai bi,  ar bi + ai br]
              [-bi br]
    """
    (ar, ai), (br, bi) = parts(a), parts(b)
    if bi is None:
        both = function(torch.cat((ar, ai), -2), br)
        return Pair(*both.split(ar.shape[-2], -2))
    right = torch.cat((br, bi), -1)
    if ai is not None:
        ar = torch.cat((ar, ai), -1)
        right = torch.cat((right, torch.cat((-bi, br), -1)), -2)
    return Pair(*function(ar, right).split(br.shape[-1], -1))


def quotient(a: Any, b: Any) -> Pair:
    """The quotient of numbers, whose squares need not be within float32's range."""
    (ar, ai), (br, bi) = parts(a), parts(b)
    if bi is None:
        return Pair(ar / br, ai / br)
    if isinstance(b, complex):
        return product(a, 1 / b)
    size = torch.maximum(br.abs(), bi.abs())
    br, bi = br / size, bi / size
    scaled = product(a, Pair(br, -bi))
    square = (br * br + bi * bi) * size
    return Pair(scaled.re / square, scaled.im / square)


def inverse(z: Pair) -> Pair:
    """The reciprocals of numbers."""
    return quotient(1.0, z)


def modulus(z: Pair) -> torch.Tensor:
    """The moduli of numbers."""
    return torch.hypot(z.re, z.im)


def argument(z: Pair) -> torch.Tensor:
    """The angles of numbers, in radians."""
    return torch.atan2(z.im, z.re)


def exponential(z: Pair) -> Pair:
    """``e ** z``."""
    return polar(torch.exp(z.re), z.im)


def logarithm(z: Pair) -> Pair:
    """The natural logarithms of numbers."""
    return Pair(torch.log(modulus(z)), argument(z))


def logarithm_of_more(z: Pair) -> Pair:
    """The natural logarithms of numbers and one, exact for small numbers."""
    return Pair(torch.log1p(z.re * (z.re + 2) + z.im * z.im) / 2, torch.atan2(z.im, z.re + 1))


def square_root(z: Pair) -> Pair:
    """The roots whose real parts are not negative, without loss of digits near the real axis."""
    large = torch.sqrt((z.re.abs() + modulus(z)) / 2)
    small = torch.where(large == 0, large, z.im.abs() / (2 * large))
    is_right = z.re >= 0
    im = torch.where(is_right, small, large)
    return Pair(torch.where(is_right, large, small), torch.where(z.im < 0, -im, im))


def power(base: Any, exponent: Any) -> Pair:
    """Powers of numbers; of small whole exponents as products."""
    if isinstance(exponent, int | float):
        if exponent == 0.5:
            return square_root(base)
        if 0 < exponent <= _MOST_FACTORS and exponent == int(exponent):
            result = base
            for _ in range(int(exponent) - 1):
                result = product(result, base)
            return result
    if not isinstance(base, torch.Tensor):
        return exponential(product(cmath.log(base), exponent))
    if not isinstance(base, Pair):
        base = Pair(base, torch.zeros_like(base))
    power = exponential(product(logarithm(base), exponent))
    is_zero = _is_equal(base, 0)
    return Pair(power.re.masked_fill(is_zero, 0), power.im.masked_fill(is_zero, 0))


def sine(z: Pair) -> Pair:
    """The sines of numbers."""
    return Pair(z.re.sin() * z.im.cosh(), z.re.cos() * z.im.sinh())


def cosine(z: Pair) -> Pair:
    """The cosines of numbers."""
    return Pair(z.re.cos() * z.im.cosh(), -(z.re.sin() * z.im.sinh()))


def hyperbolic_cosine(z: Pair) -> Pair:
    """The hyperbolic cosines of numbers."""
    return cosine(Pair(-z.im, z.re))


def hyperbolic_tangent(z: Pair) -> Pair:
    """The hyperbolic tangents of numbers."""
    t, u = z.re.tanh(), z.im.tan()
    below = 1 + t * t * u * u
    return Pair(t * (1 + u * u) / below, u * (1 - t * t) / below)


def tangent(z: Pair) -> Pair:
    """The tangents of numbers, by hyperbolic ones of ``1j * z``."""
    turned = hyperbolic_tangent(Pair(-z.im, z.re))
    return Pair(turned.im, -turned.re)


def direction(z: Pair) -> Pair:
    """Numbers by their moduli; zero where they are."""
    size = modulus(z)
    size = torch.where(size == 0, torch.ones_like(size), size)
    return Pair(z.re / size, z.im / size)


def _is_equal(a: Any, b: Any) -> torch.Tensor:
    (ar, ai), (br, bi) = parts(a), parts(b)
    return torch.eq(ar, br) & torch.eq(0 if ai is None else ai, 0 if bi is None else bi)


def _sigmoid(z: Pair) -> Pair:
    grown = exponential(Pair(-z.re, -z.im))
    return inverse(Pair(grown.re + 1, grown.im))


def _convolution(x: Any, weight: Any, bias: Any, *how: Any) -> Any:
    made = bilinear(lambda a, b: _ATEN.convolution.default(a, b, None, *how), x, weight)
    return made if bias is None else made + bias.reshape(-1, *(1 for _ in made.shape[2:]))


def _variance(function: Any, z: Pair, *args: Any, **kwargs: Any) -> torch.Tensor:
    made: torch.Tensor = function(z.re, *args, **kwargs) + function(z.im, *args, **kwargs)
    return made


def _variance_and_mean(function: Any, z: Pair, *args: Any, **kwargs: Any) -> tuple[Any, Pair]:
    variances, means = zip(*(function(part, *args, **kwargs) for part in parts(z)), strict=True)
    return sum(variances), Pair(*means)


def _of_moduli(function: Any, z: Pair, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    if dtype is not None:
        raise Refusal(f"a norm of complex numbers as {dtype}")
    return function(modulus(z), *args, **kwargs)


def _squeezed(function: Any, a: Any, b: Any) -> Any:
    return product(conjugate(a) if function == _ATEN.vdot.default else a, b).sum()


FORMULAS: Mapping[Any, Callable[..., Any]] = {
    _ATEN._conj: conjugate,
    _ATEN._conj_physical: conjugate,
    _ATEN.conj_physical: conjugate,
    torch.ops.prims.conj_physical: conjugate,
    _ATEN.resolve_conj: lambda z: z,
    _ATEN.resolve_neg: lambda z: z,
    _ATEN.complex: joined,
    _ATEN.polar: polar,
    _ATEN.view_as_complex: viewed_as_complex,
    _ATEN.view_as_real: viewed_as_real,
    _ATEN.abs: modulus,
    _ATEN.angle: argument,
    _ATEN.mul: product,
    _ATEN.div: quotient,
    _ATEN.reciprocal: inverse,
    _ATEN.exp: exponential,
    _ATEN.log: logarithm,
    _ATEN.log1p: logarithm_of_more,
    _ATEN.sqrt: square_root,
    _ATEN.rsqrt: lambda z: inverse(square_root(z)),
    _ATEN.pow: power,
    _ATEN.sin: sine,
    _ATEN.cos: cosine,
    _ATEN.tan: tangent,
    _ATEN.sinh: lambda z: Pair(z.re.sinh() * z.im.cos(), z.re.cosh() * z.im.sin()),
    _ATEN.cosh: hyperbolic_cosine,
    _ATEN.tanh: hyperbolic_tangent,
    _ATEN.sigmoid: _sigmoid,
    _ATEN.sgn: direction,
    _ATEN.eq: _is_equal,
    _ATEN.ne: lambda a, b: ~_is_equal(a, b),
    _ATEN.isnan: lambda z: z.re.isnan() | z.im.isnan(),
    _ATEN.isinf: lambda z: z.re.isinf() | z.im.isinf(),
    _ATEN.convolution: _convolution,
}
"""Operator -> its formula, a function of the operator's arguments."""

FORMULAS_OF: Mapping[Any, Callable[..., Any]] = {
    _ATEN.mm: matrix_product,
    _ATEN.bmm: matrix_product,
    _ATEN.dot: _squeezed,
    _ATEN.vdot: _squeezed,
    _ATEN.var: _variance,
    _ATEN.var_mean: _variance_and_mean,
    _ATEN.linalg_vector_norm: _of_moduli,
}
"""Operators whose formulas take the operator itself ahead of its arguments."""
