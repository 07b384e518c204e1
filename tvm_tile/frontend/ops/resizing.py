"""Resizing by formulas: what each axis of an image of another size is made of.

Along an axis every element of the result is a weighted sum of a few elements ("taps") of the
input, at places that the sizes alone decide. Both are computed here, in float64. Frames, modes and
roundings have the names of ONNX's Resize. TVM's operator keeps the plain forms: it takes scales
for quotients of sizes, which they are not where an extent is rounded, and has no antialiasing,
regions or symmetric frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.relax import op

from tvm_tile.frontend.ops.resampling import Taps, far_weight, near_weight, resampled
from tvm_tile.frontend.ops.values import Value, along, constant, dtype_of, shape_of

_PLAIN_FRAMES = ("half_pixel", "align_corners", "asymmetric")  # that TVM's operator has
_MOST_EXACT = 4  # taps up to which weights of 0 are multiplied, as the formulas have it


@dataclass(frozen=True, slots=True)
class ResizedAxis:
    """How one axis is resized.

    Attributes:
        axis: its number.
        extent: of the input.
        size: of the result.
        scale: result's elements per input's element; their quotient up to rounding.
        start: where the region of interest starts, as a share of the input.
        end: where it ends.
    """

    axis: int
    extent: int
    size: int
    scale: float
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True, slots=True)
class Interpolation:
    """How the elements of an image of another size follow from those that there are.

    Attributes:
        mode: ``nearest``, ``linear`` or ``cubic``.
        frame: where in the image an element of the result lies.
        rounding: to the nearest element.
        alpha: the coefficient of the cubic polynomials.
        exclude: whether weights of elements beyond the borders are left out.
        antialias: whether filters are as wide as the steps of a smaller result.
        extrapolation: the value outside the region of interest.
    """

    mode: str
    frame: str
    rounding: str = "floor"
    alpha: float = -0.5
    exclude: bool = False
    antialias: bool = False
    extrapolation: float = 0.0


def interpolated(
    builder: relax.BlockBuilder, x: Value, axes: Sequence[ResizedAxis], how: Interpolation
) -> Value:
    """An image of another size, of the same element type; integers are rounded to even.

    Raises:
        ValueError: there is no such mode, frame or rounding.
    """
    if how.mode not in ("nearest", "linear", "cubic"):
        raise ValueError(f"mode {how.mode}")
    axes = [a for a in axes if (a.size, a.scale, a.start, a.end) != (a.extent, 1, 0.0, 1.0)]
    if not axes:
        return x
    if _is_plain(x, axes, how):
        whole = list(shape_of(x))
        for axis in axes:
            whole[axis.axis] = axis.size
        resized = op.image.resize2d(
            x,
            tuple(whole[2:]),
            layout="NCHW",
            method="nearest_neighbor" if how.mode == "nearest" else how.mode,
            coordinate_transformation_mode=how.frame,
            rounding_method=how.rounding,
        )
        return builder.emit(resized)
    dtype, rank = dtype_of(x), len(shape_of(x))
    is_exact = how.mode == "nearest" or dtype in ("float32", "float64")
    value = x if is_exact else builder.emit(op.astype(x, "float32"))
    centers = {axis.axis: _centers(how.frame, axis) for axis in axes}
    value = resampled(builder, value, {a.axis: _taps(how, a, centers[a.axis]) for a in axes})
    if how.frame == "tf_crop_and_resize":
        fill = constant(how.extrapolation, dtype_of(value))
        for a in axes:
            line = along(constant(_is_outside(centers[a.axis], a), "bool"), a.axis, rank)
            value = builder.emit(op.where(line, fill, value))
    if dtype == dtype_of(value):
        return value
    if "int" in dtype:
        bounds = np.iinfo(dtype)
        value = builder.emit(op.clip(builder.emit(op.round(value)), bounds.min, bounds.max))
    return builder.emit(op.astype(value, dtype))


def _is_plain(x: Value, axes: Sequence[ResizedAxis], how: Interpolation) -> bool:
    """Whether TVM's own operator computes the same, which schedules know better."""
    if how.antialias or how.exclude or how.frame not in _PLAIN_FRAMES:
        return False
    if len(shape_of(x)) != 4 or min(a.axis for a in axes) < 2 or dtype_of(x) != "float32":
        return False
    if any(abs(a.scale * a.extent - a.size) > 1e-6 or 1 in (a.extent, a.size) for a in axes):
        return False
    # Elsewhere places fall beside or on ties, where float32 decides.
    whole = all(float(a.scale).is_integer() for a in axes)
    return how.mode == "linear" or (how.mode == "nearest" and whole)


