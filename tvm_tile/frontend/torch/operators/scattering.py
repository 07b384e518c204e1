"""Writing at indices: ``index_put``, ``scatter`` and their kin, without races.

No thread writes at an index. Each element of the result looks for the updates that are meant for
it, so that nothing is written twice, the last of several updates wins, sums have one order, and an
update whose index is out of bounds (an error in PyTorch) meets no element and is left out::

    for i, k: last[i] = max(last[i], k if index[k] == i else -1)
    for i:    B[i] = updates[last[i]] if last[i] >= 0 else A[i]

That is as many comparisons as there are places times updates. Where the updates' places are known
when a model is compiled, ``last`` is a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from tvm import relax, te, tirx

from tvm_tile.frontend.torch.convert import Converters, overloads
from tvm_tile.frontend.torch.emit import Emit, Refusal, axis_of, dtype_of, shape_of
from tvm_tile.frontend.torch.operators.indexing import (
    at_broadcast,
    from_front,
    require_within,
    unflattened,
)
from tvm_tile.frontend.torch.operators.rows_in_place import Updates

Operand = Any  # a Relax expression or a number
_HALVES = (torch.float16, torch.bfloat16)


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
    if any(dtype_of(index) in (torch.bool, torch.uint8) for index in indices if index is not None):
        return _put_by_mask(emit, x, indices, values, accumulate)
    broadcast = torch.broadcast_shapes(*(shape_of(indices[axis]) for axis in axes))
    where = Updates(extents, tuple(axes), tuple(broadcast))
    given = [from_front(emit, indices[axis], extents[axis]) for axis in axes]
    if 0 in broadcast:
        return x

    def value_at(table: te.Tensor, at: Sequence[Any], update: Sequence[Any]) -> Any:
        others = [at[axis] for axis in where.others]
        return at_broadcast(table, [*others[: where.start], *update, *others[where.start :]])

    def hits(tables: Sequence[te.Tensor], places: Sequence[Any], update: Sequence[Any]) -> Any:
        return tirx.all(
            *(at_broadcast(t, update) == place for t, place in zip(tables, places, strict=True))
        )

    if accumulate:
        return _accumulated(emit, x, values, given, axes, broadcast, hits, value_at)
    last = _last_update(emit, [extents[axis] for axis in axes], given, broadcast, hits)

    def loops(data: te.Tensor, updates: te.Tensor, chosen: te.Tensor) -> te.Tensor:
        def body(*at: Any) -> Any:
            which = chosen(*(at[axis] for axis in axes))
            update = unflattened(tirx.max(which, 0), broadcast)
            return tirx.Select(which >= 0, value_at(updates, at, update), data(*at))

        return te.compute(extents, body, name="index_put")

    return emit.te(loops, x, emit.cast(values, dtype_of(x)), last, name="index_put")


def _last_update(
    emit: Emit,
    extents: Sequence[int],
    given: Sequence[relax.Expr],
    broadcast: Sequence[int],
    hits: Callable[..., Any],
) -> relax.Expr:
    """The number of the last update of each place; -1 where there is none."""

    def loops(*tables: te.Tensor) -> te.Tensor:
        along = [te.reduce_axis((0, extent), f"k{i}") for i, extent in enumerate(broadcast)]
        update = [k.var for k in along]

        def body(*places: Any) -> Any:
            number = tirx.Cast("int64", _flattened(update, broadcast))
            none = tirx.const(-1, "int64")
            found = tirx.Select(hits(tables, places, update), number, none)
            return te.max(found, axis=along) if along else found

        return te.compute(extents, body, name="last_update")

    return emit.te(loops, *given, name="last_update")


def _accumulated(
    emit: Emit,
    x: relax.Expr,
    values: relax.Expr,
    given: Sequence[relax.Expr],
    axes: Sequence[int],
    broadcast: Sequence[int],
    hits: Callable[..., Any],
    value_at: Callable[..., Any],
) -> relax.Expr:
    wide = sum_dtype(x)
    is_flag = dtype_of(x) == torch.bool

    def loops(data: te.Tensor, updates: te.Tensor, *tables: te.Tensor) -> te.Tensor:
        along = [te.reduce_axis((0, extent), f"k{i}") for i, extent in enumerate(broadcast)]
        update = [k.var for k in along]

        def body(*at: Any) -> Any:
            value = value_at(updates, at, update).astype(wide)
            found = hits(tables, [at[axis] for axis in axes], update)
            term = tirx.Select(found, value, tirx.const(0, wide))
            return te.sum(term, axis=along) if along else term

        total = te.compute(data.shape, body, name="updates")

        def plus(*at: Any) -> Any:
            result = data(*at).astype(wide) + total(*at)
            return result != 0 if is_flag else result.astype(str(data.dtype))

        return te.compute(data.shape, plus, name="index_put")

    return emit.te(loops, x, emit.cast(values, dtype_of(x)), *given, name="index_put")


def _put_by_mask(
    emit: Emit,
    x: relax.Expr,
    indices: Sequence[relax.Expr | None],
    values: relax.Expr,
    accumulate: bool,
) -> relax.Expr:
    """``x[mask] = values``: the mask's k-th true element takes the k-th value, or all the one."""
    lead = next(axis for axis, index in enumerate(indices) if index is not None)
    mask, *others = indices[lead:]
    if any(index is not None for index in others):
        raise Refusal("a mask beside other indices")
    flags = shape_of(mask)
    covered = len(flags)
    mask = emit.cast(emit.reshape(mask, (math.prod(flags),)), torch.int64)
    ranks = emit(relax.op.cumsum(mask, 0, "int64"))

    def loops(
        data: te.Tensor, updates: te.Tensor, given: te.Tensor, counts: te.Tensor
    ) -> te.Tensor:
        dtype = str(data.dtype)

        def body(*at: Any) -> Any:
            place = _flattened(at[lead : lead + covered], flags)
            which = tirx.max(counts(place) - 1, tirx.const(0, "int64"))
            value = at_broadcast(updates, [*at[:lead], which, *at[lead + covered :]])
            if accumulate:
                value = tirx.any(value, data(*at)) if dtype == "bool" else value + data(*at)
            return tirx.Select(given(place) != 0, value, data(*at))

        return te.compute(data.shape, body, name="put_by_mask")

    return emit.te(loops, x, emit.cast(values, dtype_of(x)), mask, ranks, name="put_by_mask")


