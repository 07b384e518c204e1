"""Compute masks that a model makes of nothing but indices: triangles, above all."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from tvm_tile.frontend.evaluate import KnownValues, static_shape
from tvm_tile.frontend.fold import folded
from tvm_tile.tile.attention.band import find_banded

_MASKS = frozenset(
    f"relax.{name}"
    for name in (
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
        *("logical_and", "logical_or", "logical_not", "bitwise_and", "bitwise_or"),
        *("where", "tril", "triu"),
    )
)
_MOST_ELEMENTS = 1 << 26  # 8192 queries and keys
_MATRIX = 2  # dimensions


def fold_masks(mod: tvm.IRModule) -> tvm.IRModule:
    """Replace operators on constants by their result where that is a band of a matrix.

    before: ``i = arange(0, 4096); mask = where(less_equal(i - reshape(i, (4096, 1)), 0), 1, 0)``
    after:  ``mask``, a constant

    Such a constant is as good as none: kernels compare indices instead of reading it (see
    :class:`tvm_tile.passes.InlineConstants`). Others of this size are better computed where they
    are used than kept with the model.

    Args:
        mod: Relax operators.

    Returns:
        The module without these operators and without unused ones.
    """
    return folded(mod, _FoldMasks(mod))


@relax.expr_functor.mutator
class _FoldMasks(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._constants = KnownValues(self.lookup_binding, _MOST_ELEMENTS)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        ty = call.ty
        call = self.visit_expr_post_order(call)
        shape = static_shape(ty)
        if getattr(call.op, "name", "") not in _MASKS or shape is None or len(shape) < _MATRIX:
            return call
        result = self._constants.result(call, ty)
        if result is None or find_banded(result) is None:
            return call
        return relax.const(np.ascontiguousarray(result), str(ty.dtype))
