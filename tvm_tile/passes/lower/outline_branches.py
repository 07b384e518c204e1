"""The branches of an If as functions of their own, which other passes see as functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from tvm_tile.build.tail_calls import calls_at_its_end, tail_binding
from tvm_tile.passes.ir.rewriter import ModuleRewriter


@tvm.transform.module_pass(opt_level=0, name="OutlineBranches")
@dataclass(frozen=True, slots=True)
class OutlineBranches:
    """Each branch of an If that computes something becomes a private function.

    before: ``if c: a = f(x); y = g(a)  else: b = h(x); y = g(b)``
    after:  ``if c: y = then(x)         else: y = otherwise(x)``

    A branch that ends with a call of the function itself keeps that call, which is a jump then (see
    :mod:`tvm_tile.build.tail_calls`).

    before: ``loop(i, x) = if c: j = add(i, 1); y = f(x); loop(j, y)   else: x``
    after:  ``loop(i, x) = if c: s = then(i, x);    loop(s[0], s[1])   else: x``

    StaticPlanBlockMemory plans a function at a time, and takes an If's branches for one sequence:
    the second reuses memory that only the first has allocated (apache/tvm#17348). Passes that walk
    through the blocks of functions see no blocks within bindings.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        finder = _IfFinder()
        for func in mod.functions.values():
            if isinstance(func, relax.Function):
                finder.visit_expr(func)
        if not finder.found:
            return mod
        return relax.transform.Normalize()(_Outliner(mod).rewritten(mod))


@relax.expr_functor.visitor
class _IfFinder(relax.PyExprVisitor):
    """Whether a function has an If."""

    found = False

    def visit_if_(self, branches: relax.If) -> None:
        self.found = True


def _only_calls_functions(branch: relax.SeqExpr) -> bool:
    """Whether a branch makes no value of its own, whose memory were to be planned."""
    values = [binding.value for block in branch.blocks for binding in block.bindings]
    return all(
        isinstance(value, relax.Var | relax.Tuple | relax.TupleGetItem)
        or (isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar))
        for value in values
    )


@mutator
class _Outliner(ModuleRewriter):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._function: Any = None  # that is being rewritten

    def rewritten(self, mod: tvm.IRModule) -> tvm.IRModule:
        """``mod``, which it was made for, with every Relax function rewritten."""
        for var, func in mod.functions_items():
            if isinstance(func, relax.Function):
                self._function = var
                self.builder_.update_func(var, self.visit_expr(func))
        return self.builder_.get()

    def visit_if_(self, branches: relax.If) -> relax.Expr:
        # Inner ones first, so that an outlined branch has none but those that end with a jump.
        branches = self.visit_expr_post_order(branches)
        sides = (("then", branches.true_branch), ("otherwise", branches.false_branch))
        return relax.If(branches.cond, *(self._outlined(body, name) for name, body in sides))

    def _outlined(self, branch: relax.Expr, name: str) -> relax.Expr:
        """The branch with its values in a function of its own, if it has any."""
        if not isinstance(branch, relax.SeqExpr) or _only_calls_functions(branch):
            return branch
        last = tail_binding(branch)
        if last is not None and calls_at_its_end(last.value, self._function):
            return self._before(branch, last, name)
        return relax.SeqExpr([], self._call_of(branch, name))

    def _before(self, branch: relax.SeqExpr, last: Any, name: str) -> relax.SeqExpr:
        """The branch with what comes before its last binding in a function."""
        bindings = [binding for block in branch.blocks for binding in block.bindings]
        place = next(n for n, b in enumerate(bindings) if b.var.same_as(last.var))
        made = {binding.var for binding in bindings[:place]}
        values = [var for var in relax.analysis.free_vars(last.value) if var in made]
        end = relax.BindingBlock([last])
        if not values:
            return relax.SeqExpr([end], last.var)
        before = relax.SeqExpr([relax.BindingBlock(bindings[:place])], relax.Tuple(values))
        state = relax.Var("state", relax.TupleType([value.ty for value in values]))
        fields = [
            relax.VarBinding(value, relax.TupleGetItem(state, n)) for n, value in enumerate(values)
        ]
        start = relax.VarBinding(state, self._call_of(self.builder_.normalize(before), name))
        return relax.SeqExpr([relax.BindingBlock([start, *fields, last])], last.var)

    def _call_of(self, branch: relax.SeqExpr, name: str) -> relax.Call:
        """A call of a new function that computes what a branch does."""
        free = list(relax.analysis.free_vars(branch))
        is_pure = not relax.analysis.contains_impure_call(branch)
        whole = relax.Function(free, branch, ret_ty=branch.ty, is_pure=is_pure)
        func = relax.utils.copy_with_new_vars(whole)
        called = self.builder_.add_func(func, name)
        return relax.Call(called, free)
