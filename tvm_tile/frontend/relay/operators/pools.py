"""Pools: the largest or the average of windows, of one to three dimensions, in any layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm import te, tirx, topi
from tvm.relax import op

from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.layouts import relayout, spatial_axes
from tvm_tile.frontend.relay.operators.windows import numbers, paddings, require_room
from tvm_tile.frontend.relay.values import cast, constant, dtype_of, is_float, shape_of

_MAXIMA = {1: op.nn.max_pool1d, 2: op.nn.max_pool2d, 3: op.nn.max_pool3d}
_AVERAGES = {1: op.nn.avg_pool1d, 2: op.nn.avg_pool2d, 3: op.nn.avg_pool3d}
_LOOPS = {1: topi.nn.pool1d, 2: topi.nn.pool2d, 3: topi.nn.pool3d}
_ADAPTIVE_LOOPS = {
    1: topi.nn.adaptive_pool1d,
    2: topi.nn.adaptive_pool,
    3: topi.nn.adaptive_pool3d,
}
_PLANE = 2  # dimensions


def _channels_first(call: OperatorCall, x: Value) -> tuple[Value, str]:
    """The data with its channels before the axes of the windows, and that layout."""
    layout = str(call.attributes["layout"])
    plain = "NC" + spatial_axes(layout)
    if len(plain) - 2 not in _MAXIMA:
        raise ValueError(f"a pool in layout {layout}")
    if dtype_of(x) == "bool":
        raise NotImplementedError("a pool of truth values")
    return relayout(call, x, layout, plain), plain


def _restored(call: OperatorCall, value: Value, plain: str) -> Value:
    """A result in the layout that the call asks for."""
    attributes = call.attributes
    return relayout(call, value, plain, str(attributes.get("out_layout") or attributes["layout"]))


def _windows(call: OperatorCall, extents: Sequence[int]) -> tuple[list[int], dict[str, Any]]:
    """The windows' sizes, and how they move over data of some extents."""
    rank = len(extents)
    size = numbers(call, "pool_size", rank)
    moves: dict[str, Any] = {
        "strides": numbers(call, "strides", rank),
        "padding": paddings(call, rank),
        "dilation": numbers(call, "dilation", rank)
        if "dilation" in call.attributes
        else [1] * rank,
        "ceil_mode": bool(call.attributes["ceil_mode"]),
    }
    require_room(extents, moves["padding"], size, moves["dilation"])
    return size, moves


