"""Operators that join the elements along some dimensions to one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from tvm import relax

from tvm_tile.frontend.torch.convert import Converters, overloads
from tvm_tile.frontend.torch.emit import Emit, axis_of, constant, dtype_name, dtype_of, shape_of

Reduce = Callable[..., relax.Expr]
Dims = Sequence[int] | int | None


def axes_of(dim: Dims, rank: int) -> list[int]:
    """The dimensions that are meant; none at all and an empty list mean every one."""
    if dim is None:
        return list(range(rank))
    dims = [dim] if isinstance(dim, int) else list(dim)
    return sorted(axis_of(d, rank) for d in dims) if dims else list(range(rank))


def _reduced(
    emit: Emit, reduce: Reduce, x: relax.Expr, dim: Dims, keepdim: bool, empty: float
) -> relax.Expr:
    """A reduction; ``empty`` is what it makes of nothing."""
    rank = len(shape_of(x))
    if math.prod(shape_of(x)) == 0:
        value = constant(empty, dtype_of(x))
        return emit(relax.op.full(_shape(x, axes_of(dim, rank), keepdim), value))
    if rank == 0:
        return x
    return emit(reduce(x, axes_of(dim, rank), keepdim))


def _shape(x: relax.Expr, axes: Sequence[int], keepdim: bool) -> tuple[int, ...]:
    """The shape of a reduction's result."""
    extents = enumerate(shape_of(x))
    return tuple(1 if i in axes else e for i, e in extents if keepdim or i not in axes)


def _sum(
    emit: Emit,
    x: relax.Expr,
    dim: Dims,
    keepdim: bool,
    dtype: torch.dtype | None,
) -> relax.Expr:
    return _reduced(emit, relax.op.sum, emit.cast(x, emit.dtype), dim, keepdim, 0)


def _mean(
    emit: Emit,
    x: relax.Expr,
    dtype: torch.dtype | None,
    dim: Dims = None,
    keepdim: bool = False,
) -> relax.Expr:
    return _reduced(emit, relax.op.mean, emit.cast(x, emit.dtype), dim, keepdim, math.nan)


def _product(
    emit: Emit,
    x: relax.Expr,
    dtype: torch.dtype | None,
    dim: int | None = None,
    keepdim: bool = False,
) -> relax.Expr:
    return _reduced(emit, relax.op.prod, emit.cast(x, emit.dtype), dim, keepdim, 1)


def _extreme(
    reduce: Reduce, emit: Emit, x: relax.Expr, dim: Dims = None, keepdim: bool = False
) -> relax.Expr:
    """The largest or smallest elements; of booleans those of their numbers."""
    dtype = dtype_of(x)
    value = emit.cast(x, torch.int8) if dtype == torch.bool else x
    return emit.cast(_reduced(emit, reduce, value, dim, keepdim, 0), dtype)


def _extreme_at(
    reduce: Reduce, find: Reduce, emit: Emit, x: relax.Expr, dim: int, keepdim: bool
) -> tuple[relax.Expr, relax.Expr | None]:
    place = _place(find, emit, x, dim, keepdim) if 1 in emit.wanted else None
    return _extreme(reduce, emit, x, dim, keepdim), place


def _place(reduce: Reduce, emit: Emit, x: relax.Expr, dim: int | None, keepdim: bool) -> relax.Expr:
    """Where the largest or smallest elements are, the first of equal ones."""
    shape = shape_of(x)
    value = emit.cast(x, torch.int8) if dtype_of(x) == torch.bool else x
    if math.prod(shape) == 0 or not shape:
        axes = axes_of(dim, len(shape))
        return emit(relax.op.zeros(_shape(x, axes, keepdim), dtype_name(torch.int64)))
    if dim is not None:
        return emit(reduce(value, axis_of(dim, len(shape)), keepdim))
    flat = emit.reshape(value, (math.prod(shape),))
    return emit.reshape(emit(reduce(flat, 0, False)), (1,) * len(shape) if keepdim else ())


def _any(emit: Emit, x: relax.Expr, dim: Dims = None, keepdim: bool = False) -> relax.Expr:
    numbers = emit.cast(emit.cast(x, torch.bool), torch.int8)
    found = _reduced(emit, relax.op.max, numbers, dim, keepdim, 0)
    # 0 and 1 as they are: of bytes PyTorch returns bytes.
    return relax.op.astype(found, dtype_name(emit.dtype))


def _variance(
    emit: Emit, x: relax.Expr, dim: Dims, correction: float | None, keepdim: bool
) -> relax.Expr:
    axes = axes_of(dim, len(shape_of(x)))
    count = math.prod(shape_of(x)[axis] for axis in axes)
    wide = emit.wide(x)
    value = _reduced(emit, relax.op.variance, wide, dim, keepdim, math.nan)
    if not shape_of(x):
        value = emit(relax.op.subtract(x, x))  # 0, or NaN of what is not finite
    left = count - (1 if correction is None else correction)
    if left != count:
        factor = count / left if left > 0 else math.inf
        value = emit(relax.op.multiply(value, constant(factor, dtype_of(wide))))
    return emit.cast(value, dtype_of(x))


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    _ATEN.sum.dim_IntList: _sum,
    **overloads(_mean, _ATEN.mean.dim, _ATEN.mean.default),
    **overloads(_product, _ATEN.prod.dim_int, _ATEN.prod.default),
    **overloads(partial(_extreme, relax.op.max), _ATEN.amax.default, _ATEN.max.default),
    **overloads(partial(_extreme, relax.op.min), _ATEN.amin.default, _ATEN.min.default),
    _ATEN.max.dim: partial(_extreme_at, relax.op.max, relax.op.argmax),
    _ATEN.min.dim: partial(_extreme_at, relax.op.min, relax.op.argmin),
    _ATEN.argmax.default: partial(_place, relax.op.argmax),
    _ATEN.argmin.default: partial(_place, relax.op.argmin),
    **overloads(_any, _ATEN.any.dim, _ATEN.any.dims, _ATEN.any.default),
    _ATEN.var.correction: _variance,
}
