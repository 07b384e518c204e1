"""Writing at indices: ``index_put``, ``scatter`` and their kin, without races.

No thread writes at an index: each element of the result looks for the updates that are meant for
it, as :mod:`tvm_tile.loops.scatter` says. Where the updates' places are known when a model is
compiled, a table says which goes where.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from tvm import relax, te, tirx

from tvm_tile.frontend.torch.convert import Converters, overloads
from tvm_tile.frontend.torch.emit import Emit, axis_of, dtype_of, shape_of
from tvm_tile.frontend.torch.operators.indexing import at_broadcast, from_front, require_within
from tvm_tile.frontend.torch.operators.rows_in_place import Updates
from tvm_tile.frontend.torch.operators.views import part

Operand = Any  # a Relax expression or a number


def _index_put(
    emit: Emit,
    x: relax.Expr,
    indices: Sequence[relax.Expr | None],
    values: relax.Expr,
    accumulate: bool,
) -> relax.Expr:
    """``x[indices] = values``, or ``+=``, also of values at one and the same place."""
    extents = shape_of(x)
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    if 0 in extents:
        return x
    broadcast = torch.broadcast_shapes(*(shape_of(indices[axis]) for axis in axes))
    where = Updates(extents, tuple(axes), tuple(broadcast))
    given = [from_front(emit, indices[axis], extents[axis]) for axis in axes]
    if 0 in broadcast:
        return x
    values = emit.cast(values, dtype_of(x))
    if accumulate:
        return _accumulated(emit, x, values, given, where)

    def last(*tables: te.Tensor) -> te.Tensor:
        """The number of the last update of each place; -1 where there is none."""
        along = te.reduce_axis((0, where.count), "k")
        update = where.position(along.var)

        def body(*places: Any) -> Any:
            pairs = zip(tables, places, strict=True)
            is_hit = tirx.all(*(at_broadcast(table, update) == place for table, place in pairs))
            number = tirx.Cast("int64", along.var)
            return te.max(tirx.Select(is_hit, number, tirx.const(-1, "int64")), axis=along)

        return te.compute([extents[axis] for axis in axes], body, name="last_update")

    def index_put(data: te.Tensor, updates: te.Tensor, chosen: te.Tensor) -> te.Tensor:
        def body(*at: Any) -> Any:
            which = chosen(*(at[axis] for axis in axes))
            others = [at[axis] for axis in where.others]
            update = where.position(tirx.max(which, 0))
            source = [*others[: where.start], *update, *others[where.start :]]
            return tirx.Select(which >= 0, at_broadcast(updates, source), data(*at))

        return te.compute(extents, body, name="index_put")

    return emit.te(index_put, x, values, emit.te(last, *given, name="last_update"))


def _accumulated(
    emit: Emit, x: relax.Expr, values: relax.Expr, given: Sequence[relax.Expr], where: Updates
) -> relax.Expr:
    """Sums, by TVM's operator, which has the axes that are indexed in front."""
    others = [where.extents[axis] for axis in where.others]
    rank, start = len(where.broadcast), where.start
    whole = relax.op.broadcast_to(values, [*others[:start], *where.broadcast, *others[start:]])
    order = [*range(start, start + rank), *range(start), *range(start + rank, rank + len(others))]
    rows = emit.reshape(emit(relax.op.permute_dims(emit(whole), order)), [where.count, *others])
    tables = [
        emit.reshape(emit(relax.op.broadcast_to(index, where.broadcast)), [where.count, 1])
        for index in given
    ]
    order = [*where.axes, *where.others]
    front = emit(relax.op.permute_dims(x, order))
    wide = torch.int32 if dtype_of(x) == torch.bool else dtype_of(x)
    front, rows = emit.cast(front, wide), emit.cast(rows, wide)
    made = relax.op.scatter_nd(front, emit(relax.op.concat(tables, 1)), rows, "add")
    made = emit.cast(emit(made), dtype_of(x))
    return relax.op.permute_dims(made, [order.index(axis) for axis in range(len(order))])


def _put(
    emit: Emit, x: relax.Expr, index: relax.Expr, source: relax.Expr, accumulate: bool
) -> relax.Expr:
    count = math.prod(shape_of(x))
    row = emit.reshape(x, (count,))
    where = emit.reshape(index, (math.prod(shape_of(index)),))
    what = emit.reshape(source, shape_of(where))
    return emit.reshape(emit(_index_put(emit, row, [where], what, accumulate)), emit.shape)


