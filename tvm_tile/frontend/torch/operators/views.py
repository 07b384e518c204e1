"""Operators that move elements, and compute nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import relax, te, tirx

from tvm_tile.frontend.torch.convert import Converters, overloads
from tvm_tile.frontend.torch.emit import (
    Emit,
    Refusal,
    axis_of,
    constant,
    dtype_name,
    dtype_of,
    shape_of,
)


def _permute(emit: Emit, x: relax.Expr, dims: Sequence[int]) -> relax.Expr:
    axes = [axis_of(dim, len(dims)) for dim in dims]
    return x if axes == list(range(len(dims))) else relax.op.permute_dims(x, axes)


def _squeeze_dims(emit: Emit, x: relax.Expr, dim: int | Sequence[int]) -> relax.Expr:
    dims = [dim] if isinstance(dim, int) else dim
    return _without(x, [axis_of(d, len(shape_of(x))) for d in dims])


def _without(x: relax.Expr, axes: Sequence[int]) -> relax.Expr:
    """The value without those of some dimensions whose extent is 1."""
    gone = [axis for axis in axes if shape_of(x) and shape_of(x)[axis] == 1]
    return relax.op.squeeze(x, gone) if gone else x


def _broadcast(x: relax.Expr, shape: Sequence[int]) -> relax.Expr:
    return x if shape_of(x) == tuple(shape) else relax.op.broadcast_to(x, tuple(shape))


def _select(emit: Emit, x: relax.Expr, dim: int, index: int) -> relax.Expr:
    axis = axis_of(dim, len(shape_of(x)))
    position = index + shape_of(x)[axis] if index < 0 else index
    return relax.op.squeeze(part(emit, x, axis, position, position + 1), [axis])


def _slice(
    emit: Emit, x: relax.Expr, dim: int, start: int | None, end: int | None, step: int
) -> relax.Expr:
    axis = axis_of(dim, len(shape_of(x)))
    return part(emit, x, axis, *slice(start, end, step).indices(shape_of(x)[axis]))


def part(emit: Emit, x: relax.Expr, axis: int, begin: int, end: int, step: int = 1) -> relax.Expr:
    """Every ``step``-th element along one axis, ``0 <= begin``, ``end`` within the extent."""
    extent = shape_of(x)[axis]
    count = len(range(begin, end, step))
    if (begin, count, step) == (0, extent, 1):
        return x
    shape = tuple(count if i == axis else e for i, e in enumerate(shape_of(x)))
    if 0 in shape:
        return emit(relax.op.zeros(shape, dtype_name(dtype_of(x))))
    return emit(relax.op.strided_slice(x, [axis], [begin], [end], [step]))


def _split(
    emit: Emit, x: relax.Expr, split_sizes: Sequence[int], dim: int
) -> Sequence[relax.Expr | None]:
    axis = axis_of(dim, len(shape_of(x)))
    ends = list(itertools.accumulate(split_sizes))
    if len(split_sizes) == 1:
        return [x]
    if 0 in split_sizes or 0 in shape_of(x):
        sections = zip([0, *ends], ends, strict=False)
        return [part(emit, x, axis, begin, end) for begin, end in sections]
    parts = emit(relax.op.split(x, ends[:-1], axis))
    return [
        emit(relax.TupleGetItem(parts, i)) if i in emit.wanted else None for i in range(len(ends))
    ]


def _cat(emit: Emit, tensors: Sequence[relax.Expr], dim: int) -> relax.Expr:
    parts = [emit.cast(t, emit.dtype) for t in tensors if math.prod(shape_of(t))]
    if not parts:
        return emit.full(0)
    axis = axis_of(dim, len(emit.shape))
    return parts[0] if len(parts) == 1 else relax.op.concat(parts, axis)


def _flip(emit: Emit, x: relax.Expr, dims: Sequence[int]) -> relax.Expr:
    for dim in dims if shape_of(x) else ():
        x = emit(relax.op.flip(x, axis_of(dim, len(shape_of(x)))))
    return x


def _repeat(emit: Emit, x: relax.Expr, repeats: Sequence[int]) -> relax.Expr:
    if 0 in emit.shape:
        return emit.full(0)
    added = (1,) * (len(repeats) - len(shape_of(x)))
    x = emit.reshape(x, (*added, *shape_of(x)))
    return x if math.prod(repeats) == 1 else relax.op.tile(x, list(repeats))


def _unfold(emit: Emit, x: relax.Expr, dimension: int, size: int, step: int) -> relax.Expr:
    if not shape_of(x):
        return emit.reshape(x, emit.shape)
    axis = axis_of(dimension, len(shape_of(x)))

    def source(*place: Any) -> Sequence[Any]:
        *outer, within = place
        return [*outer[:axis], outer[axis] * step + within, *outer[axis + 1 :]]

    return _read(emit, x, source, "unfold")


def _read(emit: Emit, x: relax.Expr, source: Callable[..., Sequence[Any]], name: str) -> relax.Expr:
    """The result, each of whose elements is that of ``x`` at a place that follows from its own."""
    if 0 in emit.shape:
        return emit.full(0)

    def loops(data: te.Tensor) -> te.Tensor:
        return te.compute(emit.shape, lambda *place: data(*source(*place)))

    return emit.te(loops, x, name=name)


def _diagonal(emit: Emit, x: relax.Expr, offset: int, dim1: int, dim2: int) -> relax.Expr:
    rank = len(shape_of(x))
    row, column = axis_of(dim1, rank), axis_of(dim2, rank)
    rest = [axis for axis in range(rank) if axis not in (row, column)]

    def source(*place: Any) -> Sequence[Any]:
        index = dict(zip(rest, place[:-1], strict=True))
        index[row] = place[-1] + max(-offset, 0)
        index[column] = place[-1] + max(offset, 0)
        return [index[axis] for axis in range(rank)]

    return _read(emit, x, source, "diagonal")


def _as_strided(
    emit: Emit,
    x: relax.Expr,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None,
) -> relax.Expr:
    example = emit.examples["x"]
    if not example.is_contiguous() or example.storage_offset():
        raise Refusal("strides of a tensor that is itself a view")
    first = storage_offset or 0
    reach = first + sum((e - 1) * s for e, s in zip(size, stride, strict=True))
    count = math.prod(shape_of(x))
    if 0 not in size and reach >= count:
        raise Refusal(f"element {reach} of {count}")

    def source(*place: Any) -> Sequence[Any]:
        return [sum((p * s for p, s in zip(place, stride, strict=True)), _index(first))]

    return _read(emit, emit.reshape(x, (count,)), source, "as_strided")


def _index(value: int) -> Any:
    return tirx.IntImm("int64", value)


def _pad(emit: Emit, x: relax.Expr, pad: Sequence[int], value: float) -> relax.Expr:
    """``pad`` counts from the last dimension on: before, after; below zero it cuts off."""
    rank = len(shape_of(x))
    widths = [(0, 0)] * rank
    for i, width in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        widths[rank - 1 - i] = width
    for axis, (before, after) in enumerate(widths):
        end = shape_of(x)[axis] + min(after, 0)
        begin = min(max(-before, 0), end)
        x = part(emit, x, axis, begin, end)
    added = [max(width, 0) for pair in widths for width in pair]
    if not any(added):
        return x
    if 0 in shape_of(x):
        return emit.full(value)
    dtype = dtype_of(x)
    if dtype == torch.bool:
        return emit.cast(_padded(emit, emit.cast(x, torch.int8), added, bool(value)), dtype)
    return _padded(emit, x, added, constant(value, dtype).value.numpy().item())


def _padded(emit: Emit, x: relax.Expr, added: Sequence[int], value: float) -> relax.Expr:
    if float(value) != value:
        raise Refusal(f"padding with {value}")
    return emit(relax.op.nn.pad(x, list(added), "constant", float(value)))


def _slice_scatter(
    emit: Emit,
    x: relax.Expr,
    src: relax.Expr,
    dim: int,
    start: int | None,
    end: int | None,
    step: int,
) -> relax.Expr:
    axis = axis_of(dim, len(shape_of(x)))
    places = range(*slice(start, end, step).indices(shape_of(x)[axis]))
    if not places or 0 in shape_of(x):
        return x
    src = emit(_broadcast(emit.cast(src, emit.dtype), shape_of(src)))

    def slice_scatter(old: te.Tensor, new: te.Tensor) -> te.Tensor:
        def element(*place: Any) -> Any:
            distance = place[axis] - places.start
            inside = [distance >= 0, place[axis] <= places[-1]]
            if step > 1:
                inside.append(tirx.floormod(distance, _index(step)) == 0)
            index = [*place]
            index[axis] = tirx.floordiv(distance, _index(step))
            return tirx.if_then_else(tirx.all(*inside), new(*index), old(*place))

        return te.compute(emit.shape, element)

    return emit.te(slice_scatter, x, src)


def _select_scatter(emit: Emit, x: relax.Expr, src: relax.Expr, dim: int, index: int) -> relax.Expr:
    axis = axis_of(dim, len(shape_of(x)))
    place = index % shape_of(x)[axis]
    return _slice_scatter(emit, x, emit(relax.op.expand_dims(src, axis)), axis, place, place + 1, 1)


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    **overloads(
        lambda emit, x, size: emit.reshape(x, emit.shape),
        *(_ATEN.view.default, _ATEN._unsafe_view.default),
    ),
    _ATEN.permute.default: _permute,
    _ATEN.unsqueeze.default: lambda emit, x, dim: relax.op.expand_dims(
        x, axis_of(dim, len(emit.shape))
    ),
    _ATEN.squeeze.default: lambda emit, x: _without(x, range(len(shape_of(x)))),
    **overloads(_squeeze_dims, _ATEN.squeeze.dim, _ATEN.squeeze.dims),
    _ATEN.expand.default: lambda emit, x, size, implicit: _broadcast(x, emit.shape),
    _ATEN.copy.default: lambda emit, x, src: _broadcast(emit.cast(src, emit.dtype), emit.shape),
    _ATEN.select.int: _select,
    _ATEN.slice.Tensor: _slice,
    _ATEN.split_with_sizes.default: _split,
    _ATEN.cat.default: _cat,
    _ATEN.flip.default: _flip,
    _ATEN.repeat.default: _repeat,
    _ATEN.unfold.default: _unfold,
    _ATEN.diagonal.default: _diagonal,
    _ATEN.as_strided.default: _as_strided,
    _ATEN.constant_pad_nd.default: _pad,
    _ATEN.slice_scatter.default: _slice_scatter,
    _ATEN.select_scatter.default: _select_scatter,
}
