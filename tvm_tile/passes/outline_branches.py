"""The branches of an If as functions of their own, which other passes see as functions."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from tvm_tile.passes.rewriter import ModuleRewriter


@tvm.transform.module_pass(opt_level=0, name="OutlineBranches")
@dataclass(frozen=True, slots=True)
class OutlineBranches:
    """Each branch of an If that computes something becomes a private function.

    before: ``if c: a = f(x); y = g(a)  else: b = h(x); y = g(b)``
    after:  ``if c: y = then(x)         else: y = otherwise(x)``

    StaticPlanBlockMemory plans a function at a time, and takes an If's branches for one sequence:
    the second reuses memory that only the first has allocated (apache/tvm#17348). Passes that walk
    through the blocks of functions see no blocks within bindings.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        finder = _Finder()
        for func in mod.functions.values():
            if isinstance(func, relax.Function):
                finder.visit_expr(func)
        if not finder.found:
            return mod
        return relax.transform.Normalize()(_Outliner(mod).rewritten(mod))


@relax.expr_functor.visitor
class _Finder(relax.PyExprVisitor):
    """Whether a function has an If."""

    found = False

    def visit_if_(self, branches: relax.If) -> None:
        self.found = True


@mutator
class _Outliner(ModuleRewriter):
    def visit_if_(self, branches: relax.If) -> relax.Expr:
        # Inner ones first, so that an outlined branch has none.
        branches = self.visit_expr_post_order(branches)
        sides = (("then", branches.true_branch), ("otherwise", branches.false_branch))
        return relax.If(branches.cond, *(self._outlined(body, name) for name, body in sides))

    def _outlined(self, branch: relax.Expr, name: str) -> relax.Expr:
        if isinstance(branch, relax.SeqExpr) and not branch.blocks:
            return branch
        free = list(relax.analysis.free_vars(branch))
        is_pure = not relax.analysis.contains_impure_call(branch)
        whole = relax.Function(free, branch, ret_ty=branch.ty, is_pure=is_pure)
        func = relax.utils.copy_with_new_vars(whole)
        called = self.builder_.add_func(func, name)
        return relax.SeqExpr([], relax.Call(called, free))
