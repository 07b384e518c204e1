"""Images of other sizes: Relay's ``resize`` and ``upsampling``, as ONNX's Resize."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm.relax import op

from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.layouts import Layout, spatial_axes
from tvm_tile.frontend.relay.values import cast, constant, dtype_of, is_float, shape_of

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
_EXACT = ("int8", "uint8", "int16", "uint16", "int32")  # in float64


@dataclass(frozen=True, slots=True)
class Interpolation:
    """How the elements of an image of another size follow from those that there are.

    Attributes:
        mode: ``nearest``, ``linear`` or ``cubic``.
        frame: where in the image an element of the result lies, as ONNX names it.
        rounding: to the nearest element, as ONNX names it.
        alpha: of the cubic polynomials.
        exclude: whether weights of elements beyond the borders are left out.
        region: of interest: starts along each axis, then ends, as shares; empty for all.
        extrapolation: the value outside the region.
    """

    mode: str
    frame: str
    rounding: str = "floor"
    alpha: float = -0.5
    exclude: bool = False
    region: Sequence[float] = ()
    extrapolation: float = 0.0


def _resized(
    call: OperatorCall, x: Value, layout: str, sizes: Sequence[int], how: Interpolation
) -> Value:
    """An image of some sizes; of integers by copying alone, since how others round is open."""
    # Behind these is ONNX's own library, which few programs of Relay need.
    from tvm_tile.frontend.onnx.node import Node
    from tvm_tile.frontend.onnx.resize import convert_resize

    letters = Layout.parse(layout).letters
    shape = shape_of(x)
    if len(shape) != len(letters):
        raise ValueError(f"an image of {list(shape)} in layout {layout}")
    axes = [letters.index(letter) for letter in spatial_axes(layout)]
    if len(sizes) != len(axes):
        raise ValueError(f"sizes {list(sizes)} in layout {layout}")
    dtype = dtype_of(x)
    if not is_float(dtype):
        if how.mode != "nearest" or dtype not in _EXACT:
            raise NotImplementedError(f"{how.mode} interpolation of {dtype}")
        x = cast(call, x, "float64")
    if how.mode == "nearest" and how.frame == "asymmetric" and len(axes) == _PLANE:
        # Relay divides the places in a plane as integers where it can, whatever it rounds by.
        for axis, size in zip(axes, sizes, strict=True):
            if size % shape[axis] == 0 and size > shape[axis]:
                x = call.emit(op.repeat(x, size // shape[axis], axis))
    whole = list(shape)
    for axis, size in zip(axes, sizes, strict=True):
        whole[axis] = int(size)
    attributes: dict[str, Any] = {
        "mode": how.mode,
        "coordinate_transformation_mode": how.frame,
        "nearest_mode": how.rounding,
        "cubic_coeff_a": how.alpha,
        "extrapolation_value": how.extrapolation,
    }
    if how.exclude:
        attributes["exclude_outside"] = 1
    region = None
    if how.frame == "tf_crop_and_resize":
        attributes["axes"] = axes
        whole = [int(size) for size in sizes]
        region = constant(list(how.region), "float64")
    node = Node(
        "Resize", call.builder, (x, region, None, constant(whole, "int64")), attributes, 1, 18
    )
    made = convert_resize(node)
    if made is None:  # of the last two axes TVM's own operator computes the same, whatever they are
        made = op.image.resize2d(
            x,
            tuple(whole[-2:]),
            layout="NCHW",
            method="nearest_neighbor" if how.mode == "nearest" else how.mode,
            coordinate_transformation_mode=how.frame,
            rounding_method=how.rounding,
        )
    return cast(call, call.emit(made), dtype)


def _interpolation(call: OperatorCall, region: Sequence[float]) -> Interpolation:
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
        region,
        float(attributes["extrapolation_value"]),
    )


def _resize_to(call: OperatorCall, sizes: Sequence[int], region: Sequence[float]) -> Value:
    x, layout = call.arguments[0], str(call.attributes["layout"])
    out = str(call.attributes.get("out_dtype") or dtype_of(x))
    made = _resized(call, x, layout, sizes, _interpolation(call, region))
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
    how = Interpolation(mode, frame, rounding)
    return _resized(call, call.arguments[0], layout, sizes, how)


CONVERTERS: dict[str, Converter] = {
    "dyn.image.resize2d": _resize_by_argument,
    "image.resize1d": _resize,
    "image.resize2d": _resize,
    "image.resize3d": _resize,
    "nn.upsampling": _upsampling,
    "nn.upsampling3d": _upsampling3d,
}
