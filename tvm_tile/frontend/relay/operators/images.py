"""Elements of images at computed places."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm import te, tirx, topi
from tvm.relax import op

from tvm_tile.frontend.ops.sampling import (
    Filter,
    PaddingMode,
    SampledAxis,
    grid_sample,
    weighted_neighbours,
)
from tvm_tile.frontend.ops.values import constant, dtype_of, shape_of
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.layouts import relayout
from tvm_tile.frontend.relay.operators.products import require_exact
from tvm_tile.frontend.relay.operators.windows import numbers, paddings
from tvm_tile.frontend.relay.values import is_float

_PLANE = 2  # dimensions of an image


def _affine_grid(call: OperatorCall, matrices: Value, *, target_shape: Sequence[int]) -> Value:
    """The places (x, y) that a matrix makes of those of a grid from -1 to 1."""
    require_exact(call, matrices)
    sizes = list(target_shape)
    batch, rows, columns = shape_of(matrices)
    if len(sizes) != _PLANE or (rows, columns) != (2, 3) or min(sizes) < 2:
        raise NotImplementedError(f"a grid of {sizes} by matrices {[rows, columns]}")
    y, x = np.meshgrid(*(np.linspace(-1, 1, size) for size in sizes), indexing="ij")
    places = constant(np.stack([x, y, np.ones_like(x)]).reshape(3, -1), dtype_of(matrices))
    return call.reshaped(call.emit(op.matmul(matrices, places)), (batch, 2, *sizes))


def _grid_sample(call: OperatorCall, x: Value, grid: Value, *, layout: str) -> Value:
    require_exact(call, x)
    attributes = call.attributes
    kind = Filter(str(attributes["method"]).removeprefix("bi"))
    padding, corners = PaddingMode(attributes["padding_mode"]), bool(attributes["align_corners"])
    if layout not in ("NCHW", "NCDHW"):
        raise NotImplementedError(f"layout {layout}")
    points = call.permuted(grid, [0, *range(2, len(layout)), 1])
    return grid_sample(call.builder, x, points, kind, padding, corners=corners)


def _crop_and_resize(
    call: OperatorCall, x: Value, boxes: Value, indices: Value, *, layout: str, method: str
) -> Value:
    require_exact(call, boxes)
    rows, columns = call.attributes["crop_size"]
    out = call.attributes.get("out_dtype") or dtype_of(x)
    if method not in ("bilinear", "nearest_neighbor") or not is_float(out):
        raise NotImplementedError(f"{method} interpolation to {out}")
    data = call.cast(relayout(call, x, layout, "NCHW"), dtype_of(boxes))
    axes = [SampledAxis(extent) for extent in shape_of(data)[2:]]
    outside = tirx.const(float(call.attributes["extrapolation_value"]), dtype_of(boxes))

    def loops(data: te.Tensor, boxes: te.Tensor, indices: te.Tensor) -> te.Tensor:
        def element(n: Any, c: Any, i: Any, j: Any) -> Any:
            places = [
                _place(at, boxes(n, axis), boxes(n, axis + _PLANE), axes[axis].extent, count)
                for axis, (at, count) in enumerate(((i, rows), (j, columns)))
            ]
            own = tirx.min(tirx.max(indices(n), 0), data.shape[0] - 1)
            pairs = list(zip(axes, places, strict=True))
            inside = tirx.all(*(axis.is_inside(place) for axis, place in pairs))
            if method == "bilinear":
                terms = weighted_neighbours(data, (own, c), places, axes)
                found = functools.reduce(operator.add, terms)
            else:
                nearest = [axis.index(tirx.floor(place + 0.5)) for axis, place in pairs]
                found = data(own, c, *(tirx.max(index, 0) for index in nearest))
            return tirx.Select(inside, found, outside)

        shape = (boxes.shape[0], data.shape[1], rows, columns)
        return te.compute(shape, element, name="crop_and_resize")

    made = call.compute(loops, data, boxes, indices, name="crop_and_resize")
    return relayout(call, call.cast(made, out), "NCHW", layout)


def _place(at: Any, start: Any, end: Any, extent: int, count: int) -> Any:
    """Where an element of a crop lies; a single one lies in the middle."""
    if count == 1:
        return (start + end) * (0.5 * (extent - 1))
    step = (end - start) * float(extent - 1) / float(count - 1)
    return start * float(extent - 1) + step * at.astype(start.ty.dtype)


def _dilation2d(call: OperatorCall, x: Value, kernel: Value, *, data_layout: str) -> Value:
    require_exact(call, x)
    out = call.attributes.get("out_dtype") or dtype_of(x)
    if out != dtype_of(x) or dtype_of(kernel) != out:
        raise NotImplementedError(f"a dilation of {dtype_of(x)} by {dtype_of(kernel)} to {out}")
    loops = partial(
        topi.image.dilation2d_nchw,
        stride=numbers(call, "strides", _PLANE),
        padding=paddings(call, _PLANE),
        dilations=numbers(call, "dilations", _PLANE),
    )
    data = relayout(call, x, data_layout, "NCHW")
    filters = relayout(call, kernel, str(call.attributes["kernel_layout"]), "IHW")
    made = call.compute(loops, data, filters, name="dilation2d")
    return relayout(call, made, "NCHW", data_layout)


def _correlation(call: OperatorCall, *images: Value, layout: str, kernel_size: int) -> Value:
    """How alike patches of two images are, at some displacements."""
    require_exact(call, *images)
    if len({(dtype_of(image), shape_of(image)) for image in images}) != 1:
        raise ValueError(f"images of {[shape_of(image) for image in images]}")
    if kernel_size % 2 == 0:
        raise NotImplementedError("patches of an even size")
    names = ("kernel_size", "max_displacement", "stride1", "stride2", "is_multiply")
    how = {name: call.attributes[name] for name in names}
    loops = partial(topi.nn.correlation_nchw, padding=paddings(call, _PLANE), **how)
    both = (relayout(call, image, layout, "NCHW") for image in images)
    return relayout(call, call.compute(loops, *both, name="correlation"), "NCHW", layout)


def _deformable_conv2d(
    call: OperatorCall, x: Value, offsets: Value, kernel: Value, *, data_layout: str
) -> Value:
    require_exact(call, x, offsets, kernel)
    attributes = call.attributes
    groups, parts = int(attributes["groups"]), int(attributes["deformable_groups"])
    out = attributes.get("out_dtype") or dtype_of(x)
    if groups != 1 or {dtype_of(v) for v in call.arguments} != {out}:
        raise NotImplementedError(f"{groups} groups, to {out}")
    data, places = (relayout(call, value, data_layout, "NCHW") for value in (x, offsets))
    plain = relayout(call, kernel, str(attributes["kernel_layout"]), "OIHW")
    _, inputs, *window = shape_of(plain)
    batch, channels, *_ = shape_of(data)
    moves = (batch, 2 * parts * window[0] * window[1])
    if inputs != channels or inputs % parts or shape_of(places)[:2] != moves:
        raise ValueError(f"kernels {list(shape_of(kernel))} at {list(shape_of(offsets))} places")
    loops = partial(
        topi.nn.deformable_conv2d_nchw,
        strides=numbers(call, "strides", _PLANE),
        padding=paddings(call, _PLANE),
        dilation=numbers(call, "dilation", _PLANE),
        deformable_groups=parts,
        groups=1,
        out_dtype=out,
    )
    made = call.compute(loops, data, places, plain, name="deformable_conv2d")
    return relayout(call, made, "NCHW", str(attributes.get("out_layout") or data_layout))


CONVERTERS: dict[str, Converter] = {
    "image.affine_grid": _affine_grid,
    "image.crop_and_resize": _crop_and_resize,
    "image.dilation2d": _dilation2d,
    "image.grid_sample": _grid_sample,
    "nn.correlation": _correlation,
    "nn.deformable_conv2d": _deformable_conv2d,
}
