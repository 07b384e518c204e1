"""Arithmetic, comparisons and logic of each element for itself."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as PROMOTION
from tvm import relax
from tvm.ir import Constant

from tvm_tile.frontend.powers import integer_power
from tvm_tile.frontend.torch.convert import Converter, Converters, overloads
from tvm_tile.frontend.torch.emit import Emit, Refusal, constant, dtype_of, is_held, result_type

Operand = Any  # a Relax expression or a number
Join = Callable[[relax.Expr, relax.Expr], relax.Expr]


def _add(emit: Emit, x: Operand, other: Operand, alpha: float) -> relax.Expr:
    left, right = _operands(emit, x, other)
    if _is_bool(left):
        return _or(left, right) if alpha else left
    left, scaled = emit.scaled((left, 1), (right, alpha))
    return emit.cast(emit(relax.op.add(left, scaled)), emit.dtype)


def _subtract(emit: Emit, x: Operand, other: Operand, alpha: float) -> relax.Expr:
    left, right = _operands(emit, x, other)
    left, scaled = emit.scaled((left, 1), (right, alpha))
    return emit.cast(emit(relax.op.subtract(left, scaled)), emit.dtype)


def _multiply(emit: Emit, x: Operand, other: Operand) -> relax.Expr:
    left, right = _operands(emit, x, other)
    if _is_bool(left):
        return _and(left, right)
    return emit.cast(emit(relax.op.multiply(left, right)), emit.dtype)


def _operands(
    emit: Emit, x: Operand, other: Operand, kind: PROMOTION = PROMOTION.DEFAULT
) -> list[relax.Expr]:
    """Both sides of arithmetic, in float32 where half precision lacks a number: PyTorch does not
    round it, and what it is off by would not even out over a tensor."""
    sides = emit.promoted(x, other, kind=kind)
    pairs = list(zip((x, other), sides, strict=True))
    if all(
        isinstance(given, relax.Expr) or is_held(given, dtype_of(side)) for given, side in pairs
    ):
        return sides
    return [
        emit.wide(side) if isinstance(given, relax.Expr) else constant(given, torch.float32)
        for given, side in pairs
    ]


def _is_bool(value: relax.Expr) -> bool:
    return dtype_of(value) == torch.bool


_or, _and = relax.op.logical_or, relax.op.logical_and


def _binary(join: Join, of_bools: Join | None = None) -> Converter:
    """A converter of an operator whose operands and result are of one element type."""

    def convert(emit: Emit, x: Operand, other: Operand) -> relax.Expr:
        left, right = emit.promoted(x, other)
        return (of_bools or join)(left, right) if _is_bool(left) else join(left, right)

    return convert


def _comparison(join: Join) -> Converter:
    def convert(emit: Emit, x: Operand, other: Operand) -> relax.Expr:
        left, right = emit.promoted(x, other)
        if _is_bool(left):
            left, right = (emit.cast(side, torch.int8) for side in (left, right))
        elif left.same_as(right) and dtype_of(left).is_floating_point:
            # TVM takes x == x to be true, of NaN, too.
            is_nan = emit(relax.op.isnan(left))
            if join is relax.op.not_equal:
                return is_nan
            if join is relax.op.equal:
                return relax.op.logical_not(is_nan)
        return join(left, right)

    return convert


def _logical(join: Join) -> Converter:
    def convert(emit: Emit, x: relax.Expr, other: relax.Expr) -> relax.Expr:
        return join(emit.cast(x, torch.bool), emit.cast(other, torch.bool))

    return convert


def _logical_not(emit: Emit, x: relax.Expr) -> relax.Expr:
    return relax.op.logical_not(emit.cast(x, torch.bool))


def _bitwise_not(emit: Emit, x: relax.Expr) -> relax.Expr:
    return relax.op.logical_not(x) if _is_bool(x) else relax.op.bitwise_not(x)


def _divide(emit: Emit, x: Operand, other: Operand) -> relax.Expr:
    left, right = _operands(emit, x, other, PROMOTION.INT_TO_FLOAT)
    return emit.cast(emit(_quotient(left, right)), emit.dtype)


def _quotient(left: relax.Expr, right: relax.Expr) -> relax.Expr:
    """A quotient of floats; TVM divides by no constant that is zero."""
    if not _is_zero(right):
        return relax.op.divide(left, right)
    sign = math.copysign(1, float(right.value.numpy()))
    return relax.op.multiply(left, constant(sign * math.inf, dtype_of(right)))


def _is_zero(value: relax.Expr) -> bool:
    """Whether it is a constant into which TVM looks, and zero."""
    return isinstance(value, Constant) and not value.ty.ndim and not value.value.numpy()


def _divide_rounding(
    emit: Emit, x: Operand, other: Operand, rounding_mode: str | None
) -> relax.Expr:
    if rounding_mode is None:
        return _divide(emit, x, other)
    join = relax.op.floor_divide if rounding_mode == "floor" else relax.op.divide
    return join(*emit.promoted(x, other))


def _fmod(emit: Emit, x: Operand, other: Operand) -> relax.Expr:
    left, right = emit.promoted(x, other)
    if not dtype_of(left).is_floating_point:
        return relax.op.mod(left, right)
    if _is_zero(right):
        return emit.full(math.nan)
    return emit.cast(emit(relax.op.mod(emit.wide(left), emit.wide(right))), emit.dtype)


def _power(emit: Emit, x: Operand, exponent: Operand) -> relax.Expr:
    dtype = result_type(x, exponent)
    if not dtype.is_floating_point:
        if dtype == torch.bool:
            raise Refusal("powers of booleans")
        return integer_power(emit, *emit.promoted(x, exponent))
    base = emit.operand(x, dtype)
    if not isinstance(exponent, relax.Expr) and exponent in _FIXED_POWERS:
        return emit.cast(emit(_FIXED_POWERS[exponent](emit, emit.wide(base))), emit.dtype)
    return relax.op.power(base, emit.operand(exponent, dtype))


def _inverse(emit: Emit, value: relax.Expr) -> relax.Expr:
    return relax.op.divide(constant(1, dtype_of(value)), value)


def _product(emit: Emit, *values: relax.Expr) -> relax.Expr:
    return emit(functools.reduce(relax.op.multiply, values))


# Those that PyTorch, too, computes without logarithms.
_FIXED_POWERS: dict[float, Callable[[Emit, relax.Expr], relax.Expr]] = {
    0: lambda emit, x: relax.op.full(emit.shape, constant(1, dtype_of(x))),
    0.5: lambda emit, x: relax.op.sqrt(x),
    1: lambda emit, x: x,
    2: lambda emit, x: _product(emit, x, x),
    3: lambda emit, x: _product(emit, x, x, x),
    -0.5: lambda emit, x: _inverse(emit, emit(relax.op.sqrt(x))),
    -1: _inverse,
    -2: lambda emit, x: _inverse(emit, _product(emit, x, x)),
}


def _clamp(emit: Emit, x: relax.Expr, min: Operand, max: Operand) -> relax.Expr:
    bounds = [bound for bound in (min, max) if bound is not None]
    dtype = result_type(x, *bounds)
    value = emit.operand(x, dtype)
    are_numbers = not any(isinstance(bound, relax.Expr) for bound in bounds)
    if are_numbers and dtype.is_floating_point and not any(map(math.isnan, bounds)):
        lower = -math.inf if min is None else float(min)
        upper = math.inf if max is None else float(max)
        return relax.op.clip(value, builtin_min(lower, upper), upper)
    if min is not None:
        value = emit(_larger(value, emit.operand(min, dtype)))
    return value if max is None else _smaller(value, emit.operand(max, dtype))


def _larger(left: relax.Expr, right: relax.Expr) -> relax.Expr:
    return _or(left, right) if _is_bool(left) else relax.op.maximum(left, right)


def _smaller(left: relax.Expr, right: relax.Expr) -> relax.Expr:
    return _and(left, right) if _is_bool(left) else relax.op.minimum(left, right)


def _where(emit: Emit, condition: relax.Expr, x: Operand, other: Operand) -> relax.Expr:
    left, right = emit.promoted(x, other)
    return relax.op.where(emit.cast(condition, torch.bool), left, right)


builtin_min = min  # the schema's names hide it
_ATEN = torch.ops.aten
_maximum, _minimum = _binary(_larger), _binary(_smaller)
_bitwise_and = _binary(relax.op.bitwise_and, _and)
_bitwise_or = _binary(relax.op.bitwise_or, _or)
_bitwise_xor = _binary(relax.op.bitwise_xor, relax.op.logical_xor)

CONVERTERS: Converters = {
    **overloads(
        lambda emit, x: x,
        *(_ATEN.alias.default, _ATEN.clone.default, _ATEN.detach.default),
        *(_ATEN.lift_fresh_copy.default, _ATEN.contiguous.default),
    ),
    _ATEN._to_copy.default: lambda emit, x, dtype: emit.cast(x, emit.dtype),
    torch.ops.prims.convert_element_type.default: lambda emit, a, dtype: emit.cast(a, emit.dtype),
    **overloads(_add, _ATEN.add.Tensor, _ATEN.add.Scalar),
    **overloads(_subtract, _ATEN.sub.Tensor, _ATEN.sub.Scalar),
    **overloads(_multiply, _ATEN.mul.Tensor, _ATEN.mul.Scalar),
    **overloads(_divide, _ATEN.div.Tensor, _ATEN.div.Scalar),
    **overloads(_divide_rounding, _ATEN.div.Tensor_mode, _ATEN.div.Scalar_mode),
    **overloads(
        lambda emit, x, other: relax.op.floor_mod(*emit.promoted(x, other)),  # of integers
        *(_ATEN.remainder.Tensor, _ATEN.remainder.Scalar, _ATEN.remainder.Scalar_Tensor),
    ),
    **overloads(_fmod, _ATEN.fmod.Tensor, _ATEN.fmod.Scalar),
    **overloads(_power, _ATEN.pow.Tensor_Tensor, _ATEN.pow.Tensor_Scalar, _ATEN.pow.Scalar),
    _ATEN.maximum.default: _maximum,
    _ATEN.minimum.default: _minimum,
    **overloads(_clamp, _ATEN.clamp.default, _ATEN.clamp.Tensor),
    _ATEN.where.self: _where,
    **overloads(_comparison(relax.op.equal), _ATEN.eq.Tensor, _ATEN.eq.Scalar),
    **overloads(_comparison(relax.op.not_equal), _ATEN.ne.Tensor, _ATEN.ne.Scalar),
    **overloads(_comparison(relax.op.less), _ATEN.lt.Tensor, _ATEN.lt.Scalar),
    **overloads(_comparison(relax.op.less_equal), _ATEN.le.Tensor, _ATEN.le.Scalar),
    **overloads(_comparison(relax.op.greater), _ATEN.gt.Tensor, _ATEN.gt.Scalar),
    **overloads(_comparison(relax.op.greater_equal), _ATEN.ge.Tensor, _ATEN.ge.Scalar),
    _ATEN.logical_and.default: _logical(_and),
    _ATEN.logical_or.default: _logical(_or),
    _ATEN.logical_xor.default: _logical(relax.op.logical_xor),
    _ATEN.logical_not.default: _logical_not,
    _ATEN.bitwise_not.default: _bitwise_not,
    **overloads(_bitwise_and, _ATEN.bitwise_and.Tensor, _ATEN.bitwise_and.Scalar),
    **overloads(_bitwise_or, _ATEN.bitwise_or.Tensor, _ATEN.bitwise_or.Scalar),
    **overloads(_bitwise_xor, _ATEN.bitwise_xor.Tensor, _ATEN.bitwise_xor.Scalar),
    **overloads(
        _binary(relax.op.left_shift),
        *(_ATEN.bitwise_left_shift.Tensor, _ATEN.bitwise_left_shift.Tensor_Scalar),
        *(_ATEN.__lshift__.Tensor, _ATEN.__lshift__.Scalar),
    ),
    **overloads(
        _binary(relax.op.right_shift),
        *(_ATEN.bitwise_right_shift.Tensor, _ATEN.bitwise_right_shift.Tensor_Scalar),
        *(_ATEN.__rshift__.Tensor, _ATEN.__rshift__.Scalar),
    ),
}
