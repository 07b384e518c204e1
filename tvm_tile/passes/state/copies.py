"""Functions that copy a tensor, for passes that add calls of them."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, te


def copying(mod: tvm.IRModule, ty: Any, count: int, name: str) -> Any:
    """The variable of a function ``f(value, place0, ...)`` that copies a tensor to some places.

    Args:
        mod: module that the function is added to, unless it has it.
        ty: the tensor's type, of known extents.
        count: number of places, each of the same type.
        name: begin of the function's name; type and count follow.
    """
    shape, dtype = tuple(map(int, ty.shape)), str(ty.dtype)
    whole = "_".join(map(str, (name, *shape, dtype, count)))
    known = {var.name_hint: var for var in mod.get_global_vars()}
    if whole in known:
        return known[whole]
    value = te.placeholder(shape, dtype, "value")
    places = [
        te.compute(shape, lambda *at: value(*at), name=f"place{number}") for number in range(count)
    ]
    func = te.create_prim_func([value, *places]).without_attr("global_symbol")
    var = tvm.ir.GlobalVar(whole)
    relax.expr._update_type(var, func.ty)
    mod[var] = func
    return var
