"""Sorts and scans of tensors whose extents are open, and draws: none has loops of ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.relax.backend.dispatch_sort_scan import SortScanDispatcher
from tvm.relax.expr_functor import mutator

from tvm_tile.graph.functions import calls_in, mutated
from tvm_tile.loops.legalizations import has_open_extents

_OURS = frozenset(f"relax.{name}" for name in ("sort", "argsort", "topk", "cumsum", "cumprod"))

_BUCKETS, _DRAW = "relax.bucketize", "relax.multinomial_from_uniform"


@tvm.transform.module_pass(opt_level=0, name="DispatchOpenSorts")
@dataclass(frozen=True, slots=True)
class DispatchOpenSorts:
    """TVM's DispatchSortScan and DispatchSampling, of what has no loops of ours.

    before: ``y = topk(x, 3)`` with ``x: Tensor(("n", 8))``, ``z = bucketize(x, b)``
    after:  ``y = call_tir(topk_gpu, (x,))``, ``z = call_tir(searchsorted, (b, x))``

    ``topk(x, 3)`` of a tensor whose extents are all known is left to LegalizeOps and to the rules
    that schedule its loops. It runs where the target is in scope, or bound to the tensors.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        if any(_name(call) == _DRAW for call in calls_in(mod)):
            mod = relax.backend.DispatchSampling()(mod)
        if not any(map(_is_dispatched, calls_in(mod))):
            return mod
        dispatcher = _Dispatcher(mod)
        mutated(mod, dispatcher)
        dispatcher.apply_dlight_gpu_fallback()
        return dispatcher.builder_.get()


def _is_dispatched(node: Any) -> bool:
    """Whether TVM's dispatch is to write an operator's loops."""
    name = _name(node)
    return name == _BUCKETS or (name in _OURS and has_open_extents(node))


def _name(node: Any) -> str:
    """Name of the operator that is called."""
    return getattr(node.op, "name", "") if isinstance(node, relax.Call) else ""


@mutator
class _Dispatcher(SortScanDispatcher._cls):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if _is_dispatched(call):
            return super().visit_call_(call)
        return self.visit_expr_post_order(call)
