"""Updates that are joined in more steps than one: means, and sums without the element itself."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tvm_tile.frontend.torch.decompositions.formulas import Decompositions, widened


def _index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    rows = torch.atleast_1d(source)
    column = index.reshape(-1, *(1,) * (rows.dim() - 1 - dim % rows.dim()))
    return x.scatter_reduce(
        dim, column.expand(rows.shape), source, reduce, include_self=include_self
    )


def _scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Join each element with all its updates; without itself where it has any, if so asked."""
    if include_self and reduce != "mean":
        return NotImplemented
    zeros, ones = torch.zeros_like(x, dtype=torch.int32), torch.ones_like(index, dtype=torch.int32)
    counts = zeros.scatter_add(dim, index, ones)
    made, src = widened(x), widened(src)
    if not include_self:
        made = torch.where(counts > 0, _neutral(made, reduce), made)
    made = made.scatter_reduce(dim, index, src, "sum" if reduce == "mean" else reduce)
    if reduce == "mean":
        rounding = None if made.is_floating_point() else "floor"
        number = (counts + int(include_self)).clamp_min(1)
        made = torch.div(made, number, rounding_mode=rounding)
    return made.to(x.dtype)


def _neutral(like: Tensor, reduce: str) -> Tensor:
    """What changes nothing that it is joined with."""
    if reduce not in ("amax", "amin"):
        return like.new_full((), reduce == "prod")
    if like.is_floating_point():
        return like.new_full((), -math.inf if reduce == "amax" else math.inf)
    if like.dtype == torch.bool:
        return like.new_full((), reduce == "amin")
    bounds = torch.iinfo(like.dtype)
    return like.new_full((), bounds.min if reduce == "amax" else bounds.max)


_ATEN = torch.ops.aten
DECOMPOSITIONS: Decompositions = {
    _ATEN.index_reduce.default: _index_reduce,
    _ATEN.scatter_reduce.two: _scatter_reduce,
}
