"""Sorts and scans of tensors whose extents are open, which have no loops of ours."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax.backend.dispatch_sort_scan import SortScanDispatcher
from tvm.relax.expr_functor import mutator

from tvm_tile.loops.legalizations import has_open_extents

_OURS = frozenset(f"relax.{name}" for name in ("sort", "argsort", "topk", "cumsum", "cumprod"))


@tvm.transform.module_pass(opt_level=0, name="DispatchOpenSorts")
class DispatchOpenSorts:
    """TVM's DispatchSortScan, of what has no loops of ours.

    before: ``y = topk(x, 3)`` with ``x: Tensor(("n", 8))``, ``z = bucketize(x, b)``
    after:  ``y = call_tir(topk_gpu, (x,))``, ``z = call_tir(searchsorted, (b, x))``

    ``topk(x, 3)`` of a tensor whose extents are all known is left to LegalizeOps and to the rules
    that schedule its loops. It runs where the target is in scope, or bound to the tensors.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        found: list[Any] = []
        functions = [
            (var, func) for var, func in mod.functions_items() if isinstance(func, relax.Function)
        ]
        for _var, func in functions:
            relax.analysis.post_order_visit(
                func, lambda node: found.append(node) if _is_dispatched(node) else None
            )
        if not found:
            return mod
        dispatcher = _Dispatcher(mod)
        for var, func in functions:
            dispatcher.builder_.update_func(var, dispatcher.visit_expr(func))
        dispatcher.apply_dlight_gpu_fallback()
        return dispatcher.builder_.get()


def _is_dispatched(node: Any) -> bool:
    name = getattr(node.op, "name", "") if isinstance(node, relax.Call) else ""
    return name == "relax.bucketize" or (name in _OURS and has_open_extents(node))


@mutator
class _Dispatcher(SortScanDispatcher._cls):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if _is_dispatched(call):
            return super().visit_call_(call)
        return self.visit_expr_post_order(call)
