"""Pools: the largest or the average of windows, of one to three dimensions, in any layout."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tvm import topi

from tvm_tile.frontend.ops import pooling
from tvm_tile.frontend.ops.values import dtype_of, shape_of
from tvm_tile.frontend.ops.windows import Windows
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.layouts import relayout, spatial_axes
from tvm_tile.frontend.relay.operators.windows import numbers, paddings
from tvm_tile.frontend.relay.values import is_float, require_numbers

_RANKS = (1, 2, 3)
_PLANE = 2  # dimensions


def _channels_first(call: OperatorCall, x: Value) -> tuple[Value, str]:
    """The data with its channels before the axes of the windows, and that layout."""
    layout = str(call.attributes["layout"])
    plain = "NC" + spatial_axes(layout)
    if len(plain) - 2 not in _RANKS:
        raise ValueError(f"a pool in layout {layout}")
    require_numbers(x)
    return relayout(call, x, layout, plain), plain


def _restored(call: OperatorCall, value: Value, plain: str) -> Value:
    """A result in the layout that the call asks for."""
    attributes = call.attributes
    return relayout(call, value, plain, str(attributes.get("out_layout") or attributes["layout"]))


def _windows(call: OperatorCall, extents: Sequence[int]) -> list[Windows]:
    """The windows along each axis of data of some extents.

    In ``ceil_mode`` Relay has windows that lie behind the data, too.
    """
    rank, is_ceil = len(extents), bool(call.attributes["ceil_mode"])
    sizes, strides = numbers(call, "pool_size", rank), numbers(call, "strides", rank)
    dilated = "dilation" in call.attributes
    dilation = numbers(call, "dilation", rank) if dilated else [1] * rank
    padding, found = paddings(call, rank), []
    each = zip(extents, sizes, strides, padding, padding[rank:], dilation, strict=False)
    for extent, size, stride, before, after, apart in each:
        room = extent + before + after - (size - 1) * apart - 1
        if room < 0:
            raise ValueError(f"windows of {sizes} in {list(extents)} elements")
        count = 1 + (-(-room // stride) if is_ceil else room // stride)
        found.append(Windows(extent, size, stride, before, after, apart, count))
    return found


def _max_pool(call: OperatorCall, x: Value) -> Value:
    data, plain = _channels_first(call, x)
    windows = _windows(call, shape_of(data)[2:])
    return _restored(call, pooling.largest(call.builder, data, windows), plain)


def _require_wide(dtype: str) -> None:
    """Refuse averages of narrow integers, whose sums overflow in Relay."""
    if not is_float(dtype) and dtype not in ("int32", "int64"):
        raise NotImplementedError(f"an average of {dtype}")


def average(call: OperatorCall, x: Value) -> Value:
    """Averages of the windows that the call's attributes say; of integers towards zero."""
    data, plain = _channels_first(call, x)
    _require_wide(dtype_of(x))
    windows = _windows(call, shape_of(data)[2:])
    counted = bool(call.attributes.get("count_include_pad", False))
    made = pooling.average(call.builder, data, windows, counts_padding=counted)
    return _restored(call, made, plain)


def _adaptive_pool(
    kind: str, call: OperatorCall, x: Value, *, output_size: int | Sequence[int] | None = None
) -> Value:
    """A pool of parts of nearly equal length, or of all where it is global."""
    is_global = "global" in call.name
    if not output_size and not is_global:
        return x
    data, plain = _channels_first(call, x)
    rank = len(plain) - 2
    sizes = [1] * rank if is_global else numbers(call, "output_size", rank)
    if kind == "avg":
        _require_wide(dtype_of(data))
    made = pooling.adaptive(call.builder, data, sizes, takes_largest=kind == "max")
    return _restored(call, made, plain)


def _gradient(kind: str, call: OperatorCall, gradient: Value, x: Value) -> Value:
    data, plain = _channels_first(call, x)
    if not is_float(dtype_of(x)) or len(plain) != _PLANE + 2:
        raise NotImplementedError(f"the gradient of a pool of {dtype_of(x)} in layout {plain}")
    windows = _windows(call, shape_of(data)[2:])
    if any(w.dilation != 1 for w in windows) or call.attributes["ceil_mode"]:
        raise NotImplementedError("the gradient of a pool with dilation or ceil_mode")
    loops = partial(
        topi.nn.pool_grad,
        kernel=[w.kernel for w in windows],
        stride=[w.stride for w in windows],
        padding=[*(w.before for w in windows), *(w.after for w in windows)],
        pool_type=kind,
        count_include_pad=bool(call.attributes.get("count_include_pad", False)),
    )
    outer = relayout(call, gradient, str(call.attributes["layout"]), plain)
    return _restored(call, call.compute(loops, outer, data, name=f"{kind}_pool2d_grad"), plain)


_KINDS = ("avg", "max")
CONVERTERS: dict[str, Converter] = {
    **{f"nn.avg_pool{rank}d": average for rank in _RANKS},
    **{f"nn.max_pool{rank}d": _max_pool for rank in _RANKS},
    **{
        f"nn.adaptive_{kind}_pool{rank}d": partial(_adaptive_pool, kind)
        for kind in _KINDS
        for rank in _RANKS
    },
    **{f"nn.global_{kind}_pool2d": partial(_adaptive_pool, kind) for kind in _KINDS},
    **{f"nn.{kind}_pool2d_grad": partial(_gradient, kind) for kind in _KINDS},
}
