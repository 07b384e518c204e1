"""Operators of Relay that read elements at places that are data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.relax import op

from tvm_tile.frontend.ops.values import along, constant, counted_axis, dtype_of, shape_of
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.shapes import stacked
from tvm_tile.frontend.relay.values import is_float, is_integer, require_numbers, require_one_type
from tvm_tile.loops.gather import broadcast_element, clamped, counted_from_end

# What indices outside of an extent mean; "fast" leaves it open.
_MODES = {"clip": "clip", "fast": "clip", "wrap": "wrap"}


def numbers(call: OperatorCall, indices: Value) -> Value:
    """Indices as int64."""
    require_numbers(indices)
    return call.cast(indices, "int64")


def _take(call: OperatorCall, x: Value, indices: Value, *, mode: str, axis: int | None) -> Value:
    if mode not in _MODES:
        raise ValueError(f"mode {mode!r}")
    if axis is None:
        x, axis = call.reshaped(x, (math.prod(shape_of(x)),)), 0
    shape, places = shape_of(x), shape_of(indices)
    axis, batches = counted_axis(axis, len(shape)), call.attributes.get("batch_dims") or 0
    batches += len(places) if batches < 0 else 0
    if not 0 <= batches <= min(axis, len(places)) or shape[:batches] != places[:batches]:
        raise ValueError(f"{batches} batch axes of {list(shape)} and {list(places)}")
    whole = (*shape[:axis], *places[batches:], *shape[axis + 1 :])
    if 0 in whole:
        return call.filled(whole, 0, dtype_of(x))
    if not shape[axis]:
        raise ValueError("an element of none")
    indices = numbers(call, indices)
    if batches:
        return _taken_of_batches(call, x, indices, axis, batches, _MODES[mode])
    found = op.take(x, call.reshaped(indices, (math.prod(places),)), axis, _MODES[mode])
    return call.reshaped(call.emit(found), whole)


def _taken_of_batches(
    call: OperatorCall, x: Value, indices: Value, axis: int, batches: int, mode: str
) -> Value:
    """Elements of each batch at places of its own."""
    shape, places = shape_of(x), shape_of(indices)
    rest = len(places) - batches
    last = tirx.const(shape[axis] - 1, "int64")

    def loops(data: te.Tensor, table: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            own = table(*at[:batches], *at[axis : axis + rest])
            if mode == "wrap":
                place = tirx.floormod(own, last + 1)
            else:
                place = tirx.max(tirx.min(own, last), tirx.const(0, "int64"))
            return data(*at[:axis], place, *at[axis + rest :])

        whole = (*shape[:axis], *places[batches:], *shape[axis + 1 :])
        return te.compute(whole, element, name="take")

    return call.compute(loops, x, indices, name="take")


def _gather(call: OperatorCall, x: Value, indices: Value, *, axis: int) -> Value:
    """Along an axis the element that an index names, at each index's other places."""
    axis = counted_axis(axis, len(shape_of(x)))
    require_within(shape_of(x), shape_of(indices), axis)
    return call.emit(op.gather_elements(x, numbers(call, indices), axis))


def require_within(shape: tuple[int, ...], places: tuple[int, ...], axis: int) -> None:
    """Refuse indices that have more lines than there are.

    Raises:
        ValueError: there are more, other dimensions, or no elements along the axis.
    """
    others = [i for i in range(len(shape)) if i != axis]
    if len(places) != len(shape) or any(places[i] > shape[i] for i in others):
        raise ValueError(f"indices of {list(places)} for a tensor of {list(shape)}")
    if math.prod(places) and not shape[axis]:
        raise ValueError("an element of none")


def index_last(call: OperatorCall, indices: Value) -> Value:
    """Indices of several dimensions, which run along the first axis, along the last one."""
    rank = len(shape_of(indices))
    if not rank:
        raise ValueError("indices without dimensions")
    return call.permuted(numbers(call, indices), [*range(1, rank), 0])


def _gather_nd(
    call: OperatorCall, x: Value, indices: Value, *, batch_dims: int | None = 0
) -> Value:
    shape, (count, *places), batches = shape_of(x), shape_of(indices), batch_dims or 0
    if batches > len(places) or batches + count > len(shape):
        raise ValueError(f"indices of {[count, *places]} for a tensor of {list(shape)}")
    if shape[:batches] != tuple(places[:batches]):
        raise ValueError(f"{batches} batch axes of {list(shape)} and {places}")
    return call.emit(op.gather_nd(x, index_last(call, indices), batches))


