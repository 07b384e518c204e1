"""What passes have in common that read calls of kernels, or rewrite every Relax function."""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator

from tvm_tile.graph.tile_graph import element_size


class ModuleRewriter(PyExprMutator):
    """A mutator that is made for a module; TVM's own rewrites one expression."""

    def rewritten(self, mod: tvm.IRModule) -> tvm.IRModule:
        """``mod``, which it was made for, with every Relax function rewritten."""
        for var, func in mod.functions_items():
            if isinstance(func, relax.Function):
                self.builder_.update_func(var, self.visit_expr(func))
        return self.builder_.get()


def is_call_tir(value: Any) -> bool:
    """Whether an expression calls a PrimFunc, as ``relax.call_tir``."""
    return isinstance(value, relax.Call) and value.op == tvm.ir.Op.get("relax.call_tir")


def is_in_place(value: Any) -> bool:
    """Whether an expression calls a PrimFunc that writes over arguments of its own."""
    in_place = tvm.ir.Op.get("relax.call_tir_inplace")
    return isinstance(value, relax.Call) and value.op == in_place


def size_of(ty: Any) -> int:
    """Bytes of a tensor of static shape, or of a tuple of them."""
    if isinstance(ty, relax.TupleType):
        return sum(map(size_of, ty.fields))
    return math.prod(int(extent) for extent in ty.shape) * element_size(str(ty.dtype))
