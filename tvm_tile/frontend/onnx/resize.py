"""ONNX's Resize and Upsample: one axis after the other, each by taps and weights.

Along an axis every element of the result is a weighted sum of a few elements ("taps") of the
input, at places that the sizes alone decide. Both are computed here, in float64; what is left
are gathers at constant places, or, for the wide filters of antialiasing, a loop over them.
TVM's converter keeps the plain forms: it takes scales for quotients of sizes, which they are not
where an extent is rounded, and has no antialiasing, axes, policies or symmetric frame.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm.relax import op

from tvm_tile.frontend.onnx.node import Node
from tvm_tile.frontend.ops.values import Value, along, constant, counted_axis, dtype_of, shape_of
from tvm_tile.frontend.resampling import far_weight, near_weight, weighted_sums

# Up to so many taps are gathers that fuse with their sum.
_MAX_GATHERED = 4


@dataclass(frozen=True, slots=True)
class Axis:
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
class Taps:
    """What one axis of the result is made of.

    Attributes:
        places: (size, taps): elements of the input.
        weights: (size, taps) of float64.
        outside: (size,): these elements have the extrapolation value; ``None`` for no such mode.
    """

    places: np.ndarray
    weights: np.ndarray
    outside: np.ndarray | None


def convert_resize(node: Node) -> Value | None:
    """Convert Resize (from opset 10 on) or Upsample."""
    x = node.inputs[0]
    axes = _axes(node, shape_of(x))
    if _is_plain(node, axes, len(x.ty.shape)):
        return None
    if not axes:
        return x
    dtype = dtype_of(x)
    value = x if dtype in ("float32", "float64") else node.emit(op.astype(x, "float32"))
    for axis in axes:
        taps = _taps(node, axis)
        value = node.emit(_resized(node, value, axis, taps))
        if taps.outside is not None:
            line = along(constant(taps.outside, "bool"), axis.axis, len(x.ty.shape))
            fill = constant(float(node.attrs.get("extrapolation_value", 0.0)), dtype_of(value))
            value = node.emit(op.where(line, fill, value))
    if dtype == dtype_of(value):
        return value
    if "int" in dtype:
        bounds = np.iinfo(dtype)
        value = op.clip(
            value if _mode(node) == "nearest" else op.round(value), bounds.min, bounds.max
        )
    return op.astype(value, dtype)


def _mode(node: Node) -> str:
    return node.text("mode", "nearest")


def _frame(node: Node) -> str:
    if node.op_type == "Upsample" or node.opset < 11:
        return "asymmetric"
    return node.text("coordinate_transformation_mode", "half_pixel")


def _axes(node: Node, shape: tuple[int, ...]) -> list[Axis]:
    """Every axis that changes."""
    is_old = node.op_type == "Upsample" or node.opset < 11
    axes = node.attrs.get("axes", range(len(shape)))
    listed = [counted_axis(axis, len(shape), "axes") for axis in axes]
    roi = None if is_old else node.parameter(1, "a region of interest")
    scales = node.parameter(1 if is_old else 2, "scales")
    if scales is None and "scales" in node.attrs:
        scales = np.array(node.attrs["scales"])
    sizes = None if is_old else node.parameter(3, "sizes")
    if sizes is not None and sizes.size:
        wanted = [int(size) for size in sizes]
        factors = [size / shape[axis] for size, axis in zip(wanted, listed, strict=True)]
        policy = node.text("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factor = min(factors) if policy == "not_larger" else max(factors)
            factors = [factor] * len(factors)
            wanted = [int(factor * shape[axis] + 0.5) for axis in listed]
    elif scales is not None and scales.size:
        factors = [float(scale) for scale in scales]
        wanted = [
            int(np.floor(np.float32(shape[axis]) * scale))
            for axis, scale in zip(listed, scales.astype(np.float32), strict=True)
        ]
    else:
        raise NotImplementedError("neither scales nor sizes")
    if min((*factors, *wanted), default=1) <= 0:
        raise ValueError(f"sizes {wanted} by factors {factors}")
    regions = np.array([*[0.0] * len(listed), *[1.0] * len(listed)])
    if _frame(node) == "tf_crop_and_resize":
        if roi is None or roi.size != 2 * len(listed):
            raise ValueError("a frame tf_crop_and_resize without a region of interest")
        regions = roi.astype(np.float64)
    starts, ends = np.split(regions, 2)
    every = [
        Axis(axis, shape[axis], size, factor, float(start), float(end))
        for axis, size, factor, start, end in zip(
            listed, wanted, factors, starts, ends, strict=True
        )
    ]
    return [
        a for a in every if a.size != a.extent or a.scale != 1 or (a.start, a.end) != (0.0, 1.0)
    ]


def _is_plain(node: Node, axes: list[Axis], rank: int) -> bool:
    """Whether TVM's own operator computes the same, which schedules know better."""
    if node.op_type == "Upsample" or node.opset < 11 or not axes:
        return False
    attrs = node.attrs
    special = ("antialias", "exclude_outside", "axes", "keep_aspect_ratio_policy")
    if rank != 4 or any(name in attrs for name in special) or min(a.axis for a in axes) < 2:
        return False
    if dtype_of(node.inputs[0]) != "float32" or _frame(node) not in (
        *("half_pixel", "align_corners", "asymmetric"),
    ):
        return False
    if any(abs(a.scale * a.extent - a.size) > 1e-6 or 1 in (a.extent, a.size) for a in axes):
        return False
    # Elsewhere places fall beside or on ties, where float32 decides.
    whole = all(float(a.scale).is_integer() for a in axes)
    return _mode(node) == "linear" or (_mode(node) == "nearest" and whole)


