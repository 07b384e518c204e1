"""Products read their operands as they lie in memory, not through a transposed copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te
from tvm.relax.expr_functor import mutator

from tvm_tile.passes.rewriter import ModuleRewriter


@tvm.transform.module_pass(opt_level=0, name="ReadTransposed")
@dataclass(frozen=True, slots=True)
class ReadTransposed:
    """Products of transposed operands, as in linear layers and attention.

    before: ``wt = permute_dims(w); y = matmul(x, wt)``
    after:  ``y[i, j] = sum(x[i, k] * w[j, k])``

    Constants are left alone: their transposition is done at compile time. So is that of weights
    in ``dtypes_by_depth``, the other way: their summed axis becomes the contiguous one. (TVM's own
    FuseTransposeMatmul knows the second operand only, and fails where both are the same tensor.)

    Args:
        dtypes_by_depth: what matrix units multiply only, or best, where the summed axis is
            contiguous.
    """

    dtypes_by_depth: frozenset[str] = frozenset()

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return _Rewriter(mod, self.dtypes_by_depth).rewritten(mod)


@mutator
class _Rewriter(ModuleRewriter):
    def __init__(self, mod: tvm.IRModule, dtypes_by_depth: frozenset[str]) -> None:
        super().__init__(mod)
        self._dtypes_by_depth = dtypes_by_depth

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if call.op != tvm.ir.Op.get("relax.matmul") or min(a.ty.ndim for a in call.args) < 2:
            return call
        sources = [self._source(operand) for operand in call.args]
        if sources[1] is None:
            sources[1] = self._turned(call.args[1])
        if all(source is None for source in sources):
            return call
        dtype = str(call.ty.dtype)
        operands = [o if s is None else s for s, o in zip(sources, call.args, strict=True)]
        transposed = [source is not None for source in sources]

        def product(a: te.Tensor, b: te.Tensor) -> te.Tensor:
            return product_of(a, b, transposed, dtype)

        return self.builder_.call_te(product, *operands, primfunc_name_hint="matmul")

    def _source(self, operand: relax.Expr) -> relax.Expr | None:
        """What ``operand`` is the transposition of, its last two axes exchanged."""
        made = self.lookup_binding(operand) if isinstance(operand, relax.Var) else None
        if not isinstance(made, relax.Call) or made.op != tvm.ir.Op.get("relax.permute_dims"):
            return None
        source = made.args[0]
        rank = source.ty.ndim
        order = [*range(rank - 2), rank - 1, rank - 2]
        axes = list(reversed(range(rank))) if made.attrs.axes is None else list(made.attrs.axes)
        axes = [int(axis) % rank for axis in axes]
        return source if axes == order and not isinstance(source, tvm.ir.Constant) else None

    def _turned(self, weight: relax.Expr) -> relax.Expr | None:
        """A constant with its last two axes exchanged, where that is of use."""
        dtype = str(weight.ty.dtype)
        if not isinstance(weight, tvm.ir.Constant) or dtype not in self._dtypes_by_depth:
            return None
        array = np.swapaxes(weight.value.numpy(), -1, -2)
        return relax.const(np.ascontiguousarray(array), dtype)


def product_of(a: te.Tensor, b: te.Tensor, transposed: Sequence[bool], dtype: str) -> te.Tensor:
    """The product over the last two axes; axes before these broadcast. Adds up in ``dtype``.

    Args:
        a: (..., rows, depth).
        b: (..., depth, columns).
        transposed: whether the last two axes of each are exchanged.
        dtype: of the product.
    """
    rows, depth = (a.shape[-1], a.shape[-2]) if transposed[0] else (a.shape[-2], a.shape[-1])
    columns = b.shape[-2] if transposed[1] else b.shape[-1]
    rank = max(len(a.shape), len(b.shape))
    batch = [_broadcast(a.shape, b.shape, rank - axis) for axis in range(rank - 2)]
    k = te.reduce_axis((0, depth), "k")

    def element(*index: Any) -> te.PrimExpr:
        *outer, i, j = index
        x = (k, i) if transposed[0] else (i, k)
        w = (j, k) if transposed[1] else (k, j)
        left, right = a(*_within(a.shape, outer), *x), b(*_within(b.shape, outer), *w)
        return te.sum(left.astype(dtype) * right.astype(dtype), axis=k)

    return te.compute([*batch, rows, columns], element, name="matmul")


def _broadcast(first: Sequence[Any], second: Sequence[Any], from_end: int) -> Any:
    extents = [shape[-from_end] for shape in (first, second) if len(shape) >= from_end]
    return next((extent for extent in extents if not _is_one(extent)), extents[0])


def _within(shape: Sequence[Any], outer: Sequence[Any]) -> list[Any]:
    """Indices of the leading axes: those of the result, or 0 where an axis of one is repeated."""
    own = len(shape) - 2
    indices = outer[len(outer) - own :]
    return [0 if _is_one(extent) else i for extent, i in zip(shape, indices, strict=False)]


def _is_one(extent: Any) -> bool:
    return isinstance(extent, tvm.tirx.IntImm) and int(extent) == 1
