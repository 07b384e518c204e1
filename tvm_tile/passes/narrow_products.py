"""Products of 8-bit integers that importers widen first, in the 8 bits that matrix units take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import mutator

from tvm_tile.passes.rewriter import ModuleRewriter

_BYTES = ("int8", "uint8")
_MATRIX = 2  # dimensions


@tvm.transform.module_pass(opt_level=0, name="NarrowProducts")
@dataclass(frozen=True, slots=True)
class NarrowProducts:
    """Quantized products as ONNX states them, with their zero points out of the sum.

    before: ``matmul(astype(x, "int32") - zero, w)`` with 32-bit ``w`` that fits into 8
    after:  ``matmul(x, w', out_dtype="int32") - zero * sum(w', axis=-2)``, the last factor known

    Exact: both wrap around at 32 bits. Left alone are zero points of more than one element, and
    those of a second operand that is no constant.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return _Rewriter(mod).rewritten(mod)


@mutator
class _Rewriter(ModuleRewriter):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not _is_call(call, "matmul") or str(call.ty.dtype) != "int32":
            return call
        if min(operand.ty.ndim for operand in call.args) < _MATRIX:
            return call
        left, zero = self._without_zero_point(call.args[0])
        x, weight = self._widened(left), self._values(call.args[1])
        w = self._widened(call.args[1]) if weight is None else _narrow(weight)
        if x is None or w is None or (weight is None and zero is not None):
            return call
        product = relax.op.matmul(x, w, out_dtype="int32")
        if zero is None:
            return product
        sums = weight.sum(-2, dtype=np.int32, keepdims=True)
        shift = self.builder_.emit(relax.op.multiply(zero, relax.const(sums)))
        return relax.op.subtract(self.builder_.emit(product), shift)

    def _made(self, value: relax.Expr) -> Any:
        """The expression that a variable is bound to."""
        found = self.lookup_binding(value) if isinstance(value, relax.Var) else value
        return value if found is None else found

    def _without_zero_point(self, value: relax.Expr) -> tuple[relax.Expr, relax.Expr | None]:
        """``x`` and ``zero`` of ``x - zero``, if that is one for all elements."""
        made = self._made(value)
        if not _is_call(made, "subtract"):
            return value, None
        x, zero = made.args
        is_one = zero.ty.ndim <= x.ty.ndim and _elements(zero) == 1
        return (x, zero) if is_one else (value, None)

    def _widened(self, value: relax.Expr) -> relax.Expr | None:
        """The bytes that are cast to 32-bit integers; ``None`` of anything else."""
        made = self._made(value)
        if not _is_call(made, "astype") or str(made.args[0].ty.dtype) not in _BYTES:
            return None
        return made.args[0] if str(made.ty.dtype) == "int32" else None

    def _values(self, value: relax.Expr) -> Any:
        """Integers known now, perhaps less a zero point; ``None`` of anything else."""
        made = self._made(value)
        if isinstance(made, tvm.ir.Constant):
            return made.value.numpy()
        if not _is_call(made, "astype", "subtract") or str(made.ty.dtype) != "int32":
            return None
        known = [self._values(operand) for operand in made.args]
        if any(array is None for array in known):
            return None
        wide = [array.astype(np.int32) for array in known]
        return wide[0] if len(wide) == 1 else wide[0] - wide[1]


def _elements(value: relax.Expr) -> int | None:
    """How many elements a tensor has; ``None`` where that is not known."""
    if value.ty.shape is None:
        return None
    extents = list(value.ty.shape)
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return None
    return math.prod(map(int, extents))


def _narrow(values: Any) -> relax.Expr | None:
    """A constant of these integers in one byte each; ``None`` where they do not fit."""
    for dtype in _BYTES:
        limits = np.iinfo(dtype)
        if values.size and limits.min <= values.min() and values.max() <= limits.max:
            return relax.const(values.astype(dtype))
    return None


def _is_call(value: Any, *names: str) -> bool:
    known = {f"relax.{name}" for name in names}
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") in known
