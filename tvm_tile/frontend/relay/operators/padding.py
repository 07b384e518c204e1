"""Operators of Relay that put elements around or between those of a tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.ir import GenericConst
from tvm.relax import op

from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.values import constant, dtype_of, filled, reshaped, shape_of

Widths = Sequence[tuple[int, int]]
"""Of each axis: how many elements come before, how many behind."""


def padded(call: OperatorCall, x: Value, widths: Sequence[tuple[int, int]], value: float) -> Value:
    """A tensor with so many more elements before and behind along its first axes.

    Raises:
        NotImplementedError: elements would be cut off, or the number is none of their type.
    """
    shape, dtype = shape_of(x), dtype_of(x)
    pads = [*widths, *[(0, 0)] * (len(shape) - len(widths))]
    if any(width < 0 for pair in pads for width in pair):
        raise NotImplementedError("a negative number of elements to pad with")
    if not any(width for pair in pads for width in pair):
        return x
    whole = [low + extent + high for extent, (low, high) in zip(shape, pads, strict=True)]
    if 0 in shape:
        return filled(call, whole, value, dtype)
    if dtype == "bool":
        flags = call.emit(op.astype(x, "int8"))
        result = padded(call, flags, pads, float(bool(value)))
        return call.emit(op.not_equal(result, constant(0, "int8")))
    if float(value) != value and value == value:
        raise NotImplementedError(f"padding with {value}")
    flat = [width for pair in pads for width in pair]
    return call.emit(op.nn.pad(x, flat, "constant", float(value)))


def _widths(call: OperatorCall) -> Widths:
    rank = len(shape_of(call.arguments[0]))
    pairs = [(int(low), int(high)) for low, high in call.attributes["pad_width"]]
    if len(pairs) != rank:
        raise ValueError(f"{len(pairs)} widths for a tensor of {rank} dimensions")
    return pairs


def _pad(call: OperatorCall) -> Value:
    x, mode = call.arguments[0], call.attributes["pad_mode"]
    if mode in ("edge", "reflect"):
        return _mirrored(call, x, _widths(call), _EDGE if mode == "edge" else _REFLECT)
    if mode != "constant":
        raise ValueError(f"mode {mode!r}")
    if len(call.arguments) == 1:  # before TVM 0.8 it was an attribute
        return padded(call, x, _widths(call), call.attributes.get("pad_value", 0.0))
    if not isinstance(call.arguments[1], GenericConst):
        return _padded_with_input(call, x, _widths(call))
    return padded(call, x, _widths(call), call.parameter(1, "a number to pad with").item())


def _padded_with_input(call: OperatorCall, x: Value, widths: Widths) -> Value:
    """A tensor with a number around it that is known at run time only.

    Raises:
        NotImplementedError: elements would be cut off.
    """
    shape, value = shape_of(x), reshaped(call, call.arguments[1], ())
    if any(width < 0 for pair in widths for width in pair):
        raise NotImplementedError("a negative number of elements to pad with")
    whole = [low + extent + high for extent, (low, high) in zip(shape, widths, strict=True)]
    if 0 in shape:
        return call.emit(op.broadcast_to(value, whole))
    inside = np.pad(np.ones(shape, bool), widths)
    own = padded(call, x, widths, 0)
    return call.emit(op.where(constant(inside, "bool"), own, value))


def _mirror_pad(call: OperatorCall) -> Value:
    mode = call.attributes["mode"]
    if mode not in ("SYMMETRIC", "REFLECT"):
        raise ValueError(f"mode {mode!r}")
    mirror = _REFLECT if mode == "REFLECT" else _SYMMETRIC
    return _mirrored(call, call.arguments[0], _widths(call), mirror)


@dataclass(frozen=True, slots=True)
class _Mirror:
    """Which of its own elements are around a tensor.

    Attributes:
        source: from a place, which may be outside, and an extent to the place of the element.
        most: how many elements there may be at one side of an axis of an extent.
    """

    source: Callable[[Any, int], Any]
    most: Callable[[int], float]


def _nearest(place: Any, extent: int) -> Any:
    return tirx.max(tirx.min(place, extent - 1), 0)


def _symmetric(place: Any, extent: int) -> Any:
    below = tirx.if_then_else(place < 0, -1 - place, place)
    return tirx.if_then_else(below >= extent, 2 * extent - 1 - below, below)


def _reflected(place: Any, extent: int) -> Any:
    below = tirx.if_then_else(place < 0, -place, place)
    return tirx.if_then_else(below >= extent, 2 * extent - 2 - below, below)


_EDGE = _Mirror(_nearest, lambda extent: math.inf if extent else 0)
_SYMMETRIC = _Mirror(_symmetric, lambda extent: extent)
_REFLECT = _Mirror(_reflected, lambda extent: max(extent - 1, 0))


def _mirrored(call: OperatorCall, x: Value, widths: Widths, mirror: _Mirror) -> Value:
    """A tensor whose own elements are around it.

    Raises:
        ValueError: it has too few of them.
    """
    shape = shape_of(x)
    for extent, pair in zip(shape, widths, strict=True):
        if not all(0 <= width <= mirror.most(extent) for width in pair):
            raise ValueError(f"{pair} more elements along an axis of {extent}")
    whole = [low + extent + high for extent, (low, high) in zip(shape, widths, strict=True)]
    if 0 in shape:
        return filled(call, whole, 0, dtype_of(x))

    def loops(data: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            return data(
                *(
                    mirror.source(place - low, extent) if low or high else place
                    for place, extent, (low, high) in zip(at, shape, widths, strict=True)
                )
            )

        return te.compute(whole, element, name="mirrored")

    return call.compute(loops, x, name="mirrored")


def _dilate(call: OperatorCall) -> Value:
    """A value between neighbours, so often that strides lead from one to the next."""
    (x,) = call.arguments
    shape, dtype = shape_of(x), dtype_of(x)
    strides = [int(stride) for stride in call.attributes["strides"]]
    value = float(call.attributes.get("dilation_value") or 0.0)
    if len(strides) != len(shape) or min(strides, default=1) < 1:
        raise ValueError(f"strides {strides} of a tensor of {list(shape)}")
    whole = [max(0, (extent - 1) * s + 1) for extent, s in zip(shape, strides, strict=True)]
    if 0 in whole:
        return filled(call, whole, 0, dtype)

    def loops(data: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            pairs = [(place, stride) for place, stride in zip(at, strides, strict=True)]
            own = [tirx.floordiv(place, stride) for place, stride in pairs]
            hits = [tirx.floormod(place, stride) == 0 for place, stride in pairs if stride > 1]
            if not hits:
                return data(*own)
            return tirx.if_then_else(tirx.all(*hits), data(*own), tirx.const(value, dtype))

        return te.compute(whole, element, name="dilate")

    return call.compute(loops, x, name="dilate")


CONVERTERS: dict[str, Converter] = {
    "nn.pad": _pad,
    "nn.mirror_pad": _mirror_pad,
    "nn.dilate": _dilate,
}
