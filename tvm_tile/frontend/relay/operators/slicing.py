"""Operators of Relay on parts of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.values import (
    counted_axes,
    counted_axis,
    dtype_of,
    filled,
    shape_of,
    sliced,
)

Bounds = Sequence[int | None]


def slice_parts(
    shape: Sequence[int],
    begins: Bounds,
    ends: Bounds,
    strides: Bounds,
    axes: Sequence[int] | None,
    *,
    ends_are_sizes: bool,
) -> tuple[range, ...]:
    """The places of a slice along each axis.

    What is outside is clamped. Bounds and strides that are missing at the end, or ``None``, are the
    whole axis by steps of one.

    Args:
        shape: the operand's.
        begins: the first places; negative ones count from the end.
        ends: the places behind the last ones, or how many there are.
        strides: the steps.
        axes: those that the others are for; ``None`` are the first ones.
        ends_are_sizes: ``ends`` are numbers of elements, negative ones all that there are; strides
            do not count.

    Raises:
        ValueError: there are more bounds than axes, or a stride is 0.
    """
    count = max(len(begins), len(ends))
    places = range(count) if axes is None else counted_axes(tuple(axes), len(shape))
    if count > len(places) or count > len(shape):
        raise ValueError(f"{count} bounds of a tensor of {list(shape)}")
    parts = [range(extent) for extent in shape]
    for number, axis in enumerate(places):
        begin, end, stride = (_bound(bounds, number) for bounds in (begins, ends, strides))
        if ends_are_sizes:
            begin, end = _of_size(begin, end, shape[axis])
            stride = 1
        if stride == 0:
            raise ValueError("a stride of 0")
        parts[axis] = range(*slice(begin, end, stride).indices(shape[axis]))
    return tuple(parts)


def _bound(bounds: Bounds, number: int) -> int | None:
    bound = bounds[number] if number < len(bounds) else None
    return None if bound is None else int(bound)


def _of_size(begin: int | None, size: int | None, extent: int) -> tuple[int, int]:
    """The bounds of a part that has a number of elements; all that are left if negative."""
    first = begin or 0
    first = first + extent if first < 0 else first
    return first, extent if size is None or size < 0 else first + size


def strided_parts(call: OperatorCall) -> tuple[range, ...]:
    """The places that ``strided_slice`` takes; bounds are attributes or known arguments.

    Raises:
        NotImplementedError: a bound is known only at run time.
    """
    shape, attributes = shape_of(call.arguments[0]), call.attributes
    if len(call.arguments) > 1:
        begins, ends, strides = (
            call.parameter(i, "a bound of a slice").reshape(-1).tolist() for i in (1, 2, 3)
        )
    else:
        begins, ends, strides = (attributes.get(n) or () for n in ("begin", "end", "strides"))
    mode = attributes.get("slice_mode") or "end"
    if mode not in ("end", "size"):
        raise ValueError(f"slice mode {mode!r}")
    axes = attributes.get("axes")
    return slice_parts(shape, begins, ends, strides, axes or None, ends_are_sizes=mode == "size")


def _strided_slice(call: OperatorCall) -> Value:
    return sliced(call, call.arguments[0], strided_parts(call))


def _slice_like(call: OperatorCall) -> Value:
    """The first elements along some axes, as many as another tensor has."""
    x, like = call.arguments
    shape, wanted = shape_of(x), shape_of(like)
    named = call.attributes["axes"]
    parts = [range(extent) for extent in shape]
    if named:
        pairs = [(counted_axis(a, len(shape)), counted_axis(a, len(wanted))) for a in named]
    else:
        pairs = [(axis, axis) for axis in range(min(len(shape), len(wanted)))]
    for axis, other in pairs:
        if wanted[other] > shape[axis]:
            raise ValueError(f"{wanted[other]} elements of {shape[axis]}")
        parts[axis] = range(wanted[other])
    return sliced(call, x, parts)


def _strided_set(call: OperatorCall) -> Value:
    """A tensor, a slice of which is replaced."""
    x, new = call.arguments[:2]
    begins, ends, strides = (call.parameter(i, "a bound of a slice").tolist() for i in range(2, 5))
    shape = shape_of(x)
    parts = slice_parts(shape, begins, ends, strides, None, ends_are_sizes=False)
    if shape_of(new) != tuple(len(part) for part in parts) or dtype_of(new) != dtype_of(x):
        raise ValueError(f"{list(shape_of(new))} in {[len(part) for part in parts]} places")
    if 0 in shape_of(new):
        return x

    def loops(old: te.Tensor, new: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            hits, own = [], []
            for place, part, extent in zip(at, parts, shape, strict=True):
                if part == range(extent):
                    own.append(place)
                    continue
                rising = part if part.step > 0 else part[::-1]
                distance = place - rising[0]
                number = tirx.floordiv(distance, rising.step)
                own.append(number if part.step > 0 else len(part) - 1 - number)
                hits += [distance >= 0, place <= rising[-1]]
                if rising.step > 1:
                    hits.append(tirx.floormod(distance, rising.step) == 0)
            if not hits:
                return new(*own)
            return tirx.if_then_else(tirx.all(*hits), new(*own), old(*at))

        return te.compute(shape, element, name="strided_set")

    return call.compute(loops, x, new, name="strided_set")


def _sliding_window(call: OperatorCall) -> Value:
    """All windows of a shape over the last axes: their places, then what is in them."""
    (x,) = call.arguments
    shape, attributes = shape_of(x), call.attributes
    axis = counted_axis(int(attributes["axis"]), len(shape))
    window = [int(extent) for extent in attributes["window_shape"]]
    strides = [int(stride) for stride in attributes["strides"]]
    if not len(window) == len(strides) == len(shape) - axis or min(strides, default=1) < 1:
        raise ValueError(f"windows of {window} of a tensor of {list(shape)}")
    counts = [
        (extent - size) // stride + 1
        for extent, size, stride in zip(shape[axis:], window, strides, strict=True)
    ]
    if min(counts) < 1:
        raise ValueError(f"windows of {window} of a tensor of {list(shape)}")
    whole = (*shape[:axis], *counts, *window)
    if 0 in whole:
        return filled(call, whole, 0, dtype_of(x))

    def loops(data: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            first, within = at[axis : axis + len(counts)], at[axis + len(counts) :]
            places = [f * s + w for f, s, w in zip(first, strides, within, strict=True)]
            return data(*at[:axis], *places)

        return te.compute(whole, element, name="sliding_window")

    return call.compute(loops, x, name="sliding_window")


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(("strided_slice", "dyn.strided_slice"), _strided_slice),
    "slice_like": _slice_like,
    "strided_set": _strided_set,
    "sliding_window": _sliding_window,
}
