"""Products read each row's own matrix where it lies among others, not through a copy of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, relax, te, tirx
from tvm.relax.expr_functor import mutator

from tvm_tile.frontend.evaluate import static_shape
from tvm_tile.frontend.transposed_weights import transposition_source
from tvm_tile.passes.ir.op_pattern import OpPattern, with_pattern
from tvm_tile.passes.ir.rewriter import ModuleRewriter
from tvm_tile.passes.operators.read_transposed import product_of

_MATRICES = 3  # dimensions of a tensor of matrices


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


@dataclass(frozen=True, slots=True)
class _LookedUp:
    """Matrices of which each product of a batch takes one, told by data.

    Attributes:
        table: all matrices, (matrices, ., .).
        ids: number of each product's own, (products,).
        is_transposed: whether products take them with their axes exchanged.
    """

    table: relax.Expr
    ids: relax.Expr
    is_transposed: bool

    def matrices(self, table: te.Tensor, ids: te.Tensor) -> te.Tensor:
        """In loops: each product's own matrix, (products, ., .); the nearest one for a number
        outside of the table, so that each row is of a group."""
        first, last = (tirx.const(n, ids.dtype) for n in (0, int(table.shape[0]) - 1))

        def element(product: Any, *place: Any) -> Any:
            return table(tirx.max(tirx.min(ids(product), last), first), *place)

        return te.compute((*ids.shape, *table.shape[1:]), element, name="own")


@mutator
class _GroupedProducts(ModuleRewriter):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if call.op != ir.Op.get("relax.matmul") or static_shape(call.ty) is None:
            return call
        if any(operand.ty.ndim != _MATRICES for operand in call.args):
            return call
        found = [self._looked_up(operand) for operand in call.args]
        side = 0 if found[0] is not None else 1
        looked_up, other = found[side], call.args[1 - side]
        if looked_up is None or found[1 - side] is not None:
            return call
        products = int(call.ty.shape[0])
        if any(int(operand.ty.shape[0]) != products for operand in call.args):
            return call
        transposed = [looked_up.is_transposed and number == side for number in range(2)]
        dtype = str(call.ty.dtype)

        def product(x: te.Tensor, table: te.Tensor, ids: te.Tensor) -> te.Tensor:
            own = looked_up.matrices(table, ids)
            return product_of(*((x, own) if side else (own, x)), transposed, dtype)

        operands = other, looked_up.table, looked_up.ids
        found = self.builder_.call_te(product, *operands, primfunc_name_hint="matmul_of_groups")
        var, mod = found.args[0], self.builder_.get()
        self.builder_.update_func(var, with_pattern(mod[var], OpPattern.OUT_ELEMENT_WISE_FUSABLE))
        return found

    def _looked_up(self, operand: relax.Expr) -> _LookedUp | None:
        """What an operand is looked up in; ``None`` where it is no matrices that are."""
        made = self.made(operand)
        source = transposition_source(made)
        if source is not None:
            made = self.made(source)
        if not isinstance(made, relax.Call) or made.op != ir.Op.get("relax.take"):
            return None
        table, ids = made.args
        turned = transposition_source(self.made(table))
        table = table if turned is None else turned
        is_first = made.attrs.axis is not None and int(made.attrs.axis) == 0
        if not is_first or table.ty.ndim != _MATRICES or ids.ty.ndim != 1:
            return None
        if static_shape(table.ty) is None or str(made.attrs.mode) not in ("clip", "fast"):
            return None
        return _LookedUp(table, ids, (source is None) != (turned is None))
