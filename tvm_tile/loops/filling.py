"""Tensors of one number that is not finite, at which TVM's own loops fail."""

from __future__ import annotations

import math
from typing import Any

from tvm import ir, relax, topi


def filled_like(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.full_like``: of infinities and NaN TVM's fails, as it takes a type to be a text."""
    number = call.args[1]
    if not isinstance(number, ir.Constant) or math.isfinite(number.value.numpy()):
        stock: Any = call.op.get_attr("FLegalize")
        return stock(builder, call)
    value = float(number.value.numpy())
    return builder.call_te(
        topi.full, call.ty.shape, str(call.ty.dtype), value, primfunc_name_hint="full"
    )
