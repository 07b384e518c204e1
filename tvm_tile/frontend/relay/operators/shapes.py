"""Operators of Relay that join, part, repeat and create tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op

from tvm_tile.frontend.ops.values import constant, counted_axis, dtype_of, shape_of
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.values import require_numbers, wide_type


def _split_ends(extent: int, sections: int | Sequence[int]) -> tuple[int, ...]:
    """Where the parts of a split end, the last one at the extent.

    Raises:
        ValueError: parts of one extent are asked for that do not fill the whole.
    """
    if isinstance(sections, int):
        if sections < 1 or extent % sections:
            raise ValueError(f"{sections} parts of {extent}")
        size = extent // sections
        return tuple(size * (place + 1) for place in range(sections))
    ends = (*(int(end) for end in sections), extent)
    if any(begin > end for begin, end in zip((0, *ends), ends, strict=False)):
        raise ValueError(f"parts of {extent} that end at {list(ends)}")
    return ends


def _split(
    call: OperatorCall, x: Value, *, axis: int, indices_or_sections: int | Sequence[int]
) -> Value:
    shape = shape_of(x)
    axis = counted_axis(axis, len(shape))
    ends = _split_ends(shape[axis], indices_or_sections)
    begins = (0, *ends[:-1])
    is_none_empty = all(begin < end for begin, end in zip(begins, ends, strict=True))
    if len(ends) > 1 and is_none_empty and 0 not in shape:
        parts = call.emit(op.split(x, list(ends[:-1]), axis))
        return tuple(call.emit(relax.TupleGetItem(parts, i)) for i in range(len(ends)))
    bounds = zip(begins, ends, strict=True)
    return tuple(call.part(x, axis, range(begin, end)) for begin, end in bounds)


def _concatenate(call: OperatorCall, values: Sequence[Value], *, axis: int) -> Value:
    return joined(call, values, counted_axis(axis, _rank(values)))


def _rank(values: Sequence[Value]) -> int:
    ranks = {len(shape_of(value)) for value in values}
    if len(ranks) != 1:
        raise ValueError("tensors of several ranks, or none")
    return ranks.pop()


def joined(call: OperatorCall, values: Sequence[Value], axis: int) -> Value:
    """Tensors one behind the other along an axis.

    Raises:
        ValueError: they differ in other extents or in their types.
    """
    shapes = [shape_of(value) for value in values]
    if len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) != 1:
        raise ValueError(f"tensors of {[list(shape) for shape in shapes]} along axis {axis}")
    if len({dtype_of(value) for value in values}) != 1:
        raise ValueError("tensors of several element types")
    some = [value for value in values if math.prod(shape_of(value))]
    return some[0] if len(some) == 1 else call.emit(op.concat(some or list(values), axis))


def _stack(call: OperatorCall, values: Sequence[Value], *, axis: int) -> Value:
    return stacked(call, values, counted_axis(axis, _rank(values) + 1))


def stacked(call: OperatorCall, values: Sequence[Value], axis: int) -> Value:
    """Tensors of one shape as one with one more axis."""
    shape = shape_of(values[0])
    wide = [call.reshaped(value, (*shape[:axis], 1, *shape[axis:])) for value in values]
    return joined(call, wide, axis)


def known_shape(call: OperatorCall, index: int) -> tuple[int, ...]:
    """A shape that is an argument that is known, or else the attribute of this name."""
    if len(call.arguments) > index:
        return tuple(call.parameter(index, "a shape").reshape(-1).tolist())
    return tuple(int(extent) for extent in call.attributes["shape"])


def broadcast(call: OperatorCall, x: Value, shape: Sequence[int]) -> Value:
    """A tensor repeated along the axes where its extent is 1."""
    if shape_of(x) == tuple(shape):
        return x
    if np.broadcast_shapes(shape_of(x), tuple(shape)) != tuple(shape):
        raise ValueError(f"a tensor of {list(shape_of(x))} as one of {list(shape)}")
    return call.emit(op.broadcast_to(x, tuple(shape)))


def _broadcast_to(call: OperatorCall, x: Value, *_: Value) -> Value:
    return broadcast(call, x, known_shape(call, 1))


def _collapse_sum(call: OperatorCall, x: Value, like: Value = None) -> Value:
    """Sums over all elements that a broadcast from a smaller shape would make of one."""
    shape, dtype = shape_of(x), dtype_of(x)
    wanted = shape_of(like) if call.name == "collapse_sum_like" else known_shape(call, 1)
    added = len(shape) - len(wanted)
    if added < 0 or np.broadcast_shapes(shape, wanted) != shape:
        raise ValueError(f"a tensor of {list(shape)} summed to {list(wanted)}")
    require_numbers(x)
    wide = [1] * added + list(wanted)
    axes = [i for i, (own, few) in enumerate(zip(shape, wide, strict=True)) if own != few]
    if axes:
        x = call.emit(op.sum(call.cast(x, wide_type(dtype)), axes))
    return call.reshaped(call.cast(x, dtype), wanted)


def _tile(call: OperatorCall, x: Value, *, reps: Sequence[int]) -> Value:
    rank = max(len(reps), len(shape_of(x)))
    counts = [1] * (rank - len(reps)) + [int(count) for count in reps]
    x = call.reshaped(x, (*(1,) * (rank - len(shape_of(x))), *shape_of(x)))
    return x if all(count == 1 for count in counts) else call.emit(op.tile(x, counts))


def _repeat(call: OperatorCall, x: Value, *, repeats: int, axis: int | None) -> Value:
    if axis is None or repeats < 1:
        raise NotImplementedError(f"repeats {repeats} along axis {axis}")
    place = counted_axis(axis, len(shape_of(x)))
    return x if repeats == 1 else call.emit(op.repeat(x, repeats, place))


def _reverse(call: OperatorCall, x: Value, *, axis: int) -> Value:
    return call.emit(op.flip(x, counted_axis(axis, len(shape_of(x)))))


def _reverse_sequence(
    call: OperatorCall, x: Value, lengths: Value, *, seq_axis: int, batch_axis: int
) -> Value:
    """Turn round the first steps of each sample, as many as its length; the others stay."""
    shape = shape_of(x)
    time, batch = (counted_axis(axis, len(shape)) for axis in (seq_axis, batch_axis))
    if time == batch or shape_of(lengths) != (shape[batch],):
        raise ValueError(f"lengths of {list(shape_of(lengths))} for {list(shape)}")

    def reversed_part(x: te.Tensor, lengths: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            step, length = tirx.Cast("int64", at[time]), lengths(at[batch])
            length = tirx.min(length, tirx.const(shape[time], "int64"))
            source = tirx.if_then_else(step < length, length - 1 - step, step)
            return x(*at[:time], source, *at[time + 1 :])

        return te.compute(x.shape, element, name="reverse_sequence")

    return call.compute(reversed_part, x, call.cast(lengths, "int64"), name="reverse_sequence")


def _meshgrid(call: OperatorCall, values: Sequence[Value], *, indexing: str) -> Value:
    """Each vector along an axis of its own; ``xy`` has the first two axes exchanged."""
    if indexing not in ("ij", "xy"):
        raise ValueError(f"indexing {indexing!r}")
    count = len(values)
    axes = list(range(count))
    if indexing == "xy" and count > 1:
        axes[:2] = [1, 0]
    sizes = [math.prod(shape_of(value)) for value in values]
    if any(len(shape_of(value)) > 1 for value in values):
        raise ValueError("tensors of more than one dimension")
    shape = [sizes[axes.index(axis)] for axis in range(count)]

    def spread(value: Value, size: int, axis: int) -> Value:
        wide = call.reshaped(value, [size if i == axis else 1 for i in range(count)])
        return broadcast(call, wide, shape)

    return tuple(map(spread, values, sizes, axes))


def _fifo_buffer(call: OperatorCall, new: Value, buffer: Value, *, axis: int) -> Value:
    """The last elements of what was there, and of what comes."""
    axis = counted_axis(axis, len(shape_of(buffer)))
    whole = joined(call, (buffer, new), axis)
    length = shape_of(whole)[axis]
    return call.part(whole, axis, range(length - shape_of(buffer)[axis], length))


def _shape_of(call: OperatorCall, x: Value, *, dtype: str = "") -> Value:
    shape, dtype = np.array(shape_of(x)), dtype or "int32"
    # TVM cannot read back a constant without elements.
    return constant(shape, dtype) if shape.size else call.filled((0,), 0, dtype)


def _size(call: OperatorCall, x: Value, *, dtype: str = "") -> Value:
    return constant(math.prod(shape_of(x)), dtype or "int32")


CONVERTERS: dict[str, Converter] = {
    "split": _split,
    "concatenate": _concatenate,
    "stack": _stack,
    **dict.fromkeys(("broadcast_to", "dyn.broadcast_to"), _broadcast_to),
    "broadcast_to_like": lambda call, x, like: broadcast(call, x, shape_of(like)),
    **dict.fromkeys(("collapse_sum_like", "collapse_sum_to"), _collapse_sum),
    "tile": _tile,
    "repeat": _repeat,
    "reverse": _reverse,
    "reverse_sequence": _reverse_sequence,
    "meshgrid": _meshgrid,
    "nn.fifo_buffer": _fifo_buffer,
    **dict.fromkeys(("shape_of", "vm.shape_of"), _shape_of),
    "ndarray_size": _size,
}
