"""Captured functions of no outputs, called so that TVM's virtual machine survives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from tvm_tile.passes.ir.rewriter import ModuleRewriter


@tvm.transform.module_pass(opt_level=0, name="KeepGraphResults")
@dataclass(frozen=True, slots=True)
class KeepGraphResults:
    """Give each result of a CUDA graph a place in the caller, even where it is an empty tuple.

    before: ``call_builtin_with_ctx("vm.builtin.cuda_graph.run_or_capture", ..., ty_args=Tuple())``
    after:  the same with ``ty_args=Any``

    RewriteCUDAGraph captures functions that return nothing where all memory is the caller's. The
    virtual machine writes a captured function's result into the caller's register before it
    looks whether there is one, and values of the type "empty tuple" have none.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return _ResultKeeping(mod).rewritten(mod)


@mutator
class _ResultKeeping(ModuleRewriter):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if not _is_graph_of_no_results(call):
            return super().visit_call_(call)
        return relax.Call(call.op, call.args, call.attrs, [relax.AnyType()])


def _is_graph_of_no_results(call: Any) -> bool:
    """Whether a call runs a captured function without results."""
    if call.op != tvm.ir.Op.get("relax.call_builtin_with_ctx"):
        return False
    is_graph = call.args[0].global_symbol == "vm.builtin.cuda_graph.run_or_capture"
    (result,) = call.ty_args
    return is_graph and isinstance(result, relax.TupleType) and not result.fields