def _resized(node: Node, x: Value, axis: Axis, taps: Taps) -> Value:
    rank, dtype = len(x.ty.shape), dtype_of(x)
    if taps.places.shape[1] > _MAX_GATHERED:
        places = np.where(taps.weights == 0, -1, taps.places)
        tables = constant(places, "int32"), constant(taps.weights, dtype)
        return node.compute(weighted_sums(axis.axis), x, *tables, name="resize")
    total = None
    for places, weights in zip(taps.places.T, taps.weights.T, strict=True):
        term = op.take(x, constant(places, "int64"), axis.axis)
        if not (weights == 1).all():
            term = op.multiply(term, along(constant(weights, dtype), axis.axis, rank))
        total = term if total is None else op.add(total, term)
    return total


def _taps(node: Node, axis: Axis) -> Taps:
    centers = _centers(_frame(node), axis)
    outside = None
    if _frame(node) == "tf_crop_and_resize":
        outside = (centers < 0) | (centers > axis.extent - 1)
        centers = np.where(outside, 0.0, centers)
    if _mode(node) == "nearest":
        places = np.clip(_nearest(node, centers), 0, axis.extent - 1)
        return Taps(places[:, None], np.ones((axis.size, 1)), outside)
    antialias = bool(node.attrs.get("antialias", 0))
    scale = min(axis.scale, 1.0) if antialias else 1.0
    reach = (2 if _mode(node) == "cubic" else 1) / scale
    first = np.floor(centers - reach).astype(int) + 1
    places = first[:, None] + np.arange(int(np.ceil(2 * reach)) if scale < 1 else round(2 * reach))
    distance = np.abs(places - centers[:, None]) * scale
    if _mode(node) == "cubic":
        weights = _cubic(distance, float(node.attrs.get("cubic_coeff_a", -0.75)))
    else:
        weights = np.maximum(1 - distance, 0.0)
    inside = (places >= 0) & (places < axis.extent)
    if node.attrs.get("exclude_outside", 0):
        weights = np.where(inside, weights, 0.0)
    if antialias or node.attrs.get("exclude_outside", 0):
        total = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(total == 0, 1.0, total)
    return Taps(np.clip(places, 0, axis.extent - 1), weights, outside)


def _centers(frame: str, axis: Axis) -> np.ndarray:
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


def _nearest(node: Node, centers: np.ndarray) -> np.ndarray:
    if node.op_type == "Upsample" or node.opset < 11:
        rounding = "floor"
    else:
        rounding = node.text("nearest_mode", "round_prefer_floor")
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
