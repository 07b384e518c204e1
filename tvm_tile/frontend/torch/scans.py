"""Scans: sums, products and extremes of all elements up to each."""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax

from tvm_tile.frontend.torch.convert import Converters
from tvm_tile.frontend.torch.emit import Emit, axis_of, dtype_name


def _cumsum(emit: Emit, x: relax.Expr, dim: int, dtype: torch.dtype | None) -> relax.Expr:
    return _by_operator(emit, relax.op.cumsum, x, dim)


def _cumprod(emit: Emit, x: relax.Expr, dim: int, dtype: torch.dtype | None) -> relax.Expr:
    return _by_operator(emit, relax.op.cumprod, x, dim)


def _by_operator(emit: Emit, operator: Any, x: relax.Expr, dim: int) -> relax.Expr:
    x = emit.cast(x, emit.dtype)
    if 0 in emit.shape or not emit.shape:
        return x
    return operator(x, axis_of(dim, len(emit.shape)), dtype_name(emit.dtype))


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    _ATEN.cumsum.default: _cumsum,
    _ATEN.cumprod.default: _cumprod,
}