def _steps(extents: Sequence[int], size: list[int], windows: Mapping[str, Any]) -> list[int]:
    """Along each axis how often the windows move, where a last one may stand over."""
    padding, spans = windows["padding"], _spans(size, windows)
    room = [
        extent + before + behind - span
        for extent, before, behind, span in zip(
            extents, padding, padding[len(extents) :], spans, strict=False
        )
    ]
    return [-(-left // stride) for left, stride in zip(room, windows["strides"], strict=True)]


def _spans(size: list[int], windows: Mapping[str, Any]) -> list[int]:
    return [(k - 1) * apart + 1 for k, apart in zip(size, windows["dilation"], strict=True)]


def _begin_behind(extents: Sequence[int], size: list[int], windows: Mapping[str, Any]) -> bool:
    """Whether a last window lies behind the data: Relay has it, today's TVM does not."""
    if not windows["ceil_mode"]:
        return False
    steps = _steps(extents, size, windows)
    return any(
        count * stride >= extent + before
        for count, stride, extent, before in zip(
            steps, windows["strides"], extents, windows["padding"], strict=False
        )
    )


def _widened(
    call: OperatorCall, data: Value, size: list[int], windows: Mapping[str, Any], value: float
) -> tuple[Value, dict[str, Any]]:
    """The data with so much of ``value`` around it that no window stands over."""
    extents = shape_of(data)[2:]
    widths = [0, 0, 0, 0]
    for extent, before, count, stride, span in zip(
        extents,
        windows["padding"],
        _steps(extents, size, windows),
        windows["strides"],
        _spans(size, windows),
        strict=False,
    ):
        widths += [before, count * stride + span - extent - before]
    moves = {name: windows[name] for name in ("strides", "dilation")}
    return call.emit(op.nn.pad(data, widths, "constant", value)), moves


def _max_pool(call: OperatorCall) -> Value:
    data, plain = _channels_first(call, call.arguments[0])
    rank = len(plain) - 2
    size, windows = _windows(call, shape_of(data)[2:])
    if _begin_behind(shape_of(data)[2:], size, windows):
        dtype = dtype_of(data)
        lowest = tirx.min_value(dtype).value
        data, windows = _widened(call, data, size, windows, lowest)
    made = _MAXIMA[rank](data, size, **windows, layout=plain)
    return _restored(call, call.emit(made), plain)


def average(call: OperatorCall, x: Value) -> Value:
    """Averages of the windows that the call's attributes say; of integers towards zero."""
    data, plain = _channels_first(call, x)
    rank = len(plain) - 2
    size, windows = _windows(call, shape_of(data)[2:])
    counted = bool(call.attributes.get("count_include_pad", False))
    if _begin_behind(shape_of(data)[2:], size, windows):
        return _restored(call, _average_behind(call, data, size, windows, counted), plain)
    if is_float(dtype_of(x)):
        made = _AVERAGES[rank](data, size, **windows, layout=plain, count_include_pad=counted)
        return _restored(call, call.emit(made), plain)
    loops = partial(
        _LOOPS[rank],
        kernel=size,
        stride=windows["strides"],
        dilation=windows["dilation"],
        padding=windows["padding"],
        pool_type="avg",
        ceil_mode=windows["ceil_mode"],
        layout=plain,
        count_include_pad=counted,
    )
    return _restored(call, _of_integers(call, loops, data, f"avg_pool{rank}d"), plain)


def _average_behind(
    call: OperatorCall, data: Value, size: list[int], windows: Mapping[str, Any], counted: bool
) -> Value:
    """Averages of windows of which some lie behind the data, where they are zero."""
    dtype, extents = dtype_of(data), shape_of(data)[2:]
    if not is_float(dtype):
        raise NotImplementedError(f"an average of {dtype} of windows behind the data")
    wide, moves = _widened(call, data, size, windows, 0)
    average = _AVERAGES[len(size)](wide, size, **moves, count_include_pad=True)
    if counted:
        return call.emit(average)
    counts = np.ones(())
    for extent, before, count, stride, k, apart in zip(
        extents,
        windows["padding"],
        _steps(extents, size, windows),
        windows["strides"],
        size,
        windows["dilation"],
        strict=False,
    ):
        begins = np.arange(count + 1) * stride - before
        places = begins[:, None] + np.arange(k) * apart
        counts = np.multiply.outer(counts, ((places >= 0) & (places < extent)).sum(-1))
    shares = math.prod(size) / np.maximum(counts, 1)
    return call.emit(op.multiply(call.emit(average), constant(shares[None, None], dtype)))


def _of_integers(
    call: OperatorCall, loops: Callable[..., te.Tensor], data: Value, name: str
) -> Value:
    """Averages of integers, in their type; Relay's sums of narrow ones overflow."""
    dtype = dtype_of(data)
    if dtype not in ("int32", "int64"):
        raise NotImplementedError(f"an average of {dtype}")
    return cast(call, call.compute(loops, data, name=name), dtype)


def _avg_pool(call: OperatorCall) -> Value:
    return average(call, call.arguments[0])


_WHOLE: dict[str, Callable[..., Value]] = {"avg": op.mean, "max": op.max}


def _adaptive(kind: str, call: OperatorCall, sizes: Sequence[int] | None = None) -> Value:
    data, plain = _channels_first(call, call.arguments[0])
    rank = len(plain) - 2
    extents = shape_of(data)[2:]
    if sizes is None:
        given = call.attributes["output_size"]
        sizes = [int(size) for size in (given if isinstance(given, tuple | list) else (given,))]
    sizes = list(sizes) * rank if len(sizes) == 1 else list(sizes)
    if len(sizes) != rank or min(sizes) < 1:
        raise ValueError(f"output_size {sizes} for {rank} axes")
    is_plain = is_float(dtype_of(data)) or kind == "max"
    if tuple(sizes) == extents:
        made = data
    elif is_plain and set(sizes) == {1}:
        made = call.emit(_WHOLE[kind](data, list(range(2, rank + 2)), keepdims=True))
    elif is_plain and not any(e % size for e, size in zip(extents, sizes, strict=True)):
        made = call.emit(_even(kind, data, [e // s for e, s in zip(extents, sizes, strict=True)]))
    else:
        loops = partial(_ADAPTIVE_LOOPS[rank], output_size=sizes, pool_type=kind, layout=plain)
        name = f"adaptive_{kind}_pool{rank}d"
        made = (
            call.compute(loops, data, name=name)
            if is_plain
            else _of_integers(call, loops, data, name)
        )
    return _restored(call, made, plain)


def _even(kind: str, data: Value, size: list[int]) -> Value:
    """Windows of one size side by side."""
    if kind == "max":
        return _MAXIMA[len(size)](data, size, strides=size)
    return _AVERAGES[len(size)](data, size, strides=size, count_include_pad=False)


def _adaptive_pool(kind: str, call: OperatorCall) -> Value:
    if not call.attributes.get("output_size"):
        return call.arguments[0]
    return _adaptive(kind, call)


def _global_pool(kind: str, call: OperatorCall) -> Value:
    return _adaptive(kind, call, [1])


def _gradient(kind: str, call: OperatorCall) -> Value:
    gradient, x = call.arguments
    data, plain = _channels_first(call, x)
    if not is_float(dtype_of(x)) or len(plain) != _PLANE + 2:
        raise NotImplementedError(f"the gradient of a pool of {dtype_of(x)} in layout {plain}")
    size, windows = _windows(call, shape_of(data)[2:])
    if set(windows["dilation"]) != {1} or windows["ceil_mode"]:
        raise NotImplementedError("the gradient of a pool with dilation or ceil_mode")
    loops = partial(
        topi.nn.pool_grad,
        kernel=size,
        stride=windows["strides"],
        padding=windows["padding"],
        pool_type=kind,
        count_include_pad=bool(call.attributes.get("count_include_pad", False)),
    )
    outer = relayout(call, gradient, str(call.attributes["layout"]), plain)
    return _restored(call, call.compute(loops, outer, data, name=f"{kind}_pool2d_grad"), plain)


CONVERTERS: dict[str, Converter] = {
    **{f"nn.avg_pool{rank}d": _avg_pool for rank in _AVERAGES},
    **{f"nn.max_pool{rank}d": _max_pool for rank in _MAXIMA},
    **{
        f"nn.adaptive_{kind}_pool{rank}d": partial(_adaptive_pool, kind)
        for kind in _WHOLE
        for rank in _MAXIMA
    },
    **{f"nn.global_{kind}_pool2d": partial(_global_pool, kind) for kind in _WHOLE},
    **{f"nn.{kind}_pool2d_grad": partial(_gradient, kind) for kind in _WHOLE},
}
