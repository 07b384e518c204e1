"""Operators that move elements, and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tvm import relax

from tvm_tile.frontend.torch.convert import Converters, overloads
from tvm_tile.frontend.torch.emit import Emit, axis_of, shape_of


def _same(emit: Emit, x: relax.Expr) -> relax.Expr:
    return x


def _view(emit: Emit, x: relax.Expr, size: Sequence[int]) -> relax.Expr:
    return emit.reshape(x, emit.shape)


def _select(emit: Emit, x: relax.Expr, dim: int, index: int) -> relax.Expr:
    axis = axis_of(dim, len(shape_of(x)))
    position = relax.const(index % shape_of(x)[axis], "int64")
    return relax.op.take(x, position, axis)


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    **overloads(_same, _ATEN.alias.default, _ATEN.clone.default, _ATEN.detach.default),
    _ATEN.view.default: _view,
    _ATEN.select.int: _select,
}
