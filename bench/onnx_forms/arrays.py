"""Views, indexing, scatters: operators that move elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.onnx_forms.form import Draw, Form, form

_DTYPES = ("float32", "float32", "int64", "int32")


def _any(d: Draw, shape: tuple[int, ...] | list[int]) -> np.ndarray:
    return (3 * d.normal(shape)).astype(d.choose(*_DTYPES))


def pad(d: Draw) -> Form:
    rank = d.int(1, 4)
    mode = d.choose("constant", "edge", "reflect", "wrap")
    shape = tuple(d.ints(3, 6, rank))
    axes = d.axes(rank, 1) if d.maybe(0.3) else None
    count = rank if axes is None else len(axes)
    low = -1 if d.maybe(0.3) else 0
    pads = np.array(d.ints(low, 2, 2 * count))
    value = np.array(1.5, "float32") if d.maybe() and mode == "constant" else None
    inputs: list[Any] = [d.normal(shape), pads]
    if value is not None or axes is not None:
        inputs.append(value)
    if axes is not None:
        inputs.append(np.array(axes))
    return form("Pad", *inputs, constants=(1, 2, 3), **d.some({"mode": mode}, 0.9))


def slice_(d: Draw) -> Form:
    rank = d.int(1, 4)
    shape = d.shape(rank)
    axes = d.axes(rank, 1) if d.maybe(0.7) else list(range(rank))
    steps = [d.choose(1, 1, 2, -1, -2) for _ in axes]
    starts, ends = (np.array(d.ints(-8, 8, len(axes))) for _ in range(2))
    if d.maybe(0.3):
        ends = np.where(np.array(steps) > 0, np.iinfo("int64").max, np.iinfo("int64").min)
    inputs: list[Any] = [_any(d, shape), starts, ends, np.array(axes)]
    if d.maybe(0.7):
        inputs.append(np.array(steps))
    return form("Slice", *inputs, constants=(1, 2, 3, 4))


def gather(d: Draw) -> Form:
    rank = d.int(1, 3)
    x = _any(d, d.shape(rank))
    axis = d.axis(rank)
    extent = x.shape[axis]
    indices = np.array(
        d.rng.integers(-extent, extent, d.shape(d.int(0, 2))), d.choose("int64", "int32")
    )
    return form("Gather", x, indices, constants=(1,) if d.maybe() else (), axis=axis)


def gather_elements(d: Draw) -> Form:
    rank = d.int(1, 3)
    x = _any(d, d.shape(rank))
    axis = d.axis(rank)
    shape = [d.int(1, e) for e in x.shape]
    shape[axis] = d.int(1, 5)
    indices = d.rng.integers(-x.shape[axis], x.shape[axis], shape)
    return form("GatherElements", x, indices, constants=(1,) if d.maybe() else (), axis=axis)


def gather_nd(d: Draw) -> Form:
    rank = d.int(1, 4)
    batch = d.int(0, min(2, rank - 1))
    x = _any(d, d.shape(rank))
    depth = d.int(1, rank - batch)
    outer = [*x.shape[:batch], *d.shape(d.int(0 if batch else 1, 2), 3)]
    indices = np.stack([d.rng.integers(-e, e, outer) for e in x.shape[batch : batch + depth]], -1)
    return form("GatherND", x, indices, constants=(1,) if d.maybe() else (), batch_dims=batch)


def scatter_elements(d: Draw) -> Form:
    rank = d.int(1, 3)
    x = _any(d, d.shape(rank))
    axis = d.axis(rank)
    reduction = d.choose("none", "add", "mul", "max", "min")
    shape = [d.int(1, e) for e in x.shape]
    order = d.rng.permutation(x.shape[axis])[: shape[axis]]
    along = [1] * rank
    along[axis] = len(order)
    indices = np.broadcast_to(order.reshape(along), shape).copy()
    if reduction != "none":
        indices = d.rng.integers(-x.shape[axis], x.shape[axis], shape)
    updates = _any(d, shape).astype(x.dtype)
    attrs = {} if reduction == "none" and d.maybe() else {"reduction": reduction}
    return form(
        "ScatterElements", x, indices, updates, constants=(1,) if d.maybe() else (),
        axis=axis, opset=18, **attrs,
    )  # fmt: skip


def scatter_nd(d: Draw) -> Form:
    rank = d.int(1, 3)
    x = _any(d, d.shape(rank))
    depth = d.int(1, rank)
    reduction = d.choose("none", "add", "mul", "max", "min")
    places = list(np.ndindex(*x.shape[:depth]))
    count = d.int(1, len(places))
    rows = d.rng.permutation(len(places))[:count]
    if reduction != "none":
        rows = d.rng.integers(0, len(places), count)
    indices = np.array([places[row] for row in rows]).reshape(count, depth)
    if d.maybe(0.3):
        indices = indices - np.array(x.shape[:depth]) * d.rng.integers(0, 2, indices.shape)
    updates = _any(d, (count, *x.shape[depth:])).astype(x.dtype)
    attrs = {} if reduction == "none" and d.maybe() else {"reduction": reduction}
    return form(
        "ScatterND", x, indices, updates, constants=(1,) if d.maybe() else (), opset=18, **attrs
    )


def views(d: Draw) -> Form:
    x = _any(d, d.shape(d.int(1, 4)))
    rank = x.ndim
    kind = d.int(0, 8)
    if kind == 0:
        return form("Transpose", x, **d.some({"perm": d.rng.permutation(rank).tolist()}, 0.8))
    if kind == 1:
        return form("Flatten", x, **d.some({"axis": d.int(-rank, rank)}, 0.8))
    if kind == 2:
        total = rank + d.int(1, 2)
        axes = d.rng.permutation(total)[: total - rank] - (total if d.maybe(0.3) else 0)
        return form("Unsqueeze", x, np.array(axes), constants=(1,))
    if kind == 3:
        x = np.expand_dims(x, (0, -1))
        axes = [[0], [x.ndim - 1], [0, -1]][d.int(0, 2)]
        return form("Squeeze", x, *([np.array(axes)] if d.maybe(0.7) else []), constants=(1,))
    if kind == 4:
        shape = [0 if d.maybe(0.3) else e for e in x.shape]
        free = [i for i, e in enumerate(shape) if e]
        if free and d.maybe(0.6):
            shape[free[d.int(0, len(free) - 1)]] = -1
        return form("Reshape", x, np.array(shape), constants=(1,))
    if kind == 5:
        wide = [e if e > 1 or d.maybe() else d.int(1, 4) for e in x.shape]
        wide = [*d.shape(d.int(0, 2), 3), *wide]
        if d.maybe(0.3):
            wide = [1 if d.maybe(0.4) else e for e in wide]
        return form("Expand", x, np.array(wide), constants=(1,))
    if kind == 6:
        return form("Tile", x, np.array(d.ints(1, 3, rank)), constants=(1,))
    if kind == 7:
        axis = d.axis(rank)
        others = []
        for _ in range(d.int(0, 2)):
            shape = list(x.shape)
            shape[axis] = d.int(1, 4)
            others.append(_any(d, shape).astype(x.dtype))
        return form("Concat", x, *others, axis=axis)
    end, start = d.int(-5, 5), d.int(-5, 5)
    return form("Shape", x, **d.some({"start": start, "end": end}))


def split(d: Draw) -> Form:
    rank = d.int(1, 3)
    axis = d.axis(rank)
    shape = list(d.shape(rank))
    if d.maybe():
        sizes = d.ints(0, 3, d.int(1, 4))
        shape[axis] = max(1, sum(sizes))
        sizes[-1] += shape[axis] - sum(sizes)
        return form(
            "Split", _any(d, shape), np.array(sizes), constants=(1,), results=len(sizes), axis=axis
        )
    parts = d.int(1, 4)
    shape[axis] = d.int(parts, 9)
    last = shape[axis] - -(-shape[axis] // parts) * (parts - 1)
    if last <= 0:
        shape[axis] = parts
    return form("Split", _any(d, shape), results=parts, axis=axis, num_outputs=parts)


def trilu(d: Draw) -> Form:
    x = _any(d, d.shape(d.int(2, 4)))
    k = [np.array(d.int(-7, 7))] if d.maybe(0.7) else []
    return form("Trilu", x, *k, constants=(1,), **d.some({"upper": d.int(0, 1)}))


def one_hot(d: Draw) -> Form:
    depth = d.int(1, 6)
    indices = d.rng.integers(-depth - 1, depth + 1, d.shape(d.int(1, 3)))
    values = np.array([d.choose(0.0, -1.0), d.choose(1.0, 2.5)], "float32")
    return form(
        "OneHot", indices, np.array(depth), values, constants=(1, 2),
        **d.some({"axis": d.axis(indices.ndim + 1)}),
    )  # fmt: skip


def eye_like(d: Draw) -> Form:
    return form("EyeLike", _any(d, d.shape(2)), **d.some({"k": d.int(-4, 4), "dtype": 1}))


def compress(d: Draw) -> Form:
    x = _any(d, d.shape(d.int(1, 3)))
    axis = d.axis(x.ndim) if d.maybe(0.7) else None
    count = x.size if axis is None else x.shape[axis]
    keep = d.rng.random(d.int(1, count)) < 0.6
    return form("Compress", x, keep, constants=(1,), **({} if axis is None else {"axis": axis}))


def reverse_sequence(d: Draw) -> Form:
    batch = d.int(0, 1)
    x = _any(d, d.shape(d.int(2, 4)))
    lengths = d.rng.integers(1, x.shape[1 - batch] + 1, x.shape[batch])
    return form(
        "ReverseSequence", x, lengths, constants=(1,) if d.maybe() else (),
        batch_axis=batch, time_axis=1 - batch,
    )  # fmt: skip


def center_crop_pad(d: Draw) -> Form:
    x = d.normal(d.shape(d.int(1, 4)))
    axes = d.axes(x.ndim, 1) if d.maybe() else None
    count = x.ndim if axes is None else len(axes)
    shape = np.array(d.ints(1, 8, count))
    return form(
        "CenterCropPad", x, shape, constants=(1,), **({} if axes is None else {"axes": axes})
    )


def where(d: Draw) -> Form:
    shape = d.shape(d.int(1, 3))
    parts = [tuple(1 if d.maybe(0.3) else e for e in shape) for _ in range(3)]
    x, y = _any(d, parts[1]), d.normal(parts[2])
    return form("Where", d.rng.random(parts[0]) < 0.5, x, y.astype(x.dtype))


def tensor_scatter(d: Draw) -> Form:
    batch, heads, extent, width = d.int(1, 3), d.int(1, 2), d.int(3, 6), d.int(1, 3)
    count = d.int(1, 3)
    mode = d.choose("linear", "circular")
    most = extent - 1 if mode == "circular" else extent - count
    cache, update = d.normal((batch, heads, extent, width)), d.normal((batch, heads, count, width))
    indices = [d.rng.integers(0, most + 1, batch)] if d.maybe(0.8) else []
    return form("TensorScatter", cache, update, *indices, opset=24, mode=mode)


def non_zero(d: Draw) -> Form:
    return form(d.choose("NonZero", "Size"), np.maximum(_any(d, d.shape(d.int(1, 3))), 0))


ARRAYS = (
    pad, pad, slice_, slice_, gather, gather_elements, gather_nd, scatter_elements, scatter_nd,
    views, views, views, split, trilu, one_hot, eye_like, compress, reverse_sequence,
    center_crop_pad, where, tensor_scatter, non_zero,
)  # fmt: skip
