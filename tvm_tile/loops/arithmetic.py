"""Arithmetic for which TVM's loops are wrong or missing: with zeros, and of unsigned integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import ir, relax, te, tirx, topi

_FLOATS, _INTEGERS = ("float", "bfloat"), ("int", "uint")
_DIVISIONS = {
    "relax.divide": topi.divide,
    "relax.floor_divide": topi.floor_divide,
    "relax.floor_mod": topi.floor_mod,
    "relax.mod": topi.mod,
}

ARITHMETIC = frozenset(
    {*_DIVISIONS, "relax.add", "relax.multiply", "relax.negative", "relax.power", "relax.sign"}
)
"""The operators whose loops are here."""


def sum_of_two(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.add``: ``-0.0 + 0.0`` is ``0.0``."""
    return _with_zeros(builder, call, topi.add, "add")


def product_of_two(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.multiply``: NaN and infinities times zero are NaN, -1.0 times zero is -0.0."""
    return _with_zeros(builder, call, topi.multiply, "multiply")


def division(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Quotients and remainders: by zero, floating-point numbers become infinities or NaN, and
    integers what :mod:`tvm_tile.build.exact.integers` says; TVM refuses."""
    name = call.op.name
    return _with_zeros(builder, call, _DIVISIONS[name], name.removeprefix("relax."))


def power(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.power`` of integers, which TVM lacks: bit by bit of the exponent, the highest first.

    before: ``y = power(x, n)``
    after:  ``r = 1; for k: r = r * r * (x if n >> (bits - 1 - k) & 1 else 1)``

    Of a negative power, of 1 and -1 alone something is left; others are cut off to 0. Cubes of
    floating-point numbers are products, as PyTorch's are: TVM would warn on standard error.
    """
    dtype, shape = str(call.ty.dtype), list(call.ty.shape)
    if is_right_in_tvm(call):
        if _number(builder, call.args[1]) == 3:
            return _each(builder, call, lambda x: x * x * x)
        stock: Any = call.op.get_attr("FLegalize")
        return stock(builder, call)
    bits = np.iinfo(dtype).bits
    zero, one = tirx.const(0, dtype), tirx.const(1, dtype)
    squared = te.comm_reducer(lambda r, x: r * r * x, lambda t: tirx.const(1, str(t)), "power")

    def loops(base: te.Tensor, exponent: te.Tensor) -> te.Tensor:
        base, exponent = (topi.broadcast_to(value, shape) for value in (base, exponent))
        along = te.reduce_axis((0, bits), "bit")

        def is_set(*at: Any) -> Any:
            place = tirx.Cast(dtype, bits - 1 - along.var)
            return tirx.NE(tirx.BitwiseAnd(tirx.RShift(exponent(*at), place), one), zero)

        def inverse(*at: Any) -> Any:
            is_unit = tirx.Or(tirx.EQ(base(*at), one), tirx.EQ(base(*at), tirx.const(-1, dtype)))
            is_odd = tirx.NE(tirx.BitwiseAnd(exponent(*at), one), zero)
            return tirx.Select(is_unit, tirx.Select(is_odd, base(*at), one), zero)

        def factor(*at: Any) -> Any:
            return squared(tirx.Select(is_set(*at), base(*at), one), axis=along)

        powers = te.compute(shape, factor, "powers")
        if dtype.startswith("u"):
            return powers

        def element(*at: Any) -> Any:
            return tirx.Select(tirx.LT(exponent(*at), zero), inverse(*at), powers(*at))

        return te.compute(shape, element, "power")

    return builder.call_te(loops, *call.args, primfunc_name_hint="power")


def shift(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Shifts by a number of bits that integers of the type do not have, which TVM refuses.

    What others give is said in :mod:`tvm_tile.build.exact.integers`.
    """
    value, amount = call.args
    bits = np.iinfo(str(value.ty.dtype)).bits
    number = _number(builder, amount)
    if number is None or 0 <= number < bits:
        stock: Any = call.op.get_attr("FLegalize")
        return stock(builder, call)
    dtype = str(value.ty.dtype)
    zero, last = tirx.const(0, dtype), tirx.const(bits - 1, dtype)
    fills = call.op.name == "relax.right_shift" and not dtype.startswith("u")
    return _each(builder, call, lambda x: tirx.RShift(x, last) if fills else zero)


def negated(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.negative``: of unsigned integers it wraps; TVM multiplies by -1, which none is."""
    return _of_unsigned(builder, call, lambda x, zero: tirx.Sub(zero, x))


def sign(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.sign``: of unsigned integers it is 0 or 1; TVM compares with -1, too."""
    return _of_unsigned(builder, call, lambda x, zero: tirx.Cast(x.ty, tirx.NE(x, zero)))


def _of_unsigned(
    builder: relax.BlockBuilder, call: relax.Call, element: Callable[[Any, Any], Any]
) -> relax.Expr:
    """Loops of an operator on unsigned integers, given one element's value."""
    if is_right_in_tvm(call):
        stock: Any = call.op.get_attr("FLegalize")
        return stock(builder, call)
    zero = tirx.const(0, str(call.args[0].ty.dtype))
    return _each(builder, call, lambda x: element(x, zero))


def _number(builder: relax.BlockBuilder, value: relax.Expr) -> float | None:
    """The number that a value is, perhaps after a cast; ``None`` where it is not known."""
    value = builder.lookup_binding(value) if isinstance(value, relax.Var) else value
    if isinstance(value, relax.Call) and getattr(value.op, "name", "") == "relax.astype":
        (value,) = value.args
    is_number = isinstance(value, ir.Constant) and not value.ty.ndim
    return float(value.value.numpy()) if is_number else None


def _each(
    builder: relax.BlockBuilder, call: relax.Call, element: Callable[[Any], Any]
) -> relax.Expr:
    """Loops that make an element of each of the first operand's."""
    name = call.op.name.removeprefix("relax.")

    def loops(tensor: te.Tensor) -> te.Tensor:
        return te.compute(tensor.shape, lambda *at: element(tensor(*at)), name)

    return builder.call_te(loops, call.args[0], primfunc_name_hint=name)


def _with_zeros(
    builder: relax.BlockBuilder,
    call: relax.Call,
    loops: Callable[[te.Tensor, te.Tensor], te.Tensor],
    name: str,
) -> relax.Expr:
    """A zero stays a tensor of one element: TVM's loops would be simplified as they are written."""
    if is_right_in_tvm(call):
        stock: Any = call.op.get_attr("FLegalize")
        return stock(builder, call)
    return builder.call_te(loops, *call.args, primfunc_name_hint=name)


def is_right_in_tvm(call: relax.Call) -> bool:
    """Whether TVM's loops are right for a call of an operator whose loops are here."""
    if len(call.args) == 1:
        return not str(call.args[0].ty.dtype).startswith("uint")
    if call.op.name == "relax.power":
        return not str(call.ty.dtype).startswith(_INTEGERS)
    kinds = _INTEGERS if call.op.name in _DIVISIONS else ()
    return not any(_is_zero(arg, (*_FLOATS, *kinds)) for arg in call.args)


def _is_zero(arg: relax.Expr, kinds: tuple[str, ...]) -> bool:
    """Whether an operand is a zero into which TVM looks, of some kinds of element types."""
    if not isinstance(arg, ir.Constant) or not str(arg.ty.dtype).startswith(kinds):
        return False
    return arg.ty.ndim == 0 and float(arg.value.numpy()) == 0


def may_trap(call: relax.Call) -> bool:
    """Whether processors stop at a call, or do not define it: quotients and shifts of integers."""
    names = {*_DIVISIONS, "relax.left_shift", "relax.right_shift"}
    return call.op.name in names and str(call.args[0].ty.dtype).startswith(_INTEGERS)
