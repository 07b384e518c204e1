"""Boxes around what is found in images."""

from __future__ import annotations

from functools import partial

import numpy as np
from tvm import topi
from tvm.relax import op

from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.elementwise import rounded_from_zero
from tvm_tile.frontend.relay.operators.images import require_exact
from tvm_tile.frontend.relay.values import (
    cast,
    clipped,
    constant,
    dtype_of,
    permuted,
    reshaped,
    shape_of,
    sliced,
)

_BOX = 4  # numbers
_IMAGES = 4  # dimensions


def _multibox_prior(call: OperatorCall) -> Value:
    """Boxes about the centre of each cell of a grid: of some sizes, the first in some ratios."""
    attributes = call.attributes
    _, _, rows, columns = shape_of(call.arguments[0])
    sizes, ratios, steps, offsets = (
        np.array(attributes[name], "float64") for name in ("sizes", "ratios", "steps", "offsets")
    )
    step_y, step_x = (
        step if step > 0 else 1 / count for step, count in zip(steps, (rows, columns), strict=True)
    )
    heights = np.concatenate([sizes, sizes[0] / np.sqrt(ratios[1:])]) / 2
    widths = np.concatenate([sizes, sizes[0] * np.sqrt(ratios[1:])]) / 2 * rows / columns
    y = (np.arange(rows)[:, None, None] + offsets[0]) * step_y
    x = (np.arange(columns)[None, :, None] + offsets[1]) * step_x
    parts = np.broadcast_arrays(x - widths, y - heights, x + widths, y + heights)
    boxes = np.stack(parts, -1).reshape(1, -1, _BOX)
    return constant(np.clip(boxes, 0, 1) if attributes["clip"] else boxes, "float32")


def first_rows(call: OperatorCall, rows: Value, is_kept: Value) -> tuple[Value, Value, Value]:
    """The rows of each batch that are kept, in order; behind them -1.

    Args:
        call: the operator's.
        rows: [batch, rows, numbers].
        is_kept: [batch, rows].

    Returns:
        How many there are, the rows, and their places before, each in int32.
    """
    batch, count, _ = shape_of(rows)
    place = constant(np.arange(count)[None], "int32")
    kept = cast(call, is_kept, "int32")
    total = call.emit(op.sum(kept, axis=[1], keepdims=True))
    last = op.multiply(op.subtract(constant(1, "int32"), kept), constant(count, "int32"))
    order = call.emit(op.argsort(call.emit(op.add(last, place)), axis=1, dtype="int32"))
    wide = call.emit(op.broadcast_to(reshaped(call, order, (batch, count, 1)), shape_of(rows)))
    moved = call.emit(op.gather_elements(rows, wide, axis=1))
    is_filled = call.emit(op.less(place, total))
    filled = reshaped(call, is_filled, (batch, count, 1))
    found = call.emit(op.where(filled, moved, constant(-1, dtype_of(rows))))
    places = call.emit(op.where(is_filled, order, constant(-1, "int32")))
    return reshaped(call, total, (batch,)), found, places


def column(call: OperatorCall, rows: Value, index: int) -> Value:
    """One number of each row."""
    batch, count, length = shape_of(rows)
    if not 0 <= index < length:
        raise ValueError(f"number {index} of rows of {length}")
    one = sliced(call, rows, [range(batch), range(count), range(index, index + 1)])
    return reshaped(call, one, (batch, count))


def _get_valid_counts(call: OperatorCall) -> tuple[Value, Value, Value]:
    rows, dtype = call.arguments[0], dtype_of(call.arguments[0])
    require_exact(call, rows)
    score, identity = (int(call.attributes[name]) for name in ("score_index", "id_index"))
    if len(call.arguments) > 1:
        least = reshaped(call, cast(call, call.arguments[1], dtype), ())
    else:  # up to TVM 0.7
        least = constant(float(call.attributes["score_threshold"]), dtype)
    kept = call.emit(op.greater(column(call, rows, score), least))
    if identity >= 0:
        known = op.greater_equal(column(call, rows, identity), constant(0, dtype))
        kept = call.emit(op.logical_and(kept, known))
    return first_rows(call, rows, kept)


def _multibox_transform_loc(call: OperatorCall) -> tuple[Value, Value]:
    """Boxes with a class and its score, from scores of classes and shifts of anchors."""
    scores, shifts, anchors = call.arguments
    attributes = call.attributes
    require_exact(call, scores)
    dtype = dtype_of(scores)
    batch, classes, count = shape_of(scores)
    if classes < 2 or attributes.get("keep_background"):
        raise NotImplementedError("boxes of the background")
    real = sliced(call, scores, [range(batch), range(1, classes), range(count)])
    best = call.emit(op.max(real, axis=[1]))
    least = max(float(attributes["threshold"]), np.nextafter(np.float32(-1), np.float32(0)))
    kept = call.emit(op.greater_equal(best, constant(least, dtype)))
    which = cast(call, call.emit(op.argmax(real, axis=1)), dtype)
    corners = _corners(call, reshaped(call, shifts, (batch, count, _BOX)), anchors)
    heads = [reshaped(call, value, (batch, count, 1)) for value in (which, best)]
    rows = call.emit(op.concat([*heads, corners], axis=2))
    total, found, _ = first_rows(call, rows, kept)
    return found, total


