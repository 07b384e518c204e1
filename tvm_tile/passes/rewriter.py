"""What passes have in common that rewrite every Relax function of a module."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator


class ModuleRewriter(PyExprMutator):
    """A mutator that is made for a module; TVM's own rewrites one expression."""

    def rewritten(self, mod: tvm.IRModule) -> tvm.IRModule:
        """``mod``, which it was made for, with every Relax function rewritten."""
        for var, func in mod.functions_items():
            if isinstance(func, relax.Function):
                self.builder_.update_func(var, self.visit_expr(func))
        return self.builder_.get()