def _flattened(position: Sequence[Any], shape: Sequence[int]) -> Any:
    flat: Any = tirx.const(0, "int32")
    for i, extent in zip(position, shape, strict=True):
        flat = flat * extent + i
    return flat


def sum_dtype(x: relax.Expr) -> str:
    """The type in which updates are added up."""
    dtype = dtype_of(x)
    return "float32" if dtype in _HALVES else "int32" if dtype == torch.bool else str(x.ty.dtype)


def _put(
    emit: Emit, x: relax.Expr, index: relax.Expr, source: relax.Expr, accumulate: bool
) -> relax.Expr:
    count = math.prod(shape_of(x))
    row = emit.reshape(x, (count,))
    where = emit.reshape(index, (math.prod(shape_of(index)),))
    what = emit.reshape(source, shape_of(where))
    return emit.reshape(emit(_index_put(emit, row, [where], what, accumulate)), emit.shape)


def _scatter_value(
    emit: Emit, x: relax.Expr, dim: int, index: relax.Expr, value: float
) -> relax.Expr:
    return _scattered(emit, x, dim, index, emit.operand(value, dtype_of(x)))


def _scattered(
    emit: Emit, x: relax.Expr, dim: int, index: relax.Expr, src: relax.Expr
) -> relax.Expr:
    """Along a dimension, update ``k`` goes to where ``index[k]`` says; the last one stays."""
    x, src, index, axis = operands(emit, x, dim, src, index)
    if 0 in (*shape_of(index), *shape_of(x)):
        return emit.reshape(x, emit.shape)

    def last(table: te.Tensor) -> te.Tensor:
        along = te.reduce_axis((0, table.shape[axis]), "k")

        def body(*at: Any) -> Any:
            found = is_update(table, axis, at, along.var)
            number = tirx.Cast("int64", along.var)
            return te.max(tirx.Select(found, number, tirx.const(-1, "int64")), axis=along)

        return te.compute(shape_of(x), body, name="last_update")

    def loops(data: te.Tensor, updates: te.Tensor, chosen: te.Tensor) -> te.Tensor:
        def body(*at: Any) -> Any:
            which = chosen(*at)
            return tirx.Select(which >= 0, update_at(updates, axis, at, which), data(*at))

        return te.compute(data.shape, body, name="scatter")

    result = emit.te(loops, x, src, emit.te(last, index, name="last_update"), name="scatter")
    return emit.reshape(result, emit.shape)


def operands(
    emit: Emit, x: relax.Expr, dim: int, src: relax.Expr, index: relax.Expr
) -> tuple[relax.Expr, relax.Expr, relax.Expr, int]:
    """The operands with at least one dimension, and the dimension counted from the front."""
    extents = shape_of(x) or (1,)
    axis = axis_of(dim, len(extents))
    require_within(index, extents[axis])
    src = emit.cast(src, dtype_of(x))
    one = [emit.reshape(v, shape_of(v) or (1,) * len(extents)) for v in (x, src, index)]
    return one[0], one[1], one[2], axis


def is_update(table: te.Tensor, axis: int, at: Sequence[Any], k: Any) -> Any:
    """Whether update ``k`` is for a position; the index may be shorter than the result."""
    conditions, where = [], list(at)
    for i, extent in enumerate(table.shape):
        if i != axis:
            conditions.append(at[i] < extent)
            where[i] = tirx.min(at[i], extent - 1)
    where[axis] = k
    return tirx.all(*conditions, table(*where) == at[axis])


def update_at(updates: te.Tensor, axis: int, at: Sequence[Any], k: Any) -> Any:
    """Update ``k`` for a position, one for all, or any if there is none."""
    where = list(at)
    where[axis] = k
    return updates(
        *(
            tirx.max(tirx.min(i, extent - 1), 0)
            for i, extent in zip(where, updates.shape, strict=True)
        )
    )


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
    _ATEN.scatter.src: _scattered,
    _ATEN.scatter.value: _scatter_value,
    _ATEN.diagonal_scatter.default: _diagonal_scatter,
    _ATEN.as_strided_scatter.default: _as_strided_scatter,
}
