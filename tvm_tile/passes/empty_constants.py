"""Constants without elements, which TVM's virtual machine saves and cannot load."""

from __future__ import annotations

import math

import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from tvm_tile.passes.rewriter import ModuleRewriter


@tvm.transform.module_pass(opt_level=0, name="EmptyConstants")
class EmptyConstants:
    """A constant without elements becomes a tensor that nothing is written to.

    before: ``f(constant of shape (1, 0))``
    after:  ``t = builtin.alloc_tensor((1, 0)); f(t)``

    For functions without dataflow blocks, whose memory is not planned yet.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return _Rewriter(mod).rewritten(mod)


@mutator
class _Rewriter(ModuleRewriter):
    def visit_generic_const_(self, constant: tvm.ir.GenericConst) -> relax.Expr:
        if _has_elements(constant):
            return super().visit_generic_const_(constant)
        kind = constant.ty
        return self.builder_.emit(relax.op.builtin.alloc_tensor(kind.shape, str(kind.dtype), 0))


def _has_elements(constant: tvm.ir.GenericConst) -> bool:
    kind = constant.ty
    return not isinstance(kind, relax.TensorType) or math.prod(map(int, kind.shape)) > 0
