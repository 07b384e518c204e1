"""Images of other sizes: Relay's ``resize`` and ``upsampling``."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm.relax import op

from tvm_tile.frontend.ops.resizing import Interpolation, ResizedAxis, interpolated
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.layouts import Layout, spatial_axes
from tvm_tile.frontend.relay.values import cast, dtype_of, is_float, shape_of

_METHODS = {
    "nearest_neighbor": "nearest",
    "linear": "linear",
    "bilinear": "linear",
    "trilinear": "linear",
    "cubic": "cubic",
    "bicubic": "cubic",
}
_ROUNDINGS = {
    "round": "round_prefer_ceil",  # half away from zero; what is below zero is out of the image
    "round_prefer_floor": "round_prefer_floor",
    "round_prefer_ceil": "round_prefer_ceil",
    "floor": "floor",
    "ceil": "ceil",
}
_FRAMES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_crop_and_resize")
_PLANE = 2  # axes


def _resized(
    call: OperatorCall,
    layout: str,
    sizes: Sequence[int],
    how: Interpolation,
    region: Sequence[float] = (),
) -> Value:
    """An image of some sizes; of integers by copying alone, since how others round is open.

    Args:
        call: the operator's, whose first argument is the image.
        layout: the image's.
        sizes: along the axes of the plane or volume.
        how: the interpolation.
        region: of interest: starts along each of these axes, then ends, as shares; empty for all.
    """
    x = call.arguments[0]
    letters = Layout.parse(layout).letters
    shape = shape_of(x)
    if len(shape) != len(letters):
        raise ValueError(f"an image of {list(shape)} in layout {layout}")
    axes = [letters.index(letter) for letter in spatial_axes(layout)]
    regions = list(region) or [0.0] * len(axes) + [1.0] * len(axes)
    if len(sizes) != len(axes) or len(regions) != 2 * len(axes):
        raise ValueError(f"sizes {list(sizes)} of {list(region)} in layout {layout}")
    if not is_float(dtype_of(x)) and how.mode != "nearest":
        raise NotImplementedError(f"{how.mode} interpolation of {dtype_of(x)}")
    if how.mode == "nearest" and how.frame == "asymmetric" and len(axes) == _PLANE:
        # Relay divides the places in a plane as integers where it can, whatever it rounds by.
        for axis, size in zip(axes, sizes, strict=True):
            if size % shape[axis] == 0 and size > shape[axis]:
                x = call.emit(op.repeat(x, size // shape[axis], axis))
    shape = shape_of(x)
    each = [
        ResizedAxis(axis, shape[axis], int(size), size / shape[axis], start, end)
        for axis, size, start, end in zip(
            axes, sizes, regions[: len(axes)], regions[len(axes) :], strict=True
        )
    ]
    return interpolated(call.builder, x, each, how)


def _interpolation(call: OperatorCall) -> Interpolation:
    attributes = call.attributes
    method, frame = str(attributes["method"]), str(attributes["coordinate_transformation_mode"])
    rounding = str(attributes["rounding_method"])
    rounding = rounding or ("round" if frame == "align_corners" else "floor")
    mode = _METHODS.get(method)
    if frame == "tf_half_pixel_for_nn" and mode == "nearest" and rounding == "floor":
        frame, rounding = "half_pixel", "round_prefer_ceil"  # which is the same place
    if mode is None or frame not in _FRAMES or rounding not in _ROUNDINGS:
        raise NotImplementedError(f"{method} interpolation, {frame}, rounded by {rounding!r}")
    return Interpolation(
        mode,
        frame,
        _ROUNDINGS[rounding],
        float(attributes["cubic_alpha"]),
        bool(attributes["cubic_exclude"]),
        extrapolation=float(attributes["extrapolation_value"]),
    )


def _resize_to(call: OperatorCall, sizes: Sequence[int], region: Sequence[float]) -> Value:
    x, layout = call.arguments[0], str(call.attributes["layout"])
    out = str(call.attributes.get("out_dtype") or dtype_of(x))
    how = _interpolation(call)
    region = region if how.frame == "tf_crop_and_resize" else ()
    made = _resized(call, layout, sizes, how, region)
    if not is_float(out) and is_float(dtype_of(made)):
        raise NotImplementedError(f"an image of {dtype_of(made)} as {out}")
    return cast(call, made, out)


def _resize(call: OperatorCall) -> Value:
    sizes = [int(size) for size in call.attributes["size"]]
    return _resize_to(call, sizes, [float(part) for part in call.attributes.get("roi") or ()])


def _resize_by_argument(call: OperatorCall) -> Value:
    sizes = [int(size) for size in call.parameter(1, "a size").ravel()]
    region: list[float] = []
    if call.attributes["coordinate_transformation_mode"] == "tf_crop_and_resize":
        region = [float(part) for part in call.parameter(2, "a region of interest").ravel()]
    return _resize_to(call, sizes, region)


def _scaled(call: OperatorCall, names: str) -> list[int]:
    """The extents of a result by factors, ``scale_h`` of H for one."""
    layout = str(call.attributes["layout"])
    letters, shape = Layout.parse(layout).letters, shape_of(call.arguments[0])
    if spatial_axes(layout) != names:
        raise ValueError(f"an image in layout {layout}")
    factors = [float(call.attributes[f"scale_{name.lower()}"]) for name in names]
    extents = [shape[letters.index(name)] for name in names]
    return [math.floor(e * factor + 0.5) for e, factor in zip(extents, factors, strict=True)]


def _upsampling(call: OperatorCall) -> Value:
    layout, method = str(call.attributes["layout"]), str(call.attributes["method"])
    frame = "align_corners" if call.attributes["align_corners"] else "asymmetric"
    return _upsampled(call, layout, _scaled(call, "HW"), method, frame)


def _upsampling3d(call: OperatorCall) -> Value:
    layout, method = str(call.attributes["layout"]), str(call.attributes["method"])
    frame = str(call.attributes["coordinate_transformation_mode"])
    return _upsampled(call, layout, _scaled(call, "DHW"), method, frame)


def _upsampled(
    call: OperatorCall, layout: str, sizes: Sequence[int], method: str, frame: str
) -> Value:
    mode = _METHODS.get(method)
    if mode is None or frame not in _FRAMES[:3]:
        raise NotImplementedError(f"{method} interpolation, {frame}")
    rounding = "round_prefer_ceil" if frame == "align_corners" else "floor"
    return _resized(call, layout, sizes, Interpolation(mode, frame, rounding))


CONVERTERS: dict[str, Converter] = {
    "dyn.image.resize2d": _resize_by_argument,
    "image.resize1d": _resize,
    "image.resize2d": _resize,
    "image.resize3d": _resize,
    "nn.upsampling": _upsampling,
    "nn.upsampling3d": _upsampling3d,
}
