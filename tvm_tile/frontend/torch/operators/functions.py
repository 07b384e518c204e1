"""Functions of one number, element by element: exponentials, angles, activations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tvm import relax

from tvm_tile.frontend.torch.convert import Converter, Converters
from tvm_tile.frontend.torch.decompositions import special
from tvm_tile.frontend.torch.emit import Emit, Refusal, constant, dtype_of

Function = Callable[[relax.Expr], relax.Expr]


def _of_floats(function: Function) -> Converter:
    """A converter of an operator that makes floating-point numbers of integers, too."""

    def convert(emit: Emit, x: relax.Expr) -> relax.Expr:
        return function(emit.cast(x, emit.dtype))

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


def _reciprocal(x: relax.Expr) -> relax.Expr:
    return relax.op.divide(_number(1, x), x)


def _sign(emit: Emit, x: relax.Expr) -> relax.Expr:
    return x if dtype_of(x) == torch.bool else relax.op.sign(x)


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


def _special(emit: Emit, x: relax.Expr, n: int = 0) -> relax.Expr:
    raise Refusal(f"derivative {n}" if n else "a special function in float64")


_ATEN = torch.ops.aten
_OF_FLOATS = {
    **{_ATEN.exp: relax.op.exp, _ATEN.log: relax.op.log, _ATEN.sqrt: relax.op.sqrt},
    **{_ATEN.rsqrt: relax.op.rsqrt, _ATEN.erf: relax.op.erf, _ATEN.sigmoid: relax.op.sigmoid},
    _ATEN.reciprocal: _reciprocal,
    **{_ATEN.sin: relax.op.sin, _ATEN.cos: relax.op.cos, _ATEN.tan: relax.op.tan},
    **{_ATEN.sinh: relax.op.sinh, _ATEN.cosh: relax.op.cosh, _ATEN.tanh: relax.op.tanh},
    **{_ATEN.asin: relax.op.asin, _ATEN.acos: relax.op.acos, _ATEN.atan: relax.op.atan},
    **{_ATEN.asinh: relax.op.asinh, _ATEN.acosh: relax.op.acosh, _ATEN.atanh: relax.op.atanh},
}
_ROUNDINGS = {
    **{_ATEN.ceil: relax.op.ceil, _ATEN.floor: relax.op.floor},
    **{_ATEN.round: relax.op.round, _ATEN.trunc: relax.op.trunc},
}
_QUESTIONS = {_ATEN.isnan: relax.op.isnan, _ATEN.isinf: relax.op.isinf}

CONVERTERS: Converters = {
    **dict.fromkeys(special.DECOMPOSITIONS, _special),  # in forms that are not broken down
    **{packet.default: _of_floats(function) for packet, function in _OF_FLOATS.items()},
    **{packet.default: _rounding(function) for packet, function in _ROUNDINGS.items()},
    **{packet.default: _asking(function) for packet, function in _QUESTIONS.items()},
    _ATEN.abs.default: lambda emit, x: relax.op.abs(x),
    _ATEN.neg.default: lambda emit, x: relax.op.negative(x),
    _ATEN.sign.default: _sign,
    _ATEN.atan2.default: _atan2,
    _ATEN.relu.default: _relu,
    _ATEN.gelu.default: _gelu,
    _ATEN.leaky_relu.default: _leaky_relu,
}
