"""Images of other sizes: Relay's ``resize`` and ``upsampling``."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm.relax import op

from tvm_tile.frontend.ops.resizing import Interpolation, ResizedAxis, interpolated
from tvm_tile.frontend.ops.values import dtype_of, shape_of
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.layouts import Layout, spatial_axes
from tvm_tile.frontend.relay.values import is_float

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


def _resize(call: OperatorCall, x: Value, *given: Value, layout: str, method: str) -> Value:
    """An image of a size that is an attribute or an argument."""
    attributes = call.attributes
    frame, mode = str(attributes["coordinate_transformation_mode"]), _METHODS.get(method)
    rounding = str(attributes["rounding_method"])
    rounding = rounding or ("round" if frame == "align_corners" else "floor")
    if frame == "tf_half_pixel_for_nn" and mode == "nearest" and rounding == "floor":
        frame, rounding = "half_pixel", "round_prefer_ceil"  # which is the same place
    if mode is None or frame not in _FRAMES or rounding not in _ROUNDINGS:
        raise NotImplementedError(f"{method} interpolation, {frame}, rounded by {rounding!r}")
    alpha, exclude = float(attributes["cubic_alpha"]), bool(attributes["cubic_exclude"])
    outside = float(attributes["extrapolation_value"])
    how = Interpolation(mode, frame, _ROUNDINGS[rounding], alpha, exclude, extrapolation=outside)
    wanted = call.parameter(1, "a size").ravel() if given else attributes["size"]
    region = attributes.get("roi") or ()
    if frame != "tf_crop_and_resize":
        region = ()
    elif given:
        region = call.parameter(2, "a region of interest").ravel().tolist()
    made = _resized(call, layout, [int(size) for size in wanted], how, region)
    out = str(attributes.get("out_dtype") or dtype_of(x))
    if not is_float(out) and is_float(dtype_of(made)):
        raise NotImplementedError(f"an image of {dtype_of(made)} as {out}")
    return call.cast(made, out)


def _upsampling(call: OperatorCall, x: Value, *, layout: str, method: str) -> Value:
    """An image of a size by factors, ``scale_h`` of H for one."""
    names, letters, shape = spatial_axes(layout), Layout.parse(layout).letters, shape_of(x)
    corners = "align_corners" if call.attributes.get("align_corners") else "asymmetric"
    frame = str(call.attributes.get("coordinate_transformation_mode") or corners)
    if names != ("DHW" if call.name == "nn.upsampling3d" else "HW"):
        raise ValueError(f"an image in layout {layout}")
    mode = _METHODS.get(method)
    if mode is None or frame not in _FRAMES[:3]:
        raise NotImplementedError(f"{method} interpolation, {frame}")
    sizes = [
        math.floor(shape[letters.index(n)] * float(call.attributes[f"scale_{n.lower()}"]) + 0.5)
        for n in names
    ]
    rounding = "round_prefer_ceil" if frame == "align_corners" else "floor"
    return _resized(call, layout, sizes, Interpolation(mode, frame, rounding))


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(("dyn.image.resize2d", *(f"image.resize{r}d" for r in (1, 2, 3))), _resize),
    **dict.fromkeys(("nn.upsampling", "nn.upsampling3d"), _upsampling),
}
