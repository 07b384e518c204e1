"""Sorting, and the first elements in order.

NaN is the largest value and elements that are equal keep their order, as in PyTorch's stable sort.
"""

from __future__ import annotations

import torch
from tvm import relax

from tvm_tile.frontend.torch.convert import Converters, overloads
from tvm_tile.frontend.torch.emit import Emit, axis_of, shape_of
from tvm_tile.loops.sorting import first_in_order

Pair = tuple[relax.Expr | None, relax.Expr | None]


def _sort(
    emit: Emit, x: relax.Expr, dim: int, descending: bool, stable: bool | None = None
) -> Pair:
    """Every sort here is stable."""
    return _sorted(emit, x, dim, None, descending=descending)


def _topk(emit: Emit, x: relax.Expr, k: int, dim: int, largest: bool, sorted: bool) -> Pair:
    """Sorted, be it asked for or not."""
    return _sorted(emit, x, dim, k, descending=largest)


def _sorted(emit: Emit, x: relax.Expr, dim: int, count: int | None, *, descending: bool) -> Pair:
    """The first ``count`` elements in order (all where ``None``), and their places."""
    rows, axis = _rows(emit, x, dim)
    if count is None:
        count = shape_of(rows)[axis]
    values, places = first_in_order(emit.builder, rows, axis, count, is_descending=descending)
    return _shaped(emit, values, places)


def _rows(emit: Emit, x: relax.Expr, dim: int) -> tuple[relax.Expr, int]:
    """A tensor of one dimension or more, and the dimension counted from the front."""
    shape = shape_of(x)
    return emit.reshape(x, shape or (1,)), axis_of(dim, len(shape))


def _shaped(emit: Emit, values: relax.Expr, places: relax.Expr) -> Pair:
    """Values and places in the shapes of the node's results."""
    found = tuple(
        emit.reshape(value, tuple(like.shape))
        for value, like in zip((values, places), emit.results, strict=True)
    )
    return found[0], found[1]


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    **overloads(_sort, _ATEN.sort.default, _ATEN.sort.stable),
    _ATEN.topk.default: _topk,
}
