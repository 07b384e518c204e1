"""Sums, means and maxima of bags of rows (``embedding_bag``)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from tvm import relax
from tvm.relax import op

from tvm_tile.frontend.torch.convert import Converters, overloads
from tvm_tile.frontend.torch.emit import Emit, Refusal, constant, dtype_name, dtype_of, shape_of
from tvm_tile.frontend.torch.operators.indexing import require_within
from tvm_tile.frontend.torch.operators.views import part

_SUM, _MEAN, _MAX = range(3)  # PyTorch's numbers of the modes


def _embedding_bag(
    emit: Emit,
    weight: relax.Expr,
    indices: relax.Expr,
    offsets: relax.Expr,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: relax.Expr | None,
    include_last_offset: bool,
    padding_idx: int,
) -> Sequence[relax.Expr | None]:
    """Every bag looks at every index, and takes those behind its offset and before the next."""
    (rows, _), (count,), bags = shape_of(weight), shape_of(indices), emit.shape[0]
    require_within(indices, rows)
    if not emit.wanted <= {0}:
        raise Refusal("the places of the rows in the bags")
    if not count:
        return emit.full(0), None, None, None
    wide = emit.wide(emit(op.take(weight, indices, 0, mode="clip")))
    dtype = dtype_of(wide)
    if per_sample_weights is not None:
        factors = emit(op.expand_dims(emit.cast(per_sample_weights, dtype), 1))
        wide = emit(op.multiply(wide, factors))
    inside = _membership(emit, indices, offsets, bags, padding_idx)
    least = -math.inf if mode == _MAX else 0
    chosen = op.where(emit(op.expand_dims(inside, 2)), wide, constant(least, dtype))
    total = emit((op.max if mode == _MAX else op.sum)(emit(chosen), 1))
    if mode != _SUM:
        sizes = emit(op.sum(op.astype(inside, dtype_name(dtype)), 1, keepdims=True))
        one, zero = constant(1, dtype), constant(0, dtype)
        if mode == _MEAN:
            total = op.divide(total, emit(op.maximum(sizes, one)))
        else:
            total = op.where(emit(op.greater(sizes, zero)), total, zero)
    return emit.cast(emit(total), emit.dtype), None, None, None


def _membership(
    emit: Emit, indices: relax.Expr, offsets: relax.Expr, bags: int, padding_idx: int
) -> relax.Expr:
    """Whether each index is in each bag, and is not padding."""
    (count,), (ends,) = shape_of(indices), shape_of(offsets)
    offsets = emit.cast(offsets, torch.int64)
    numbers = emit(op.arange(0, count, 1, "int64"))
    following = part(emit, offsets, 0, 1, ends)
    if ends == bags:  # the last bag ends with the indices
        end = emit(op.full((1,), constant(count, torch.int64)))
        following = emit(op.concat([following, end], 0)) if ends > 1 else end
    starts, following = (emit(op.expand_dims(v, 1)) for v in (offsets, following))
    if ends > bags:
        starts = part(emit, starts, 0, 0, bags)
    inside = op.logical_and(op.less_equal(starts, numbers), op.less(numbers, following))
    if padding_idx >= 0:
        padding = constant(padding_idx, dtype_of(indices))
        inside = op.logical_and(inside, op.not_equal(indices, padding))
    return emit(inside)


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    **overloads(
        _embedding_bag,
        _ATEN._embedding_bag.default,
        _ATEN._embedding_bag_forward_only.default,
    ),
}
