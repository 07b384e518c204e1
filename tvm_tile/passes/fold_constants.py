"""What constants alone decide is computed while a model is compiled, as kernels would."""

from __future__ import annotations

import tvm
from tvm import relax, te, tirx
from tvm.relax.expr_functor import mutator

from tvm_tile.build.exact_in_tvm import module_in_tvm
from tvm_tile.passes.rewriter import ModuleRewriter


@tvm.transform.module_pass(opt_level=0, name="FoldConstants")
class FoldConstants:
    """Calls of functions on constants become constants, NaN and infinities as they are written.

    before: ``y = call_tir(relu, (constant,))``   after: ``y`` is a constant

    TVM's own pass computes them by its CPU build, to which the larger of NaN and 0 is 0, and makes
    constants without elements, which it then cannot load: these are left to functions.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        folded = relax.transform.FoldConstant()(module_in_tvm(mod))
        for var, func in mod.functions_items():
            if isinstance(func, tirx.PrimFunc):
                folded[var] = func
        return _WithoutEmpty(folded).rewritten(folded)


@mutator
class _WithoutEmpty(ModuleRewriter):
    def visit_generic_const_(self, constant: tvm.ir.GenericConst) -> relax.Expr:
        shape = getattr(constant.value, "shape", ())
        if 0 not in shape:
            return constant
        dtype = constant.value.dtype

        def nothing() -> te.Tensor:
            return te.compute(shape, lambda *_: tirx.const(0, dtype), "nothing")

        return self.builder_.emit_te(nothing)
