"""Reading at indices: ``index``, ``gather``, ``take``, embeddings; choosing by a mask.

Indices that are known when a model is compiled are checked then. One that comes from data and is
out of bounds is an error in PyTorch; here the nearest element is read in its place, so that no
foreign memory is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tvm import relax, te, tirx

from tvm_tile.frontend.ops.writer import known_value
from tvm_tile.frontend.torch.convert import Converters, overloads
from tvm_tile.frontend.torch.emit import Emit, Refusal, axis_of, constant, dtype_of, shape_of

Operand = Any  # a Relax expression or a number
_MASKS = (torch.bool, torch.uint8)


def require_within(index: relax.Expr, extent: int, *, lowest: int = 0) -> None:
    """Refuse an index that is known and lies outside ``lowest .. extent - 1``."""
    values = known_value(index)
    if values is not None and values.size and (values.min() < lowest or values.max() >= extent):
        outside = values[(values < lowest) | (values >= extent)].ravel()[0]
        raise Refusal(f"index {outside} is out of bounds of {extent} elements")


def from_front(emit: Emit, index: relax.Expr, extent: int) -> relax.Expr:
    """An index of which negative values count from the end, as one without negative values.

    Raises:
        Refusal: it is a mask, or known and out of bounds.
    """
    if dtype_of(index) in _MASKS:
        raise Refusal("a mask as index: what it leaves depends on the data")
    require_within(index, extent, lowest=-extent)
    values = known_value(index)
    if values is not None:
        return relax.const(np.where(values < 0, values + extent, values), "int64")
    index = emit.cast(index, torch.int64)
    is_negative = emit(relax.op.less(index, constant(0, torch.int64)))
    turned = emit(relax.op.add(index, constant(extent, torch.int64)))
    return emit(relax.op.where(is_negative, turned, index))


def clamped(index: Any, extent: int) -> Any:
    """In loops: an index that is safe to read at."""
    dtype = str(index.ty.dtype)
    return tirx.max(tirx.min(index, tirx.const(extent - 1, dtype)), tirx.const(0, dtype))


def at_broadcast(tensor: te.Tensor, at: Sequence[Any]) -> Any:
    """In loops: the element of a tensor that is broadcast to the rank of a position."""
    return tensor(*broadcast_index(tensor.shape, at))


def broadcast_index(shape: Sequence[Any], at: Sequence[Any]) -> list[Any]:
    """In loops: where in a tensor of some shape the element of a position is."""
    own = at[len(at) - len(shape) :] if shape else ()
    return [0 if int(extent) == 1 else i for extent, i in zip(shape, own, strict=True)]


def unflattened(flat: Any, shape: Sequence[int]) -> list[Any]:
    """In loops: the position, in an array of some shape, of the element of a number."""
    position: list[Any] = []
    for extent in reversed(shape):
        position.insert(0, tirx.floormod(flat, extent))
        flat = tirx.floordiv(flat, extent)
    return position


def _index(emit: Emit, x: relax.Expr, indices: Sequence[relax.Expr | None]) -> relax.Expr:
    """``x[indices]``; the indexed dimensions stay in place if they are neighbours, else go first.

    An index that is a mask leaves a number of elements that only the data decide.
    """
    extents = shape_of(x)
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    if not axes:
        return x
    given = [from_front(emit, indices[axis], extents[axis]) for axis in axes]
    if len(axes) == 1:
        return relax.op.take(x, given[0], axes[0], mode="clip")
    broadcast = len(torch.broadcast_shapes(*(shape_of(index) for index in given)))
    start = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0

    def loops(data: te.Tensor, *tables: te.Tensor) -> te.Tensor:
        def body(*at: Any) -> Any:
            position, others = (
                at[start : start + broadcast],
                [*at[:start], *at[start + broadcast :]],
            )
            source: list[Any] = []
            for axis, extent in enumerate(extents):
                if axis in axes:
                    table = tables[axes.index(axis)]
                    source.append(clamped(at_broadcast(table, position), extent))
                else:
                    source.append(others.pop(0))
            return data(*source)

        return te.compute(emit.shape, body, name="index")

    return emit.te(loops, x, *given, name="index")


def _index_select(emit: Emit, x: relax.Expr, dim: int, index: relax.Expr) -> relax.Expr:
    shape = shape_of(x)
    axis = axis_of(dim, len(shape))
    require_within(index, shape[axis] if shape else 1)
    rows = emit.reshape(x, shape or (1,))
    found = relax.op.take(
        rows, emit.reshape(index, (math.prod(shape_of(index)),)), axis, mode="clip"
    )
    return emit.reshape(emit(found), emit.shape)


def _embedding(
    emit: Emit,
    weight: relax.Expr,
    indices: relax.Expr,
    padding_idx: int,
    scale_grad_by_freq: bool,
    sparse: bool,
) -> relax.Expr:
    """Only gradients depend on the other arguments."""
    require_within(indices, shape_of(weight)[0])
    return relax.op.take(weight, indices, 0, mode="clip")


def _gather(
    emit: Emit, x: relax.Expr, dim: int, index: relax.Expr, sparse_grad: bool
) -> relax.Expr:
    shape = shape_of(x)
    axis = axis_of(dim, len(shape))
    require_within(index, shape[axis] if shape else 1)
    rows, places = (emit.reshape(v, shape_of(v) or (1,)) for v in (x, index))
    return emit.reshape(emit(relax.op.gather_elements(rows, places, axis)), emit.shape)


def _masked_fill(emit: Emit, x: relax.Expr, mask: relax.Expr, value: Operand) -> relax.Expr:
    filling = emit.operand(value, dtype_of(x))
    return relax.op.where(emit.cast(mask, torch.bool), filling, x)


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    **overloads(_index, _ATEN.index.Tensor, _ATEN._unsafe_index.Tensor),
    _ATEN.index_select.default: _index_select,
    _ATEN.embedding.default: _embedding,
    _ATEN.gather.default: _gather,
    **overloads(_masked_fill, _ATEN.masked_fill.Scalar, _ATEN.masked_fill.Tensor),
}
