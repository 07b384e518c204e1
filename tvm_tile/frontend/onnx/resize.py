"""ONNX's Resize and Upsample."""

from __future__ import annotations

import numpy as np

from tvm_tile.frontend.onnx.node import Node
from tvm_tile.frontend.ops.resizing import Interpolation, ResizedAxis, interpolated
from tvm_tile.frontend.ops.values import Value, counted_axis, shape_of


def convert_resize(node: Node) -> Value:
    """Convert Resize (from opset 10 on) or Upsample."""
    attrs = node.attrs
    is_old = node.op_type == "Upsample" or node.opset < 11
    frame = node.text("coordinate_transformation_mode", "half_pixel")
    how = Interpolation(
        node.text("mode", "nearest"),
        "asymmetric" if is_old else frame,
        "floor" if is_old else node.text("nearest_mode", "round_prefer_floor"),
        float(attrs.get("cubic_coeff_a", -0.75)),
        bool(attrs.get("exclude_outside", 0)),
        bool(attrs.get("antialias", 0)),
        float(attrs.get("extrapolation_value", 0.0)),
    )
    x = node.inputs[0]
    return interpolated(node.builder, x, _axes(node, shape_of(x), how.frame, is_old), how)


def _axes(node: Node, shape: tuple[int, ...], frame: str, is_old: bool) -> list[ResizedAxis]:
    """All axes that may change."""
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
    if frame == "tf_crop_and_resize":
        if roi is None or roi.size != 2 * len(listed):
            raise ValueError("a frame tf_crop_and_resize without a region of interest")
        regions = roi.astype(np.float64)
    starts, ends = np.split(regions, 2)
    return [
        ResizedAxis(axis, shape[axis], size, factor, float(start), float(end))
        for axis, size, factor, start, end in zip(
            listed, wanted, factors, starts, ends, strict=True
        )
    ]
