"""Operators of Relay that join, part, repeat and create tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op

from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.values import (
    cast,
    constant,
    counted_axis,
    dtype_of,
    filled,
    reshaped,
    shape_of,
    sliced,
)


def split_ends(extent: int, sections: int | Sequence[int]) -> tuple[int, ...]:
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


def _split(call: OperatorCall) -> Value:
    (x,) = call.arguments
    shape = shape_of(x)
    axis = counted_axis(int(call.attributes["axis"]), len(shape))
    ends = split_ends(shape[axis], call.attributes["indices_or_sections"])
    if len(ends) == 1:
        return (x,)
    begins = (0, *ends[:-1])
    if math.prod(shape) and all(b < e for b, e in zip(begins, ends, strict=True)):
        parts = call.emit(op.split(x, list(ends[:-1]), axis))
        return tuple(call.emit(relax.TupleGetItem(parts, i)) for i in range(len(ends)))
    whole = [range(extent) for extent in shape]
    return tuple(
        sliced(call, x, [*whole[:axis], range(begin, end), *whole[axis + 1 :]])
        for begin, end in zip(begins, ends, strict=True)
    )


def _concatenate(call: OperatorCall) -> Value:
    (values,) = call.arguments
    return joined(call, values, counted_axis(int(call.attributes["axis"]), _rank(values)))


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
    if len(some) > 1:
        return call.emit(op.concat(some, axis))
    if some:
        return some[0]
    first, count = shapes[0], sum(shape[axis] for shape in shapes)
    return filled(call, (*first[:axis], count, *first[axis + 1 :]), 0, dtype_of(values[0]))


def _stack(call: OperatorCall) -> Value:
    (values,) = call.arguments
    axis = counted_axis(int(call.attributes["axis"]), _rank(values) + 1)
    return stacked(call, values, axis)


def stacked(call: OperatorCall, values: Sequence[Value], axis: int) -> Value:
    """Tensors of one shape as one with one more axis."""
    shape = shape_of(values[0])
    wide = [reshaped(call, value, (*shape[:axis], 1, *shape[axis:])) for value in values]
    return joined(call, wide, axis)


def known_shape(call: OperatorCall, index: int, name: str = "shape") -> tuple[int, ...]:
    """A shape that is an attribute, or an argument that is known."""
    if len(call.arguments) > index:
        return tuple(call.parameter(index, "a shape").reshape(-1).tolist())
    return tuple(int(extent) for extent in call.attributes[name])


def broadcast(call: OperatorCall, x: Value, shape: Sequence[int]) -> Value:
    """A tensor repeated along the axes where its extent is 1."""
    if shape_of(x) == tuple(shape):
        return x
    if np.broadcast_shapes(shape_of(x), tuple(shape)) != tuple(shape):
        raise ValueError(f"a tensor of {list(shape_of(x))} as one of {list(shape)}")
    if 0 in shape:
        return filled(call, shape, 0, dtype_of(x))
    return call.emit(op.broadcast_to(x, tuple(shape)))


def _broadcast_to(call: OperatorCall) -> Value:
    return broadcast(call, call.arguments[0], known_shape(call, 1))


def _broadcast_to_like(call: OperatorCall) -> Value:
    return broadcast(call, call.arguments[0], shape_of(call.arguments[1]))


def _collapse_sum(call: OperatorCall) -> Value:
    """Sums over all elements that a broadcast from a smaller shape would make of one."""
    x, like = call.arguments
    shape = shape_of(x)
    wanted = shape_of(like) if call.name == "collapse_sum_like" else known_shape(call, 1)
    added = len(shape) - len(wanted)
    if added < 0 or np.broadcast_shapes(shape, wanted) != shape:
        raise ValueError(f"a tensor of {list(shape)} summed to {list(wanted)}")
    dtype = dtype_of(x)
    if dtype == "bool":
        raise NotImplementedError("elements of bool")
    wide = [1] * added + list(wanted)
    axes = [i for i, (own, few) in enumerate(zip(shape, wide, strict=True)) if own != few]
    if axes:
        x = call.emit(op.sum(cast(call, x, "float32") if dtype == "float16" else x, axes))
    return reshaped(call, cast(call, x, dtype), wanted)


def _tile(call: OperatorCall) -> Value:
    (x,) = call.arguments
    counts = [int(count) for count in call.attributes["reps"]]
    rank = max(len(counts), len(shape_of(x)))
    shape = (*(1,) * (rank - len(shape_of(x))), *shape_of(x))
    counts = [1] * (rank - len(counts)) + counts
    x = reshaped(call, x, shape)
    if all(count == 1 for count in counts):
        return x
    whole = [extent * count for extent, count in zip(shape, counts, strict=True)]
    if 0 in whole:
        return filled(call, whole, 0, dtype_of(x))
    return call.emit(op.tile(x, counts))


def _repeat(call: OperatorCall) -> Value:
    (x,) = call.arguments
    count, axis = int(call.attributes["repeats"]), call.attributes["axis"]
    if axis is None or count < 1:
        raise NotImplementedError(f"repeats {count} along axis {axis}")
    place = counted_axis(int(axis), len(shape_of(x)))
    if not math.prod(shape_of(x)):
        shape = shape_of(x)
        whole = (*shape[:place], shape[place] * count, *shape[place + 1 :])
        return filled(call, whole, 0, dtype_of(x))
    return x if count == 1 else call.emit(op.repeat(x, count, place))


def _reverse(call: OperatorCall) -> Value:
    (x,) = call.arguments
    axis = counted_axis(int(call.attributes["axis"]), len(shape_of(x)))
    return call.emit(op.flip(x, axis)) if math.prod(shape_of(x)) else x


def _reverse_sequence(call: OperatorCall) -> Value:
    """Turn round the first steps of each sample, as many as its length; the others stay."""
    x, lengths = call.arguments
    shape = shape_of(x)
    time, batch = (
        counted_axis(int(call.attributes[f"{name}_axis"]), len(shape)) for name in ("seq", "batch")
    )
    if time == batch or shape_of(lengths) != (shape[batch],):
        raise ValueError(f"lengths of {list(shape_of(lengths))} for {list(shape)}")
    if 0 in shape:
        return x

    def reversed_part(x: te.Tensor, lengths: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            step, length = tirx.Cast("int64", at[time]), lengths(at[batch])
            length = tirx.min(length, tirx.const(shape[time], "int64"))
            source = tirx.if_then_else(step < length, length - 1 - step, step)
            return x(*at[:time], source, *at[time + 1 :])

        return te.compute(x.shape, element, name="reverse_sequence")

    return call.compute(reversed_part, x, cast(call, lengths, "int64"), name="reverse_sequence")


def _meshgrid(call: OperatorCall) -> Value:
    """Each vector along an axis of its own; ``xy`` has the first two axes exchanged."""
    (values,) = call.arguments
    indexing = call.attributes["indexing"]
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
        wide = reshaped(call, value, [size if i == axis else 1 for i in range(count)])
        return broadcast(call, wide, shape)

    return tuple(spread(*each) for each in zip(values, sizes, axes, strict=True))


def _fifo_buffer(call: OperatorCall) -> Value:
    """The last elements of what was there, and of what comes."""
    new, buffer = call.arguments
    axis = counted_axis(int(call.attributes["axis"]), len(shape_of(buffer)))
    whole = joined(call, (buffer, new), axis)
    shape = shape_of(whole)
    kept = [range(extent) for extent in shape]
    kept[axis] = range(shape[axis] - shape_of(buffer)[axis], shape[axis])
    return sliced(call, whole, kept)


def _shape_of(call: OperatorCall) -> Value:
    return _known(call, np.array(shape_of(call.arguments[0])))


def _size(call: OperatorCall) -> Value:
    return _known(call, np.array(math.prod(shape_of(call.arguments[0]))))


def _known(call: OperatorCall, value: np.ndarray) -> Value:
    dtype = str(call.attributes.get("dtype") or "int32")
    if not value.size:  # TVM cannot read back a constant without elements.
        return filled(call, value.shape, 0, dtype)
    return constant(value.astype(dtype), dtype)


CONVERTERS: dict[str, Converter] = {
    "split": _split,
    "concatenate": _concatenate,
    "stack": _stack,
    **dict.fromkeys(("broadcast_to", "dyn.broadcast_to"), _broadcast_to),
    "broadcast_to_like": _broadcast_to_like,
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
