"""Operators of Relay that put elements around or between those of a tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.relax import op

from tvm_tile.frontend.ops.values import constant, dtype_of, shape_of
from tvm_tile.frontend.ops.writer import known_value
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value

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
        return call.filled(whole, value, dtype)
    if dtype == "bool":
        flags = padded(call, call.cast(x, "int8"), pads, float(bool(value)))
        return call.cast(flags, "bool")
    if float(value) != value and value == value:
        raise NotImplementedError(f"padding with {value}")
    flat = [width for pair in pads for width in pair]
    return call.emit(op.nn.pad(x, flat, "constant", float(value)))


def _pad(
    call: OperatorCall, x: Value, value: Value = None, *, pad_width: Widths, pad_mode: str
) -> Value:
    """A padded tensor; before TVM 0.8 the number around it was an attribute."""
    if pad_mode in ("edge", "reflect"):
        return _mirrored(call, x, pad_width, _EDGE if pad_mode == "edge" else _REFLECT)
    if pad_mode != "constant":
        raise ValueError(f"mode {pad_mode!r}")
    _require_width_of_each_axis(x, pad_width)
    known = known_value(value)
    if value is None or known is not None:
        former = call.attributes.get("pad_value", 0.0)
        return padded(call, x, pad_width, former if known is None else known.item())
    own = padded(call, x, pad_width, 0)
    inside = constant(np.pad(np.ones(shape_of(x), bool), pad_width), "bool")
    return call.emit(op.where(inside, own, call.reshaped(value, ())))


def _require_width_of_each_axis(x: Value, widths: Widths) -> None:
    if len(widths) != len(shape_of(x)):
        raise ValueError(f"{len(widths)} widths for a tensor of {len(shape_of(x))} dimensions")


def _mirror_pad(call: OperatorCall, x: Value, *, pad_width: Widths, mode: str) -> Value:
    if mode not in ("SYMMETRIC", "REFLECT"):
        raise ValueError(f"mode {mode!r}")
    return _mirrored(call, x, pad_width, _REFLECT if mode == "REFLECT" else _SYMMETRIC)


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
    _require_width_of_each_axis(x, widths)
    for extent, pair in zip(shape, widths, strict=True):
        if not all(0 <= width <= mirror.most(extent) for width in pair):
            raise ValueError(f"{pair} more elements along an axis of {extent}")
    whole = [low + extent + high for extent, (low, high) in zip(shape, widths, strict=True)]

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


def _dilate(
    call: OperatorCall, x: Value, *, strides: Sequence[int], dilation_value: float = 0.0
) -> Value:
    """A value between neighbours, so often that strides lead from one to the next."""
    shape, dtype, value = shape_of(x), dtype_of(x), float(dilation_value or 0.0)
    if len(strides) != len(shape) or min(strides, default=1) < 1:
        raise ValueError(f"strides {strides} of a tensor of {list(shape)}")
    whole = [max(0, (extent - 1) * s + 1) for extent, s in zip(shape, strides, strict=True)]

    def loops(data: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            pairs = list(zip(at, strides, strict=True))
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
