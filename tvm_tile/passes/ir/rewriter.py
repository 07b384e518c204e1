"""Base classes of passes that read calls of kernels, or rewrite every Relax function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator

from tvm_tile.graph.arrays import known_extents
from tvm_tile.graph.functions import mutated
from tvm_tile.graph.tile_graph import stored_bytes

_CALL_TIR = tvm.ir.Op.get("relax.call_tir")
_CALL_TIR_IN_PLACE = tvm.ir.Op.get("relax.call_tir_inplace")


class ModuleRewriter(PyExprMutator):
    """A mutator that is made for a module; TVM's own rewrites one expression."""

    def rewritten(self, mod: tvm.IRModule) -> tvm.IRModule:
        """``mod``, which it was made for, with every Relax function rewritten."""
        return mutated(mod, self)

    def made(self, value: relax.Expr) -> Any:
        """The expression that a variable is bound to; a parameter, and anything else, as it is."""
        found = self.lookup_binding(value) if isinstance(value, relax.Var) else None
        return value if found is None else found


def with_dataflow_blocks(
    builder: relax.BlockBuilder,
    var: Any,
    change: Callable[[relax.DataflowBlock], relax.DataflowBlock],
) -> tvm.IRModule | None:
    """The builder's module with each dataflow block of one function as ``change`` makes it.

    Args:
        builder: builder of the module; ``change`` may add functions to it.
        var: the function's name in the module.
        change: function that gives back the very block where nothing is to change.

    Returns:
        ``None`` where no block changed.
    """
    func = builder.get()[var]
    blocks = [
        change(block) if isinstance(block, relax.DataflowBlock) else block
        for block in func.body.blocks
    ]
    if all(new.same_as(old) for new, old in zip(blocks, func.body.blocks, strict=True)):
        return None
    body = builder.normalize(relax.SeqExpr(blocks, func.body.body))
    changed = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
    builder.update_func(var, changed)
    return builder.get()


def is_call_tir(value: Any) -> bool:
    """Whether an expression calls a PrimFunc, as ``relax.call_tir``."""
    return isinstance(value, relax.Call) and value.op.same_as(_CALL_TIR)


def is_in_place(value: Any) -> bool:
    """Whether an expression calls a PrimFunc that writes over arguments of its own."""
    return isinstance(value, relax.Call) and value.op.same_as(_CALL_TIR_IN_PLACE)


def written_over(call: relax.Call) -> list[Any]:
    """Arguments that a call's outputs are written over; ``None`` for an output of its own."""
    arguments, places = call.args[1].fields, call.attrs.inplace_indices
    return [arguments[int(place)] if int(place) >= 0 else None for place in places]


def elements_in(value: Any) -> int:
    """Elements of a tensor; none of anything else."""
    extents = known_extents(getattr(value.ty, "shape", None))
    return 0 if extents is None else math.prod(extents)


def size_of(ty: Any) -> int:
    """Bytes of a tensor of static shape, or of a tuple of them."""
    if isinstance(ty, relax.TupleType):
        return sum(map(size_of, ty.fields))
    return stored_bytes(ty)
