"""A softmax's element that has no value, a sink, is taken out of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import mutator

from tvm_tile.frontend.evaluate import static_shape
from tvm_tile.graph.constant_tensors import elements_of
from tvm_tile.loops.softmax import LEAST_SINK, softmax_with_sink
from tvm_tile.passes.ir.rewriter import ModuleRewriter

_FLOATS = ("float32", "float16", "bfloat16")


@tvm.transform.module_pass(opt_level=0, name="SeparateSinks")
@dataclass(frozen=True, slots=True)
class SeparateSinks:
    """Write a softmax whose last weights are dropped as one that knows of the last scores.

    before: ``strided_slice(softmax(concat((x, sink), -1), -1), [-1], [0], [keys])``
    after:  ``call_tir(softmax_with_sink, (x, sink))``

    So attention with sinks has scores, weights and values of the same keys: it becomes one kernel,
    as without. A maximum that is subtracted first, as GPT-OSS has it, changes no weight and goes.
    What is of half precision is computed in float32. Of sinks that are constants the loops say that
    they are not as low as scores that a number hides: beside them such scores weigh nothing.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return _SinkSeparating(mod).rewritten(mod)


@mutator
class _SinkSeparating(ModuleRewriter):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        scores = self._scores(call)
        if scores is None:
            return call
        x, sink = (self._cast(part, "float32") for part in scores)
        made = self.builder_.call_te(softmax_with_sink, x, sink, _least(self._uncast(sink)))
        weights = self.builder_.emit(made)
        return self._cast(weights, str(call.ty.dtype))

    def _cast(self, value: relax.Expr, dtype: str) -> relax.Expr:
        """A value in a type."""
        is_same = str(value.ty.dtype) == dtype
        return value if is_same else self.builder_.emit(relax.op.astype(value, dtype))

    def _scores(self, call: relax.Call) -> tuple[relax.Expr, relax.Expr] | None:
        """Scores and their sinks, of which a call gives the scores' weights."""
        shape = static_shape(call.ty) if _is_call(call, "strided_slice") else None
        if shape is None:
            return None
        softmax = self._uncast(call.args[0])
        if not _is_call(softmax, "nn.softmax"):
            return None
        axis = len(shape) - 1
        parts = self._uncast(self._without_maximum(self._uncast(softmax.args[0]), axis))
        if not _is_call(parts, "concat") or not isinstance(parts.args[0], relax.Tuple):
            return None
        if len(parts.args[0].fields) != 2 or not _is_first_part(call, axis):
            return None
        x, sink = parts.args[0].fields
        is_along = all(int(own.attrs.axis) % (axis + 1) == axis for own in (softmax, parts))
        is_sink = static_shape(sink.ty) == (*shape[:-1], 1) and static_shape(x.ty) == shape
        is_known = {str(own.ty.dtype) for own in (x, sink, call)} <= set(_FLOATS)
        return (x, sink) if is_along and is_sink and is_known else None

    def _without_maximum(self, value: relax.Expr, axis: int) -> relax.Expr:
        """``x`` of ``x - max(x)`` along an axis; the value itself where it is anything else."""
        difference = self.made(value)
        if not _is_call(difference, "subtract"):
            return value
        x, most = difference.args[0], self.made(difference.args[1])
        if not _is_call(most, "max") or not most.attrs.keepdims or not most.args[0].same_as(x):
            return value
        return x if [int(own) % (axis + 1) for own in most.attrs.axis or ()] == [axis] else value

    def _uncast(self, value: relax.Expr) -> Any:
        """What is behind a variable, and behind casts from float to float."""
        made = self.made(value)
        while _is_call(made, "astype") and str(made.args[0].ty.dtype) in _FLOATS:
            made = self.made(made.args[0])
        return made


def _least(sink: relax.Expr) -> float | None:
    """What no sink is below: the least of what hidden scores weigh nothing beside, if known."""
    is_high = isinstance(sink, ir.Constant) and bool((elements_of(sink) >= LEAST_SINK).all())
    return LEAST_SINK if is_high else None


def _is_first_part(call: relax.Call, axis: int) -> bool:
    """Whether a slice is of the last axis alone, and begins where that does."""
    axes, begins, _, *strides = (
        [int(own.value) for own in own.fields] for own in call.args[1:] if hasattr(own, "fields")
    )
    return [own % (axis + 1) for own in axes] == [axis] and begins == [0] and strides in ([], [[1]])


def _is_call(value: Any, name: str) -> bool:
    """Whether a value is a call of this operator."""
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") == f"relax.{name}"