def _adv_index(call: OperatorCall, values: Sequence[Value]) -> Value:
    """Elements at places of the first axes, which are broadcast to one shape."""
    x, *indices = values
    shape = shape_of(x)
    if not 0 < len(indices) <= len(shape):
        raise ValueError(f"{len(indices)} indices of a tensor of {list(shape)}")
    places = np.broadcast_shapes(*(shape_of(index) for index in indices))
    whole = (*places, *shape[len(indices) :])
    if 0 in shape[: len(indices)] and 0 not in whole:
        raise ValueError("an element of none")

    def loops(data: te.Tensor, *tables: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            own = [broadcast_element(table, at[: len(places)]) for table in tables]
            found = [
                clamped(counted_from_end(place, extent), extent)
                for place, extent in zip(own, shape, strict=False)
            ]
            return data(*found, *at[len(places) :])

        return te.compute(whole, element, name="adv_index")

    tables = [numbers(call, index) for index in indices]
    return call.compute(loops, x, *tables, name="adv_index")


def _one_hot(call: OperatorCall, indices: Value, *values: Value, depth: int, axis: int) -> Value:
    """One value where an index is, another one elsewhere; indices outside are nowhere."""
    shape, (on, off) = shape_of(indices), values
    dtype = str(call.attributes.get("dtype") or dtype_of(on))
    axis = counted_axis(axis, len(shape) + 1)
    wide = call.reshaped(numbers(call, indices), (*shape[:axis], 1, *shape[axis:]))
    steps = along(constant(np.arange(depth), "int64"), axis, len(shape) + 1)
    pair = (call.cast(call.reshaped(value, ()), dtype) for value in (on, off))
    return call.emit(op.where(op.equal(wide, steps), *pair))


def _sequence_mask(
    call: OperatorCall, x: Value, lengths: Value, *, axis: int, mask_value: float
) -> Value:
    """Keep as many steps of each sample as it has; the others become one value."""
    shape, dtype = shape_of(x), dtype_of(lengths)
    if axis not in (0, 1) or len(shape) < 2 or shape_of(lengths) != (shape[1 - axis],):
        raise ValueError(f"steps along axis {axis} of a tensor of {list(shape)}")
    wide = dtype if is_float(dtype) else "int64"
    steps = along(constant(np.arange(shape[axis]), wide), axis, len(shape))
    own = along(call.cast(lengths, wide), 1 - axis, len(shape))
    return call.emit(op.where(op.less(steps, own), x, constant(mask_value, dtype_of(x))))


def _unravel_index(call: OperatorCall, indices: Value, _: Value) -> Value:
    """The numbers of elements as their places along each axis of a shape."""
    extents = call.parameter(1, "a shape").reshape(-1).tolist()
    dtype = dtype_of(indices)
    if not extents or not is_integer(dtype):
        raise NotImplementedError(f"indices of {dtype} in {extents}")
    left, found = indices, []
    for extent in reversed(extents):
        size = constant(extent, dtype)
        found.append(call.emit(op.floor_mod(left, size)))
        left = call.emit(op.floor_divide(left, size))
    return stacked(call, found[::-1], 0)


def _search_sorted(
    call: OperatorCall, row: Value, values: Value, *, dtype: str, right: bool
) -> Value:
    """How many elements of a sorted row come before each value."""
    rows, shape = shape_of(row), shape_of(values)
    if not rows or (len(rows) > 1 and rows[:-1] != shape[:-1]):
        raise ValueError(f"values of {list(shape)} in rows of {list(rows)}")
    require_one_type(row, values)
    require_numbers(row)

    def loops(row: te.Tensor, values: te.Tensor) -> te.Tensor:
        place = te.reduce_axis((0, rows[-1]), "k")

        def element(*at: Any) -> Any:
            other = row(*(at[:-1] if len(rows) > 1 else ()), place.var)
            own = values(*at)
            is_before = other <= own if right else other < own
            return te.sum(tirx.Cast(dtype, is_before), axis=place)

        return te.compute(shape, element, name="search_sorted")

    if not rows[-1]:
        return call.filled(shape, 0, dtype)
    return call.compute(loops, row, values, name="search_sorted")


CONVERTERS: dict[str, Converter] = {
    "take": _take,
    "gather": _gather,
    "gather_nd": _gather_nd,
    "adv_index": _adv_index,
    "one_hot": _one_hot,
    "sequence_mask": _sequence_mask,
    "unravel_index": _unravel_index,
    "searchsorted": _search_sorted,
}