def _corners(call: OperatorCall, shifts: Value, anchors: Value) -> Value:
    """The corners of anchors, moved and stretched."""
    dtype, lead = dtype_of(shifts), [range(extent) for extent in shape_of(anchors)[:2]]
    low = sliced(call, anchors, [*lead, range(2)])
    high = sliced(call, anchors, [*lead, range(2, _BOX)])
    extent = call.emit(op.subtract(high, low))
    half = constant(0.5, dtype)
    center = call.emit(op.multiply(op.add(low, high), half))
    shares = [float(share) for share in call.attributes["variances"]]
    scaled = call.emit(op.multiply(shifts, constant(shares, dtype)))
    own = [range(n) for n in shape_of(shifts)[:2]]
    move = sliced(call, scaled, [*own, range(2)])
    stretch = sliced(call, scaled, [*own, range(2, _BOX)])
    middle = call.emit(op.add(op.multiply(move, extent), center))
    reach = call.emit(op.multiply(op.multiply(op.exp(stretch), extent), half))
    both = [call.emit(op.subtract(middle, reach)), call.emit(op.add(middle, reach))]
    corners = call.emit(op.concat(both, axis=2))
    return clipped(call, corners, 0, 1) if call.attributes["clip"] else corners


def _safe_regions(call: OperatorCall, images: int) -> tuple[Value, Value]:
    """Each region's image, cut to one that there is, as TVM reads it unseen; its corners."""
    regions = call.arguments[1]
    number, width = shape_of(regions)
    if width != 1 + _BOX:
        raise ValueError(f"regions of {width} numbers")
    which = sliced(call, regions, [range(number), range(1)])
    corners = sliced(call, regions, [range(number), range(1, width)])
    return clipped(call, which, 0, images - 1), corners


def _roi_align(call: OperatorCall) -> Value:
    x, _ = call.arguments
    attributes = call.attributes
    require_exact(call, x)
    ratio, layout = int(attributes["sample_ratio"]), str(attributes["layout"])
    mode = attributes["mode"]
    mode = {0: "avg", 1: "max"}.get(mode, mode)
    if ratio < 1 or layout != "NCHW" or mode not in ("avg", "max") or attributes.get("aligned"):
        raise NotImplementedError(f"{ratio} samples by {mode} in layout {layout}")
    loops = partial(
        topi.vision.roi_align_nchw,
        pooled_size=[int(size) for size in attributes["pooled_size"]],
        spatial_scale=float(attributes["spatial_scale"]),
        mode=mode,
        sample_ratio=ratio,
    )
    safe = call.emit(op.concat([*_safe_regions(call, shape_of(x)[0])], axis=1))
    return call.compute(loops, x, safe, name="roi_align")


def _roi_pool(call: OperatorCall) -> Value:
    x, regions = call.arguments
    attributes = call.attributes
    require_exact(call, x)
    if str(attributes["layout"]) != "NCHW":
        raise NotImplementedError(f"layout {attributes['layout']}")
    which, corners = _safe_regions(call, shape_of(x)[0])
    scale = constant(float(attributes["spatial_scale"]), dtype_of(regions))
    # TVM rounds halves up, where Relay rounds them away from zero: what is whole stays.
    whole = rounded_from_zero(call, call.emit(op.multiply(corners, scale)))
    loops = partial(
        topi.vision.roi_pool_nchw,
        pooled_size=[int(size) for size in attributes["pooled_size"]],
        spatial_scale=1.0,
    )
    return call.compute(loops, x, call.emit(op.concat([which, whole], axis=1)), name="roi_pool")


def _yolo_reorg(call: OperatorCall) -> Value:
    """Blocks to channels, of the tensor as Darknet reads it: with fewer, larger channels."""
    (x,) = call.arguments
    step = int(call.attributes["stride"])
    batch, channels, rows, columns = shape_of(x)
    block = step * step
    if channels % block or rows % step or columns % step:
        raise ValueError(f"an image of {list(shape_of(x))} in steps of {step}")
    wide = reshaped(call, x, (batch, channels // block, rows, step, columns, step))
    moved = permuted(call, wide, [0, 3, 5, 1, 2, 4])
    return reshaped(call, moved, (batch, channels * block, rows // step, columns // step))


CONVERTERS: dict[str, Converter] = {
    "vision.get_valid_counts": _get_valid_counts,
    "vision.multibox_prior": _multibox_prior,
    "vision.multibox_transform_loc": _multibox_transform_loc,
    "vision.roi_align": _roi_align,
    "vision.roi_pool": _roi_pool,
    "vision.yolo_reorg": _yolo_reorg,
}
