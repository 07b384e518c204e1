"""Sums, products and quotients with zero, which TVM takes to be the other number or zero itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, relax, te, topi

ARITHMETIC = frozenset({"relax.add", "relax.divide", "relax.multiply"})
"""The operators whose loops are here."""

_FLOATS = ("float", "bfloat")


def sum_of_two(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.add``: ``-0.0 + 0.0`` is ``0.0``."""
    return _with_zeros(builder, call, topi.add, "add")


def product_of_two(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.multiply``: NaN and infinities times zero are NaN, -1.0 times zero is -0.0."""
    return _with_zeros(builder, call, topi.multiply, "multiply")


def quotient_of_two(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.divide``: by zero, numbers become infinities; TVM refuses."""
    return _with_zeros(builder, call, topi.divide, "divide")


def _with_zeros(
    builder: relax.BlockBuilder,
    call: relax.Call,
    loops: Callable[[te.Tensor, te.Tensor], te.Tensor],
    name: str,
) -> relax.Expr:
    """A zero stays a tensor of one element: TVM's loops would be simplified as they are written."""
    if not has_zero(call):
        stock: Any = call.op.get_attr("FLegalize")
        return stock(builder, call)
    return builder.call_te(loops, *call.args, primfunc_name_hint=name)


def has_zero(call: relax.Call) -> bool:
    """Whether an operand is the floating-point number zero, for which TVM's loops are wrong."""
    return any(map(_is_zero, call.args))


def _is_zero(arg: relax.Expr) -> bool:
    if not isinstance(arg, ir.Constant) or not str(arg.ty.dtype).startswith(_FLOATS):
        return False
    return arg.ty.ndim == 0 and float(arg.value.numpy()) == 0
