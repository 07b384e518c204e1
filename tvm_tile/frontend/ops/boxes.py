"""Boxes in a plane, within kernels."""

from __future__ import annotations

from typing import Any

from tvm import tirx


def overlap(boxes: Any, batch: Any, first: Any, second: Any) -> Any:
    """The area of two boxes' intersection over that of their union; 0 where the boxes have none.

    Args:
        boxes: a buffer [batches, boxes, 4], whose rows are any two opposite corners.
        batch: of the boxes.
        first: the number of the one box.
        second: the number of the other box.
    """
    zero = tirx.const(0, str(boxes.dtype))

    def ends(box: Any, axis: int) -> tuple[Any, Any]:
        one, other = boxes[batch, box, axis], boxes[batch, box, axis + 2]
        return tirx.min(one, other), tirx.max(one, other)

    def area(box: Any) -> Any:
        (left, right), (top, bottom) = ends(box, 0), ends(box, 1)
        return (right - left) * (bottom - top)

    def common(axis: int) -> Any:
        (low, high), (other_low, other_high) = ends(first, axis), ends(second, axis)
        return tirx.max(tirx.min(high, other_high) - tirx.max(low, other_low), zero)

    shared = common(0) * common(1)
    union = area(first) + area(second) - shared
    return tirx.if_then_else(union > zero, shared / union, zero)
