"""Compute masks that a model makes of nothing but indices: triangles, above all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_tile.frontend.evaluate import evaluate, static_shape
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
        self._known: dict[Any, np.ndarray | None] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        ty = call.ty
        call = self.visit_expr_post_order(call)
        shape = static_shape(ty)
        if getattr(call.op, "name", "") not in _MASKS or shape is None or len(shape) < _MATRIX:
            return call
        result = self._result(call, ty)
        if result is None or find_banded(result) is None:
            return call
        return relax.const(np.ascontiguousarray(result), str(ty.dtype))

    def _value(self, value: relax.Expr) -> np.ndarray | None:
        """A constant, or what operators make of constants; ``None`` of anything else."""
        if isinstance(value, tvm.ir.Constant):
            held = value.value
            return np.asarray(held if isinstance(held, int | float) else held.numpy())
        if not isinstance(value, relax.Var):
            return None
        if value not in self._known:
            made = self.lookup_binding(value)
            is_call = isinstance(made, relax.Call)
            self._known[value] = self._result(made, value.ty) if is_call else self._value(made)
        return self._known[value]

    def _result(self, call: relax.Call, ty: Any) -> np.ndarray | None:
        shape, name = static_shape(ty), getattr(call.op, "name", "")
        if shape is None or math.prod(shape) > _MOST_ELEMENTS:
            return None
        operands = [self._value(argument) for argument in call.args]
        if not operands:
            return None
        return evaluate(name, call, operands, shape, str(ty.dtype))
