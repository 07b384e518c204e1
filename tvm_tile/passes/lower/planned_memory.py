"""Bytes that a program plans for tensors between its kernels."""

from __future__ import annotations

import math

import tvm
from tvm import relax, tirx

from tvm_tile.graph.functions import calls_in


def planned_bytes(mod: tvm.IRModule) -> int:
    """Bytes of all storages of known size that a module allocates, outputs among them.

    Args:
        mod: a module behind all Relax passes, memory planned.
    """
    allocates, calls = tvm.ir.Op.get("relax.vm.alloc_storage"), calls_in(mod)
    shapes = [call.args[0] for call in calls if call.op == allocates]
    extents = [shape.values for shape in shapes if isinstance(shape, relax.ShapeExpr)]
    known = [own for own in extents if all(isinstance(extent, tirx.IntImm) for extent in own)]
    return sum(math.prod(map(int, own)) for own in known)
