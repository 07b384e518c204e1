"""Products read each row's own matrix where it lies among others, not through a copy of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.relax.expr_functor import mutator

from tvm_tile.frontend.evaluate import static_shape
from tvm_tile.frontend.transposed_weights import weights_of
from tvm_tile.passes.ir.op_pattern import OpPattern, with_pattern
from tvm_tile.passes.ir.rewriter import ModuleRewriter
from tvm_tile.passes.operators.read_transposed import product_of


@tvm.transform.module_pass(opt_level=0, name="GroupProducts")
@dataclass(frozen=True, slots=True)
class GroupProducts:
    """Products with matrices that are looked up, such as those of a token's experts.

    before: ``own = take(w, ids, axis=0); y = matmul(x, permute_dims(own))``
    after:  ``y[s, i, j] = sum(x[s, i, k] * w[ids[s], j, k])``

    A rule that knows of such products (``Grouped`` in :mod:`tvm_tile.graph.positions`) computes
    rows of the same matrix side by side then: no order among the rows matters to a product, which
    is PIT's rule (section 3.1). The copy, ``take``, would be as large as the matrices of all rows.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return _GroupedProducts(mod).rewritten(mod)


def own_matrices(table: te.Tensor, ids: te.Tensor) -> te.Tensor:
    """In loops: each product's own matrix, (products, ., .); the nearest one for a number outside
    of the table, so that each row is of a group."""
    first, last = (tirx.const(n, ids.dtype) for n in (0, int(table.shape[0]) - 1))

    def element(product: Any, *place: Any) -> Any:
        return table(tirx.max(tirx.min(ids(product), last), first), *place)

    return te.compute((*ids.shape, *table.shape[1:]), element, name="own")


@mutator
class _GroupedProducts(ModuleRewriter):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        reading = weights_of(call, self.made)
        if reading is None or reading.ids is None or static_shape(call.ty) is None:
            return call
        side, products = reading.side, int(call.ty.shape[0])
        if any(int(operand.ty.shape[0]) != products for operand in call.args):
            return call
        if static_shape(reading.weights.ty) is None:
            return call
        transposed = [reading.is_turned and number == side for number in range(2)]
        dtype = str(call.ty.dtype)

        def product(x: te.Tensor, table: te.Tensor, ids: te.Tensor) -> te.Tensor:
            own = own_matrices(table, ids)
            return product_of(*((x, own) if side else (own, x)), transposed, dtype)

        operands = call.args[1 - side], reading.weights, reading.ids
        found = self.builder_.call_te(product, *operands, primfunc_name_hint="matmul_of_groups")
        var, mod = found.args[0], self.builder_.get()
        self.builder_.update_func(var, with_pattern(mod[var], OpPattern.OUT_ELEMENT_WISE_FUSABLE))
        return found
