"""Scans: sums, products and extremes of all elements up to each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from tvm import relax

from tvm_tile.frontend.torch.convert import Converter, Converters
from tvm_tile.frontend.torch.emit import Emit, axis_of, dtype_name, shape_of
from tvm_tile.graph.rowwise import Combine
from tvm_tile.loops.scans import scan


def _by_operator(
    operator: Callable[..., relax.Expr],
    emit: Emit,
    x: relax.Expr,
    dim: int,
    dtype: torch.dtype | None,
) -> relax.Expr:
    x = emit.cast(x, emit.dtype)
    if 0 in emit.shape or not emit.shape:
        return x
    return operator(x, axis_of(dim, len(emit.shape)), dtype_name(emit.dtype))


def _extremes(combine: Combine) -> Converter:
    """The largest or smallest element so far, with its place, which is the last of equal ones."""

    def convert(emit: Emit, x: relax.Expr, dim: int) -> tuple[relax.Expr, relax.Expr]:
        shape = shape_of(x)
        if 0 in shape or not shape:
            return x, emit(relax.op.zeros_like(x, "int64"))
        values, places = scan(emit.builder, x, combine, axis_of(dim, len(shape)), has_places=True)
        return values, places

    return convert


def _logcumsumexp(emit: Emit, x: relax.Expr, dim: int) -> relax.Expr:
    shape = shape_of(x)
    if 0 in shape or not shape:
        return x
    (result,) = scan(emit.builder, x, Combine.LOG_SUM_EXP, axis_of(dim, len(shape)))
    return result


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    _ATEN.cumsum.default: partial(_by_operator, relax.op.cumsum),
    _ATEN.cumprod.default: partial(_by_operator, relax.op.cumprod),
    _ATEN.cummax.default: _extremes(Combine.LARGEST),
    _ATEN.cummin.default: _extremes(Combine.SMALLEST),
    _ATEN.logcumsumexp.default: _logcumsumexp,
}