def _is_outside(centers: np.ndarray, axis: ResizedAxis) -> np.ndarray:
    return (centers < 0) | (centers > axis.extent - 1)


def _taps(how: Interpolation, axis: ResizedAxis, centers: np.ndarray) -> Taps:
    if how.frame == "tf_crop_and_resize":
        centers = np.where(_is_outside(centers, axis), 0.0, centers)
    if how.mode == "nearest":
        places = np.clip(_nearest(how.rounding, centers), 0, axis.extent - 1)
        return Taps(places[:, None], np.ones((axis.size, 1)))
    is_cubic = how.mode == "cubic"
    scale = min(axis.scale, 1.0) if how.antialias else 1.0
    reach = (2 if is_cubic else 1) / scale
    first = np.floor(centers - reach).astype(int) + 1
    places = first[:, None] + np.arange(int(np.ceil(2 * reach)) if scale < 1 else round(2 * reach))
    distance = np.abs(places - centers[:, None]) * scale
    weights = _cubic(distance, how.alpha) if is_cubic else np.maximum(1 - distance, 0.0)
    inside = (places >= 0) & (places < axis.extent)
    if how.exclude:
        weights = np.where(inside, weights, 0.0)
    if how.antialias or how.exclude:
        total = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(total == 0, 1.0, total)
    places = np.clip(places, 0, axis.extent - 1)
    if places.shape[1] > _MOST_EXACT:
        places = np.where(weights == 0, -1, places)
    return Taps(places, weights)


def _centers(frame: str, axis: ResizedAxis) -> np.ndarray:
    """For each element of the result its place in the input, as ONNX defines the frames."""
    x = np.arange(axis.size, dtype=np.float64)
    length = axis.scale * axis.extent  # of the result before rounding
    last = axis.extent - 1
    if frame == "asymmetric":
        return x / axis.scale
    if frame == "align_corners":
        return x * 0 if length == 1 else x * last / (length - 1)
    if frame == "tf_crop_and_resize":
        if length == 1:
            return x * 0 + (axis.start + axis.end) * last / 2
        return axis.start * last + x * (axis.end - axis.start) * last / (length - 1)
    half = (x + 0.5) / axis.scale - 0.5
    if frame == "half_pixel":
        return half
    if frame == "pytorch_half_pixel":
        return x * 0 if axis.size == 1 else half
    if frame == "half_pixel_symmetric":
        return axis.extent / 2 * (1 - axis.size / length) + half
    raise ValueError(f"coordinate_transformation_mode {frame}")


def _nearest(rounding: str, centers: np.ndarray) -> np.ndarray:
    # Quotients of small integers, rounded by float64, are meant to be exact.
    centers = np.where(np.abs(centers - np.round(centers)) < 1e-9, np.round(centers), centers)
    rounded: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda c: np.ceil(c - 0.5),
        "round_prefer_ceil": lambda c: np.floor(c + 0.5),
    }
    if rounding not in rounded:
        raise ValueError(f"nearest_mode {rounding}")
    result: np.ndarray = rounded[rounding](centers).astype(int)
    return result


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    near, far = near_weight(distance, a), far_weight(distance, a)
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
