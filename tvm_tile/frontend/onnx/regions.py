"""ONNX's RoiAlign: boxes of a plane, each sampled into as many bins as the result has elements.

TVM's converter moves boxes by half an element before it scales them, reads planes whose number
is out of range, and takes the largest interpolated value where ONNX takes the largest weighted
element.
"""

from __future__ import annotations

import functools
from typing import Any

from tvm import te, tirx
from tvm.relax import op

from tvm_tile.frontend.onnx.node import Node
from tvm_tile.frontend.ops.values import Value, dtype_of, shape_of


def convert_roi_align(node: Node) -> Value:
    """Convert a node of RoiAlign."""
    x, boxes, planes = node.inputs
    batch, channels, height, width = shape_of(x)
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
            corners = _corners(x, (plane, c), place, (height, width))
            if mode == "max":
                return te.max(functools.reduce(tirx.max, corners), taps)
            samples = tirx.Cast(dtype, tirx.max(grids[0] * grids[1], 1))
            return te.sum(functools.reduce(lambda a, b: a + b, corners) / samples, taps)

        return te.compute((count, channels, *size), element, name="roi_align")

    return node.compute(
        aligned, x, op.astype(boxes, dtype), op.astype(planes, "int32"), name="roi_align"
    )


def _corners(
    x: te.Tensor, before: tuple[Any, ...], place: list[Any], size: tuple[int, int]
) -> list[Any]:
    """The four elements around a place, each times its weight; zeros far outside."""
    dtype = x.dtype
    sides = []
    outside: Any = tirx.const(False, "bool")
    for p, extent in zip(place, size, strict=True):
        outside = tirx.any(outside, p < -1, p > extent)
        inside = tirx.max(tirx.min(p, tirx.const(extent - 1, dtype)), tirx.const(0, dtype))
        low = tirx.floor(inside)
        high = tirx.min(low + 1, tirx.const(extent - 1, dtype))
        share = inside - low
        sides.append([(low, tirx.const(1, dtype) - share), (high, share)])
    return [
        tirx.if_then_else(
            outside,
            tirx.const(0, dtype),
            y_share * x_share * x(*before, tirx.Cast("int32", y), tirx.Cast("int32", z)),
        )
        for y, y_share in sides[0]
        for z, x_share in sides[1]
    ]
