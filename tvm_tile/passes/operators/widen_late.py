"""Operators that only move or choose numbers do so before these are widened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from tvm_tile.graph.tile_graph import element_size
from tvm_tile.passes.ir.rewriter import ModuleRewriter

_MOVES = ("expand_dims", "permute_dims", "reshape", "squeeze", "strided_slice")
_CHOICES = ("clip", "nn.relu")  # of a number or a bound


@tvm.transform.module_pass(opt_level=0, name="WidenLate")
@dataclass(frozen=True, slots=True)
class WidenLate:
    """Take casts of floating-point numbers to wider ones behind slices, reshapes, permutations and
    clips.

    before: ``strided_slice(astype(x, "float32"), ...)``
    after:  ``astype(strided_slice(x, ...), "float32")``

    or:     ``astype(clip(astype(x, "float32"), 0, 6), "float16")``
    after:  ``clip(x, 0, 6)``

    Exact: bounds of clips are numbers of the narrow type, too. TVM fuses a cast with the product
    that makes ``x`` and a move with what follows, so the wide numbers would cross memory in between
    (a gated linear unit, halves of a tensor).
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return _LateWidening(mod).rewritten(mod)


@mutator
class _LateWidening(ModuleRewriter):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if _is_call(call, "astype"):
            narrow = self._narrow(call)
            is_back = narrow is not None and str(narrow.ty.dtype) == str(call.ty.dtype)
            return narrow if is_back and isinstance(narrow, relax.Var) else call
        narrow = self._narrow(call) if _is_call(call, *_MOVES, *_CHOICES) else None
        if narrow is None or not all(
            _is_number(own, str(narrow.ty.dtype)) for own in call.args[1:]
        ):
            return call
        moved = relax.Call(call.op, [narrow, *call.args[1:]], call.attrs)
        return relax.op.astype(self.builder_.emit(moved), call.ty.dtype)

    def visit_tuple_getitem_(self, item: relax.TupleGetItem) -> relax.Expr:
        item = super().visit_tuple_getitem_(item)
        parts = self.made(item.tuple_value)
        narrow = self._narrow(parts) if _is_call(parts, "split") else None
        if narrow is None:
            return item
        # One for each part: they are common subexpressions.
        split = self.builder_.emit(relax.Call(parts.op, [narrow], parts.attrs))
        part = self.builder_.emit(relax.TupleGetItem(split, item.index))
        return relax.op.astype(part, item.ty.dtype)

    def _narrow(self, move: relax.Call) -> relax.Expr | None:
        """The value before it was widened, where a move follows; ``None`` of anything else."""
        cast = self.made(move.args[0])
        if not _is_call(cast, "astype"):
            return None
        narrow, wide = str(cast.args[0].ty.dtype), str(cast.ty.dtype)
        if "float" not in narrow or "float" not in wide:
            return None
        return cast.args[0] if element_size(narrow) < element_size(wide) else None


def _is_number(bound: Any, dtype: str) -> bool:
    """Whether a bound is a number of a floating-point type, too; what has no value is none."""
    value = getattr(bound, "value", None)
    if not isinstance(value, float | int):
        return True
    narrow = np.dtype(getattr(ml_dtypes, dtype, dtype))
    with np.errstate(over="ignore"):
        return float(np.asarray(value, np.float64).astype(narrow)) == value


def _is_call(value: Any, *names: str) -> bool:
    """Whether a value is a call of one of these operators."""
    known = {f"relax.{name}" for name in names}
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") in known
