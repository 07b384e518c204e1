"""ONNX's samples at places that are data: of boxes of a plane, and of grids.

TVM's converter of RoiAlign moves boxes by half an element before it scales them, reads planes
whose number is out of range, and takes the largest interpolated value where ONNX takes the largest
weighted element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx
from tvm.relax import op

from tvm_tile.frontend.onnx.node import Node
from tvm_tile.frontend.ops.sampling import Filter, PaddingMode, grid_sample
from tvm_tile.frontend.ops.values import Value, dtype_of, shape_of


def convert_roi_align(node: Node) -> Value:
    """Convert a node of RoiAlign."""
    x, boxes, planes = node.inputs
    batch, channels, *_ = shape_of(x)
    size = [int(node.attrs.get(name, 1)) for name in ("output_height", "output_width")]
    ratio = int(node.attrs.get("sampling_ratio", 0))
    scale = float(node.attrs.get("spatial_scale", 1.0))
    mode = node.text("mode", "avg")
    frame = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    frame = node.text("coordinate_transformation_mode", frame)
    if mode not in ("avg", "max") or frame not in ("half_pixel", "output_half_pixel"):
        raise ValueError(f"mode {mode}, coordinate_transformation_mode {frame}")
    dtype, count = dtype_of(x), shape_of(boxes)[0]

    def number(value: float) -> Any:
        return tirx.const(value, dtype)

    def aligned(x: te.Tensor, boxes: te.Tensor, planes: te.Tensor) -> te.Tensor:
        def element(n: Any, c: Any, i: Any, j: Any) -> Any:
            offset = number(0.5 if frame == "half_pixel" else 0.0)
            starts, steps, grids = [], [], []
            for axis, place in ((1, i), (0, j)):
                low = boxes[n, axis] * number(scale) - offset
                extent = boxes[n, axis + 2] * number(scale) - offset - low
                if frame == "output_half_pixel":
                    extent = tirx.max(extent, number(1))
                step = extent / number(size[1 - axis])
                # As many samples as a bin has elements, where no number is given.
                grid = tirx.const(ratio, "int32") if ratio else tirx.Cast("int32", tirx.ceil(step))
                starts.append(low + tirx.Cast(dtype, place) * step)
                steps.append(step)
                grids.append(grid)
            taps = [te.reduce_axis((0, grid), name=f"s{k}") for k, grid in enumerate(grids)]
            place = [
                start + (tirx.Cast(dtype, tap) + number(0.5)) * step / tirx.Cast(dtype, grid)
                for start, step, grid, tap in zip(starts, steps, grids, taps, strict=True)
            ]
            plane = tirx.max(tirx.min(planes[n], batch - 1), 0)
            near = [te.reduce_axis((0, 2), name=f"n{k}") for k in range(2)]
            term = _neighbour(x, (plane, c), place, [axis.var for axis in near])
            if mode == "max":
                return te.max(term, [*taps, *near])
            samples = tirx.Cast(dtype, tirx.max(grids[0] * grids[1], 1))
            return te.sum(term / samples, [*taps, *near])

        return te.compute((count, channels, *size), element, name="roi_align")

    return node.compute(
        aligned, x, op.astype(boxes, dtype), op.astype(planes, "int32"), name="roi_align"
    )


def _neighbour(
    x: te.Tensor, lead: Sequence[Any], places: Sequence[Any], near: Sequence[Any]
) -> Any:
    """An element next to a place, below it (0) or above it (1) along each axis, times its weight;
    zero far outside."""

    def number(value: float) -> Any:
        return tirx.const(value, x.dtype)

    far, found, weight = [], [], number(1)
    for place, extent, side in zip(places, x.shape[2:], near, strict=True):
        far += [place < -1, place > extent]
        inside = tirx.max(tirx.min(place, tirx.Cast(x.dtype, extent - 1)), number(0))
        low = tirx.floor(inside)
        share = inside - low
        weight = weight * tirx.Select(side == 0, number(1) - share, share)
        found.append(tirx.min(tirx.Cast("int32", low) + side, extent - 1))
    return tirx.if_then_else(tirx.any(*far), number(0), weight * x(*lead, *found))


def convert_grid_sample(node: Node) -> Value:
    """Convert a node of GridSample."""
    kind = Filter(node.text("mode", "linear").removeprefix("bi"))
    padding = PaddingMode(node.text("padding_mode", "zeros"))
    corners = bool(node.attrs.get("align_corners", 0))
    x, grid = node.inputs
    return grid_sample(node.builder, x, grid, kind, padding, corners=corners)
