"""CUDA graphs of the functions of a model, none of which writes over what another needs."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import mutator

from tvm_tile.graph.functions import recursive_functions
from tvm_tile.passes.ir.rewriter import ModuleRewriter
from tvm_tile.passes.lower.keep_graph_results import KeepGraphResults

_MEMORY = "vm.builtin.cuda_graph.get_cached_alloc"
CAPTURE = "vm.builtin.cuda_graph.run_or_capture"
CAPTURED_EXTENTS = "relax.rewrite_cuda_graph.capture_symbolic_vars"
"""TVM's attribute of a function: variables, for each value of which graphs are captured."""
WITH_CONTEXT = ir.Op.get("relax.call_builtin_with_ctx")


@tvm.transform.module_pass(opt_level=0, name="CaptureGraphs")
@dataclass(frozen=True, slots=True)
class CaptureGraphs:
    """Capture CUDA graphs, such that each function's memory and graphs are its own.

    before: ``get_cached_alloc(f, 0)`` in ``main`` and in what it calls
    after:  ``get_cached_alloc(f, 0)`` in ``main``, ``get_cached_alloc(f, 1)`` in what it calls

    RewriteCUDAGraph allocates once what all functions keep between runs, at place 0 of the virtual
    machine's cache. It plans a function at a time, so that a callee's values lie where its caller's
    do, which are still needed. A function that calls itself needs its values once for each call
    that has not ended: it is not captured.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        steps = [relax.transform.RewriteCUDAGraph(), KeepGraphResults()]
        captured = tvm.transform.Sequential(steps)(mod)
        for var in recursive_functions(mod):
            captured[captured.get_global_var(var.name_hint)] = mod[var]
        return _OwnPlaces(captured).rewritten(captured)


@mutator
class _OwnPlaces(ModuleRewriter):
    """Gives each function's cached memory a place of its own."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._place = 0

    def rewritten(self, mod: tvm.IRModule) -> tvm.IRModule:
        """``mod`` with its Relax functions rewritten, each with the next place."""
        for var, func in mod.functions_items():
            if isinstance(func, relax.Function):
                self.builder_.update_func(var, self.visit_expr(func))
                self._place += 1
        return self.builder_.get()

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if call.op != WITH_CONTEXT or call.args[0].global_symbol != _MEMORY:
            return call
        allocate, _ = call.args[1].fields
        arguments = relax.Tuple([allocate, tvm.tirx.IntImm("int64", self._place)])
        return relax.Call(call.op, [call.args[0], arguments], call.attrs, call.ty_args)
