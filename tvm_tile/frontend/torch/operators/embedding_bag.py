"""Sums, means and maxima of bags of rows (``embedding_bag``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tvm import relax, te, tirx

from tvm_tile.frontend.torch.convert import Converters, overloads
from tvm_tile.frontend.torch.emit import Emit, Refusal, dtype_of, shape_of
from tvm_tile.frontend.torch.operators.indexing import clamped, require_within

_SUM, _MEAN, _MAX = range(3)  # PyTorch's numbers of the modes
_HALVES = (torch.float16, torch.bfloat16)


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
    (rows, width), (count,), bags = shape_of(weight), shape_of(indices), emit.shape[0]
    require_within(indices, rows)
    if not emit.wanted <= {0}:
        raise Refusal("the places of the rows in the bags")
    if not count:
        return emit.full(0), None, None, None
    wide = "float32" if dtype_of(weight) in _HALVES else str(weight.ty.dtype)

    def loops(table: te.Tensor, places: te.Tensor, starts: te.Tensor, *factors: Any) -> te.Tensor:
        least, zero = tirx.min_value(wide), tirx.const(0, wide)
        along = te.reduce_axis((0, count), "k")
        k = along.var

        def element(bag: Any, column: Any) -> Any:
            value = table(clamped(places(k), rows), column).astype(wide)
            value = value * factors[0](k).astype(wide) if factors else value
            inside = _is_in(bag, k, places, starts, bags, padding_idx)
            return tirx.Select(inside, value, least if mode == _MAX else zero)

        reduce = te.max if mode == _MAX else te.sum
        total = te.compute(
            (bags, width), lambda b, c: reduce(element(b, c), axis=along), name="bags"
        )
        each = te.reduce_axis((0, count), "n")

        def member(bag: Any) -> Any:
            inside = _is_in(bag, each.var, places, starts, bags, padding_idx)
            return te.sum(tirx.Cast("int32", inside), axis=each)

        size = te.compute((bags,), member, name="sizes")

        def result(bag: Any, column: Any) -> Any:
            value = total(bag, column)
            if mode == _MEAN:
                value = value / tirx.max(size(bag), tirx.const(1, "int32")).astype(wide)
            if mode == _MAX:
                value = tirx.Select(size(bag) > 0, value, zero)
            return value.astype(str(table.dtype))

        return te.compute((bags, width), result, name="embedding_bag")

    weights = [] if per_sample_weights is None else [per_sample_weights]
    found = emit.te(loops, weight, indices, offsets, *weights, name="embedding_bag")
    return found, None, None, None


def _is_in(
    bag: Any, k: Any, places: te.Tensor, starts: te.Tensor, bags: int, padding_idx: int
) -> Any:
    """Whether index ``k`` is in a bag, and is not padding."""
    conditions = [starts(bag) <= k]
    if int(starts.shape[0]) > bags:
        conditions.append(k < starts(bag + 1))
    elif bags > 1:
        following = starts(tirx.min(bag + 1, bags - 1))
        conditions.append(tirx.any(bag == bags - 1, k < following))
    if padding_idx >= 0:
        conditions.append(places(k) != padding_idx)
    return tirx.all(*conditions)


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    **overloads(
        _embedding_bag,
        _ATEN._embedding_bag.default,
        _ATEN._embedding_bag_forward_only.default,
    ),
}
