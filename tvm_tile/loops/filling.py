"""Tensors of one number: TVM's own loops take a type to be a text, and fail at it."""

from __future__ import annotations

from typing import Any

from tvm import ir, relax, topi


def filled(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.full`` and ``relax.full_like``, whose first argument is a shape or has one."""
    number = call.args[1]
    if not isinstance(number, ir.Constant) or number.value.numpy().dtype.kind not in "biuf":
        stock: Any = call.op.get_attr("FLegalize")
        return stock(builder, call)
    value = number.value.numpy().item()
    return builder.call_te(
        topi.full, call.ty.shape, str(call.ty.dtype), value, primfunc_name_hint="full"
    )
