"""Elements of images at computed places."""

from __future__ import annotations

import functools
import operator
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
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.layouts import relayout
from tvm_tile.frontend.relay.operators.windows import numbers, paddings
from tvm_tile.frontend.relay.values import (
    cast,
    constant,
    dtype_of,
    is_float,
    permuted,
    reshaped,
    shape_of,
)

_EXACT = ("float32", "float64")
_PLANE, _IMAGES = 2, 4  # dimensions of an image, and with its batch and channels


def require_exact(call: OperatorCall, value: Value) -> None:
    """Refuse a value that is neither float32 nor float64."""
    if dtype_of(value) not in _EXACT:
        raise NotImplementedError(f"{call.name} of {dtype_of(value)}")


def _affine_grid(call: OperatorCall) -> Value:
    """The places (x, y) that a matrix makes of those of a grid from -1 to 1."""
    (matrices,) = call.arguments
    require_exact(call, matrices)
    sizes = [int(size) for size in call.attributes["target_shape"]]
    batch, rows, columns = shape_of(matrices)
    if len(sizes) != _PLANE or (rows, columns) != (2, 3) or min(sizes) < 2:
        raise NotImplementedError(f"a grid of {sizes} by matrices {[rows, columns]}")
    y, x = np.meshgrid(*(np.linspace(-1, 1, size) for size in sizes), indexing="ij")
    places = constant(np.stack([x, y, np.ones_like(x)]).reshape(3, -1), dtype_of(matrices))
    made = call.emit(op.matmul(matrices, places))
    return reshaped(call, made, (batch, 2, *sizes))


def _grid_sample(call: OperatorCall) -> Value:
    x, grid = call.arguments
    attributes = call.attributes
    require_exact(call, x)
    kind = Filter(str(attributes["method"]).removeprefix("bi"))
    padding, layout = PaddingMode(str(attributes["padding_mode"])), str(attributes["layout"])
    if layout not in ("NCHW", "NCDHW"):
        raise NotImplementedError(f"layout {layout}")
    points = permuted(call, grid, [0, *range(2, len(layout)), 1])
    corners = bool(attributes["align_corners"])
    return grid_sample(call.builder, x, points, kind, padding, corners=corners)


def _crop_and_resize(call: OperatorCall) -> Value:
    x, boxes, indices = call.arguments
    attributes = call.attributes
    layout, method = str(attributes["layout"]), str(attributes["method"])
    rows, columns = (int(size) for size in attributes["crop_size"])
    out = str(attributes.get("out_dtype") or dtype_of(x))
    require_exact(call, boxes)
    if method not in ("bilinear", "nearest_neighbor") or not is_float(out):
        raise NotImplementedError(f"{method} interpolation to {out}")
    data = cast(call, relayout(call, x, layout, "NCHW"), dtype_of(boxes))
    axes = [SampledAxis(extent) for extent in shape_of(data)[2:]]
    outside = tirx.const(float(attributes["extrapolation_value"]), dtype_of(boxes))

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
    return relayout(call, cast(call, made, out), "NCHW", layout)


def _place(at: Any, start: Any, end: Any, extent: int, count: int) -> Any:
    """Where an element of a crop lies; a single one lies in the middle."""
    if count == 1:
        return (start + end) * (0.5 * (extent - 1))
    step = (end - start) * float(extent - 1) / float(count - 1)
    return start * float(extent - 1) + step * at.astype(start.ty.dtype)


def _dilation2d(call: OperatorCall) -> Value:
    x, kernel = call.arguments
    attributes = call.attributes
    layout, out = str(attributes["data_layout"]), str(attributes.get("out_dtype") or dtype_of(x))
    require_exact(call, x)
    if out != dtype_of(x) or dtype_of(kernel) != out:
        raise NotImplementedError(f"a dilation of {dtype_of(x)} by {dtype_of(kernel)} to {out}")
    loops = partial(
        topi.image.dilation2d_nchw,
        stride=numbers(call, "strides", _PLANE),
        padding=paddings(call, _PLANE),
        dilations=numbers(call, "dilations", _PLANE),
    )
    data = relayout(call, x, layout, "NCHW")
    filters = relayout(call, kernel, str(attributes["kernel_layout"]), "IHW")
    made = call.compute(loops, data, filters, name="dilation2d")
    return relayout(call, made, "NCHW", layout)


def _correlation(call: OperatorCall) -> Value:
    """How alike patches of two images are, at some displacements."""
    left, right = call.arguments
    attributes = call.attributes
    layout = str(attributes["layout"])
    require_exact(call, left)
    if dtype_of(left) != dtype_of(right) or shape_of(left) != shape_of(right):
        raise ValueError(f"images of {list(shape_of(left))} and {list(shape_of(right))}")
    loops = partial(
        topi.nn.correlation_nchw,
        kernel_size=int(attributes["kernel_size"]),
        max_displacement=int(attributes["max_displacement"]),
        stride1=int(attributes["stride1"]),
        stride2=int(attributes["stride2"]),
        padding=paddings(call, _PLANE),
        is_multiply=bool(attributes["is_multiply"]),
    )
    if int(attributes["kernel_size"]) % 2 == 0:
        raise NotImplementedError("patches of an even size")
    images = (relayout(call, image, layout, "NCHW") for image in (left, right))
    return relayout(call, call.compute(loops, *images, name="correlation"), "NCHW", layout)


def _deformable_conv2d(call: OperatorCall) -> Value:
    x, offsets, kernel = call.arguments
    attributes = call.attributes
    layout = str(attributes["data_layout"])
    for value in (x, offsets, kernel):
        require_exact(call, value)
    out = str(attributes.get("out_dtype") or dtype_of(x))
    if int(attributes["groups"]) != 1 or {dtype_of(v) for v in call.arguments} != {out}:
        raise NotImplementedError(f"{attributes['groups']} groups, to {out}")
    groups = int(attributes["deformable_groups"])
    data = relayout(call, x, layout, "NCHW")
    places = relayout(call, offsets, layout, "NCHW")
    plain = relayout(call, kernel, str(attributes["kernel_layout"]), "OIHW")
    _, inputs, *window = shape_of(plain)
    batch, channels, *_ = shape_of(data)
    if (
        inputs != channels
        or inputs % groups
        or shape_of(places)[:2] != (*(batch, 2 * groups * window[0] * window[1]),)
    ):
        raise ValueError(f"kernels {list(shape_of(kernel))} at {list(shape_of(offsets))} places")
    loops = partial(
        topi.nn.deformable_conv2d_nchw,
        strides=numbers(call, "strides", _PLANE),
        padding=paddings(call, _PLANE),
        dilation=numbers(call, "dilation", _PLANE),
        deformable_groups=groups,
        groups=1,
        out_dtype=out,
    )
    made = call.compute(loops, data, places, plain, name="deformable_conv2d")
    return relayout(call, made, "NCHW", str(attributes.get("out_layout") or layout))


CONVERTERS: dict[str, Converter] = {
    "image.affine_grid": _affine_grid,
    "image.crop_and_resize": _crop_and_resize,
    "image.dilation2d": _dilation2d,
    "image.grid_sample": _grid_sample,
    "nn.correlation": _correlation,
    "nn.deformable_conv2d": _deformable_conv2d,
}
