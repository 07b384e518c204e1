"""Operators of Relay on parts of tensors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from tvm_tile.frontend.ops.values import counted_axis, dtype_of, shape_of
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.values import counted_axes

Bounds = Sequence[int | None]


def _slice_parts(
    shape: Sequence[int],
    bounds: Sequence[Bounds],
    axes: Sequence[int] | None = None,
    *,
    ends_are_sizes: bool = False,
) -> list[range]:
    """The places of a slice along each axis.

    What is outside is clamped. Bounds and strides that are missing at the end, or ``None``, are the
    whole axis by steps of one.

    Args:
        shape: the operand's.
        bounds: the first places, of which negative ones count from the end; the places behind the
            last ones, or how many there are; the steps.
        axes: those that the bounds are for; ``None`` are the first ones.
        ends_are_sizes: the second bounds are numbers of elements, negative ones all that there are;
            strides do not count.

    Raises:
        ValueError: there are more bounds than axes, or a stride is 0.
    """
    count = max(map(len, bounds[:2]))
    places = counted_axes(tuple(axes), len(shape)) if axes else range(count)
    if count > len(places) or count > len(shape):
        raise ValueError(f"{count} bounds of a tensor of {list(shape)}")
    parts = [range(extent) for extent in shape]
    each = zip(places, itertools.zip_longest(*bounds), strict=False)
    for axis, (begin, end, stride) in each:
        if ends_are_sizes:
            begin = (begin or 0) + (shape[axis] if (begin or 0) < 0 else 0)
            end = shape[axis] if end is None or end < 0 else begin + end
        elif stride == 0:
            raise ValueError("a stride of 0")
        stride = 1 if ends_are_sizes else stride
        parts[axis] = range(*slice(begin, end, stride).indices(shape[axis]))
    return parts


def _strided_slice(call: OperatorCall, x: Value, *given: Value) -> Value:
    """A slice, whose bounds are attributes or known arguments."""
    attributes = call.attributes
    bounds = [attributes.get(name) or () for name in ("begin", "end", "strides")]
    mode = attributes.get("slice_mode") or "end"
    if mode not in ("end", "size"):
        raise ValueError(f"slice mode {mode!r}")
    own, axes = _known_bounds(call, 1) if given else bounds, attributes.get("axes")
    return call.sliced(x, _slice_parts(shape_of(x), own, axes, ends_are_sizes=mode == "size"))


def _known_bounds(call: OperatorCall, first: int) -> list[Bounds]:
    """Begins, ends and strides of a slice, three arguments.

    Raises:
        NotImplementedError: a bound is known only at run time.
    """
    arrays = [call.parameter(first + i, "a bound of a slice") for i in range(3)]
    return [array.reshape(-1).tolist() for array in arrays]


def _slice_like(call: OperatorCall, x: Value, like: Value, *, axes: Sequence[int]) -> Value:
    """The first elements along some axes, as many as another tensor has."""
    shape, wanted = shape_of(x), shape_of(like)
    parts = [range(extent) for extent in shape]
    for number in axes or range(min(len(shape), len(wanted))):
        axis, other = (counted_axis(number, len(extents)) for extents in (shape, wanted))
        if wanted[other] > shape[axis]:
            raise ValueError(f"{wanted[other]} elements of {shape[axis]}")
        parts[axis] = range(wanted[other])
    return call.sliced(x, parts)


def _strided_set(call: OperatorCall, x: Value, new: Value, *_: Value) -> Value:
    """A tensor, a slice of which is replaced."""
    shape = shape_of(x)
    parts = _slice_parts(shape, _known_bounds(call, 2))
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


def _sliding_window(
    call: OperatorCall, x: Value, *, axis: int, window_shape: Sequence[int], strides: Sequence[int]
) -> Value:
    """All windows of a shape over the last axes: their places, then what is in them."""
    shape, window = shape_of(x), list(window_shape)
    axis = counted_axis(axis, len(shape))
    is_whole = len(window) == len(strides) == len(shape) - axis and min(strides, default=1) > 0
    each = zip(shape[axis:], window, strides, strict=False)
    counts = [(extent - size) // stride + 1 for extent, size, stride in each] if is_whole else [0]
    if min(counts) < 1:
        raise ValueError(f"windows of {window} of a tensor of {list(shape)}")
    whole = (*shape[:axis], *counts, *window)

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
