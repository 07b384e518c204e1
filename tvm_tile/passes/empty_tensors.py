"""Tensors without elements: nobody has to compute them, and TVM cannot load them."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import mutator

from tvm_tile.passes.rewriter import ModuleRewriter, is_call_tir
from tvm_tile.runtime.arrays import numpy_dtype


@tvm.transform.module_pass(opt_level=0, name="EmptyResults")
class EmptyResults:
    """What a function makes that has no elements becomes a constant without any.

    before: ``x = call_tir(expand_dims, (y,), out_ty=Tensor((2, 1, 0, 48)))``
    after:  ``x = constant of shape (2, 1, 0, 48)``

    TVM would take the function for a reshape, for which an extent of 0 means that of the operand.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return _Results(mod).rewritten(mod)


@tvm.transform.module_pass(opt_level=0, name="EmptyConstants")
class EmptyConstants:
    """A constant without elements becomes a tensor that nothing is written to.

    before: ``f(constant of shape (1, 0))``
    after:  ``t = builtin.alloc_tensor((1, 0)); f(t)``

    For functions without dataflow blocks, whose memory is not planned yet.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return _Constants(mod).rewritten(mod)


@mutator
class _Results(ModuleRewriter):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if not is_call_tir(call) or not _is_empty(call.ty):
            return super().visit_call_(call)
        kind = call.ty
        dtype = str(kind.dtype)
        array = np.zeros([int(extent) for extent in kind.shape], numpy_dtype(dtype))
        return relax.const(array, dtype)


@mutator
class _Constants(ModuleRewriter):
    def visit_generic_const_(self, constant: tvm.ir.GenericConst) -> relax.Expr:
        if not _is_empty(constant.ty):
            return super().visit_generic_const_(constant)
        kind = constant.ty
        return self.builder_.emit(relax.op.builtin.alloc_tensor(kind.shape, str(kind.dtype), 0))


def _is_empty(kind: tvm.ir.Type) -> bool:
    """Whether it is of tensors some extent of which is 0, all of them known."""
    extents = list(kind.shape) if isinstance(kind, relax.TensorType) and kind.shape else []
    known = all(isinstance(extent, tirx.IntImm) for extent in extents)
    return known and 0 in map(int, extents)