def _scatter_value(
    emit: Emit, x: relax.Expr, dim: int, index: relax.Expr, value: float, reduce: str = "update"
) -> relax.Expr:
    src = emit(relax.op.full(shape_of(index), emit.operand(value, dtype_of(x))))
    return _scatter(emit, x, dim, index, src, reduce)


def _scatter(
    emit: Emit,
    x: relax.Expr,
    dim: int,
    index: relax.Expr,
    src: relax.Expr,
    reduce: str = "update",
    include_self: bool = True,
) -> relax.Expr:
    """Along a dimension, update ``k`` goes to where ``index[k]`` says.

    It takes the place of what is there, the last one of several, or is joined with it.
    """
    extents = shape_of(x) or (1,)
    axis = axis_of(dim, len(extents))
    require_within(index, extents[axis])
    if 0 in (*shape_of(index), *extents):
        return x
    wide = torch.int32 if dtype_of(x) == torch.bool and reduce != "update" else dtype_of(x)
    x, src = emit.cast(x, wide), emit.cast(src, wide)
    x, src, index = (emit.reshape(v, shape_of(v) or (1,) * len(extents)) for v in (x, src, index))
    for i, extent in enumerate(shape_of(index)):
        src = part(emit, src, i, 0, extent)
    made = relax.op.scatter_elements(x, index, src, axis, _REDUCTIONS.get(reduce, reduce))
    return emit.cast(emit.reshape(emit(made), emit.shape), emit.dtype)


_REDUCTIONS = {"multiply": "mul", "sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _scatter_add(
    emit: Emit, x: relax.Expr, dim: int, index: relax.Expr, src: relax.Expr
) -> relax.Expr:
    return _scatter(emit, x, dim, index, src, "add")


def _diagonal_scatter(
    emit: Emit, x: relax.Expr, src: relax.Expr, offset: int, dim1: int, dim2: int
) -> relax.Expr:
    return _at_known_places(
        emit, x, src, lambda a, b: torch.diagonal_scatter(a, b, offset, dim1, dim2)
    )


def _as_strided_scatter(
    emit: Emit,
    x: relax.Expr,
    src: relax.Expr,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None,
) -> relax.Expr:
    example = emit.examples["x"]  # strides count elements of what that is a view of
    count = example.untyped_storage().nbytes() // example.element_size()

    def scatter(own: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        memory = own.new_full((count,), -1)
        view = memory.as_strided(own.shape, example.stride(), example.storage_offset())
        return torch.as_strided_scatter(view, numbers, size, stride, storage_offset)

    return _at_known_places(emit, x, src, scatter)


def _at_known_places(
    emit: Emit,
    x: relax.Expr,
    src: relax.Expr,
    scatter: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> relax.Expr:
    """PyTorch itself scatters the updates' numbers."""
    count = math.prod(shape_of(src))
    if 0 in (count, math.prod(shape_of(x))):
        return x
    numbers = torch.arange(count, dtype=torch.int32).reshape(shape_of(src))
    table = scatter(torch.full(shape_of(x), -1, dtype=torch.int32), numbers).numpy()

    def loops(data: te.Tensor, row: te.Tensor, chosen: te.Tensor) -> te.Tensor:
        def body(*at: Any) -> Any:
            which = chosen(*at)
            return tirx.Select(which >= 0, row(tirx.max(which, 0)), data(*at))

        return te.compute(data.shape, body, name="scatter")

    row = emit.reshape(emit.cast(src, dtype_of(x)), (count,))
    return emit.te(loops, x, row, relax.const(np.ascontiguousarray(table)), name="scatter")


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    **overloads(_index_put, _ATEN.index_put.default, _ATEN._unsafe_index_put.default),
    _ATEN.put.default: _put,
    **overloads(_scatter, _ATEN.scatter.src, _ATEN.scatter.reduce, _ATEN.scatter_reduce.two),
    **overloads(_scatter_value, _ATEN.scatter.value, _ATEN.scatter.value_reduce),
    _ATEN.scatter_add.default: _scatter_add,
    _ATEN.diagonal_scatter.default: _diagonal_scatter,
    _ATEN.as_strided_scatter.default: _as_strided_scatter,
}
