"""Bytes that a program plans for tensors between its kernels."""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import relax, tirx


def planned_bytes(mod: tvm.IRModule) -> int:
    """Bytes of all storages of known size that a module allocates, outputs among them.

    Args:
        mod: a module behind all Relax passes, memory planned.
    """
    found = 0

    def visit(expr: Any) -> None:
        nonlocal found
        allocates = tvm.ir.Op.get("relax.vm.alloc_storage")
        if isinstance(expr, relax.Call) and expr.op == allocates:
            shape = expr.args[0]
            is_known = isinstance(shape, relax.ShapeExpr) and all(
                isinstance(extent, tirx.IntImm) for extent in shape.values
            )
            found += math.prod(map(int, shape.values)) if is_known else 0

    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func.body, visit)
    return found
