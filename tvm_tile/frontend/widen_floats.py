"""Products of 8-bit floats in half precision, where no matrix unit takes them as they are."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax import op
from tvm.relax.expr_functor import mutator

from tvm_tile.graph.eight_bits import FLOATS
from tvm_tile.graph.functions import mutated


def widen_floats(mod: tvm.IRModule, matrix_dtypes: frozenset[str] = frozenset()) -> tvm.IRModule:
    """Multiply 8-bit floats as the half-precision numbers that they are.

    before: ``matmul(x, w, out_dtype="float32")`` of e4m3 or e5m2
    after:  ``matmul(astype(x, "float16"), astype(w, "float16"), out_dtype="float32")``

    Every such number is one of half precision, and a product of two is exact in float32, so that
    sums are at least as exact as a matrix unit's of 8-bit floats, which may keep fewer bits. Matrix
    units of half precision multiply them, and weights stay codes where that is predicted to pay.

    Args:
        mod: Relax operators.
        matrix_dtypes: types that the device's matrix units multiply; such products stay.
    """
    return mutated(mod, _Widening(mod, matrix_dtypes))


@mutator
class _Widening(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule, matrix_dtypes: frozenset[str]) -> None:
        super().__init__(mod)
        self._matrix_dtypes = matrix_dtypes

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        is_product = isinstance(call.op, tvm.ir.Op) and call.op.name == "relax.matmul"
        if not is_product or not all(str(own.ty.dtype) in FLOATS for own in call.args):
            return call
        is_taken = {str(own.ty.dtype) for own in call.args} <= self._matrix_dtypes
        if is_taken or str(call.attrs.out_dtype) != "float32":
            return call
        x, w = (self.builder_.emit(op.astype(own, "float16")) for own in call.args)
        return op.matmul(x, w, out_dtype="float32")
