"""Boxes around what is found in images."""

from __future__ import annotations

from functools import partial

import numpy as np
from tvm import relax, tirx, topi
from tvm.relax import op
from tvm.script import tirx as T

from tvm_tile.frontend.ops.boxes import overlap as overlap_of
from tvm_tile.frontend.ops.values import constant, dtype_of, shape_of
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.elementwise import rounded_from_zero
from tvm_tile.frontend.relay.operators.products import require_exact
from tvm_tile.frontend.relay.operators.reshapes import blocks_as_channels

_BOX = 4  # numbers


def _multibox_prior(call: OperatorCall, x: Value) -> Value:
    """Boxes about the centre of each cell of a grid: of some sizes, the first in some ratios."""
    _, _, rows, columns = shape_of(x)
    sizes, ratios, steps, offsets = (
        np.array(call.attributes[n], "float64") for n in ("sizes", "ratios", "steps", "offsets")
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
    return constant(np.clip(boxes, 0, 1) if call.attributes["clip"] else boxes, "float32")


def _first_rows(call: OperatorCall, rows: Value, is_kept: Value) -> tuple[Value, Value, Value]:
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
    kept = call.cast(is_kept, "int32")
    total = call.emit(op.sum(kept, axis=[1], keepdims=True))
    last = op.multiply(op.subtract(constant(1, "int32"), kept), constant(count, "int32"))
    order = call.emit(op.argsort(op.add(last, place), axis=1, dtype="int32"))
    is_filled = call.emit(op.less(place, total))
    filled, moved = call.reshaped(is_filled, (batch, count, 1)), _reordered(call, rows, order)
    found = call.emit(op.where(filled, moved, constant(-1, dtype_of(rows))))
    places = call.emit(op.where(is_filled, order, constant(-1, "int32")))
    return call.reshaped(total, (batch,)), found, places


def _reordered(call: OperatorCall, rows: Value, order: Value) -> Value:
    """Rows of each batch in another order."""
    wide = op.broadcast_to(call.reshaped(order, (*shape_of(order), 1)), shape_of(rows))
    return call.emit(op.gather_elements(rows, wide, axis=1))


def _column(call: OperatorCall, rows: Value, index: int) -> Value:
    """One number of each row."""
    batch, count, length = shape_of(rows)
    if not 0 <= index < length:
        raise ValueError(f"number {index} of rows of {length}")
    return call.reshaped(call.part(rows, 2, range(index, index + 1)), (batch, count))


def _get_valid_counts(
    call: OperatorCall, rows: Value, *given: Value, score_index: int, id_index: int
) -> tuple[Value, Value, Value]:
    """The rows whose scores are above a threshold, which was an attribute up to TVM 0.7."""
    require_exact(call, rows)
    dtype = dtype_of(rows)
    (least,) = given or (constant(call.attributes.get("score_threshold", 0), dtype),)
    least = call.reshaped(call.cast(least, dtype), ())
    kept = call.emit(op.greater(_column(call, rows, score_index), least))
    if id_index >= 0:
        known = op.greater_equal(_column(call, rows, id_index), constant(0, dtype))
        kept = call.emit(op.logical_and(kept, known))
    return _first_rows(call, rows, kept)


def _multibox_transform_loc(
    call: OperatorCall, scores: Value, shifts: Value, anchors: Value, *, threshold: float
) -> tuple[Value, Value]:
    """Boxes with a class and its score, from scores of classes and shifts of anchors."""
    require_exact(call, scores)
    dtype = dtype_of(scores)
    batch, classes, count = shape_of(scores)
    if classes < 2 or call.attributes.get("keep_background"):
        raise NotImplementedError("boxes of the background")
    real = call.part(scores, 1, range(1, classes))
    best = call.emit(op.max(real, axis=[1]))
    least = max(float(threshold), np.nextafter(np.float32(-1), np.float32(0)))
    kept = call.emit(op.greater_equal(best, constant(least, dtype)))
    which = call.cast(call.emit(op.argmax(real, axis=1)), dtype)
    corners = _corners(call, call.reshaped(shifts, (batch, count, _BOX)), anchors)
    heads = [call.reshaped(value, (batch, count, 1)) for value in (which, best)]
    total, found, _ = _first_rows(call, call.emit(op.concat([*heads, corners], axis=2)), kept)
    return found, total


def _corners(call: OperatorCall, shifts: Value, anchors: Value) -> Value:
    """The corners of anchors, moved and stretched."""
    dtype = dtype_of(shifts)
    low, high = (call.part(anchors, 2, part) for part in (range(2), range(2, _BOX)))
    extent, half = call.emit(op.subtract(high, low)), constant(0.5, dtype)
    center = call.emit(op.multiply(op.add(low, high), half))
    shares = [float(share) for share in call.attributes["variances"]]
    scaled = call.emit(op.multiply(shifts, constant(shares, dtype)))
    move, stretch = (call.part(scaled, 2, part) for part in (range(2), range(2, _BOX)))
    middle = call.emit(op.add(op.multiply(move, extent), center))
    reach = call.emit(op.multiply(op.multiply(op.exp(stretch), extent), half))
    both = [call.emit(op.subtract(middle, reach)), call.emit(op.add(middle, reach))]
    corners = call.emit(op.concat(both, axis=2))
    return call.clipped(corners, 0, 1) if call.attributes["clip"] else corners


def _safe_regions(call: OperatorCall, images: int) -> tuple[Value, Value]:
    """Each region's image, cut to one that there is, as TVM reads it unseen; its corners."""
    regions = call.arguments[1]
    _, width = shape_of(regions)
    if width != 1 + _BOX:
        raise ValueError(f"regions of {width} numbers")
    which = call.clipped(call.part(regions, 1, range(1)), 0, images - 1)
    return which, call.part(regions, 1, range(1, width))


def _roi_align(
    call: OperatorCall, x: Value, _: Value, *, sample_ratio: int, layout: str, mode: str | int
) -> Value:
    require_exact(call, x)
    attributes, kind = call.attributes, mode if isinstance(mode, str) else ("avg", "max")[mode]
    is_plain = layout == "NCHW" and not attributes.get("aligned")
    if sample_ratio < 1 or not is_plain or kind not in ("avg", "max"):
        raise NotImplementedError(f"{sample_ratio} samples by {kind} in layout {layout}")
    loops = partial(
        topi.vision.roi_align_nchw,
        pooled_size=list(attributes["pooled_size"]),
        spatial_scale=float(attributes["spatial_scale"]),
        mode=kind,
        sample_ratio=sample_ratio,
    )
    safe = call.emit(op.concat([*_safe_regions(call, shape_of(x)[0])], axis=1))
    return call.compute(loops, x, safe, name="roi_align")


def _roi_pool(
    call: OperatorCall, x: Value, regions: Value, *, layout: str, spatial_scale: float
) -> Value:
    require_exact(call, x)
    if layout != "NCHW":
        raise NotImplementedError(f"layout {layout}")
    which, corners = _safe_regions(call, shape_of(x)[0])
    scaled = call.emit(op.multiply(corners, constant(float(spatial_scale), dtype_of(regions))))
    # TVM rounds halves up, where Relay rounds them away from zero: what is whole stays.
    safe = call.emit(op.concat([which, rounded_from_zero(call, scaled)], axis=1))
    sizes = list(call.attributes["pooled_size"])
    loops = partial(topi.vision.roi_pool_nchw, pooled_size=sizes, spatial_scale=1.0)
    return call.compute(loops, x, safe, name="roi_pool")


def _yolo_reorg(call: OperatorCall, x: Value, *, stride: int) -> Value:
    """Blocks to channels, of the tensor as Darknet reads it: with fewer, larger channels."""
    batch, channels, rows, columns = shape_of(x)
    block = stride * stride
    if channels % block or rows % stride or columns % stride:
        raise ValueError(f"an image of {list(shape_of(x))} in steps of {stride}")
    wide = call.reshaped(x, (batch, channels // block, rows * stride, columns * stride))
    made = blocks_as_channels(call, wide, stride)
    return call.reshaped(made, (batch, channels * block, rows // stride, columns // stride))


def _number(call: OperatorCall, name: str, index: int) -> float:
    """A limit, which is an argument, or an attribute in old programs."""
    if index < len(call.arguments):
        return float(call.parameter(index, name).item())
    return float(call.attributes[name])


def _non_max_suppression(
    call: OperatorCall, rows: Value, valid: Value, indices: Value, *_: Value
) -> Value:
    """Non-maximum suppression: the box with the best score stays of those that overlap."""
    require_exact(call, rows)
    batch, count, _numbers = shape_of(rows)
    limit = int(_number(call, "max_output_size", 3))
    overlap = _number(call, "iou_threshold", 4)
    if overlap <= 0:
        raise NotImplementedError(f"iou_threshold {overlap}")
    ordered, order, kept = _by_score(call, rows, call.cast(valid, "int32"))
    stays = _staying(call, ordered, kept, count if limit < 0 else limit, overlap)
    if call.attributes["return_indices"]:
        own = call.emit(op.gather_elements(call.cast(indices, "int32"), order, axis=1))
        known = op.greater_equal(own, constant(0, "int32"))
        wide, known = call.reshaped(own, (batch, count, 1)), call.emit(op.logical_and(stays, known))
        total, found, _places = _first_rows(call, wide, known)
        return call.reshaped(found, (batch, count)), call.reshaped(total, (batch, 1))
    if call.attributes["invalid_to_bottom"]:
        first = op.greater_equal(_column(call, ordered, 0), constant(0, dtype_of(rows)))
        return _first_rows(call, ordered, call.emit(op.logical_and(stays, first)))[1]
    nothing = constant(-1, dtype_of(rows))
    return call.emit(op.where(call.reshaped(stays, (batch, count, 1)), ordered, nothing))


def _by_score(call: OperatorCall, rows: Value, valid: Value) -> tuple[Value, Value, Value]:
    """The valid rows from the best score down, their places before, and which are to be looked at.

    Where several have a score they stay in order.
    """
    batch, count, _ = shape_of(rows)
    place = constant(np.arange(count)[None], "int32")
    number = call.reshaped(valid, (batch, 1))
    scores = _column(call, rows, int(call.attributes["score_index"]))
    is_valid = call.emit(op.less(place, number))
    key = call.emit(op.where(is_valid, scores, constant(-np.inf, dtype_of(rows))))
    order = call.emit(op.argsort(key, axis=1, descending=True, dtype="int32"))
    most = int(call.attributes["top_k"])
    if most > 0:
        number = call.emit(op.minimum(number, constant(most, "int32")))
    return _reordered(call, rows, order), order, call.emit(op.less(place, number))


def _staying(call: OperatorCall, rows: Value, kept: Value, limit: int, overlap: float) -> Value:
    """Which rows stay. One whose score is not positive does, and suppresses none."""
    attributes = call.attributes
    batch, count, _ = shape_of(rows)
    dtype = dtype_of(rows)
    zero = constant(0, dtype)
    identity, start = int(attributes["id_index"]), int(attributes["coord_start"])
    scores = _column(call, rows, int(attributes["score_index"]))
    counts = call.emit(op.greater(scores, zero))
    votes = counts
    classes = call.filled((batch, count), 0, dtype)
    if identity >= 0:
        own = _column(call, rows, identity)
        votes = call.emit(op.logical_and(votes, op.greater_equal(own, zero)))
        classes = classes if attributes["force_suppress"] else own
    corners = call.part(rows, 2, range(start, start + _BOX))
    flags = [call.cast(flag, "int32") for flag in (kept, counts, votes)]
    kernel = call.builder.add_func(
        _suppress(batch, count, limit, overlap, dtype), "non_max_suppression"
    )
    made = relax.call_tir(
        kernel, (corners, classes, *flags), relax.TensorType((batch, count), "int32")
    )
    return call.cast(call.emit(made), "bool")


def _suppress(batch: int, count: int, limit: int, overlap: float, dtype: str) -> tirx.PrimFunc:
    """For each row in turn: whether it stays, as no better one that voted overlaps it."""

    @T.prim_func(private=True, s_tir=True)
    def non_max_suppression(  # type: ignore[no-untyped-def]
        a: T.handle, b: T.handle, c: T.handle, d: T.handle, e: T.handle, f: T.handle
    ):
        boxes = T.match_buffer(a, (batch, count, 4), dtype)
        classes = T.match_buffer(b, (batch, count), dtype)
        kept = T.match_buffer(c, (batch, count), "int32")
        counts = T.match_buffer(d, (batch, count), "int32")
        votes = T.match_buffer(e, (batch, count), "int32")
        stays = T.match_buffer(f, (batch, count), "int32")
        for row in range(batch):
            with T.sblock("suppress"):
                v = T.axis.spatial(batch, row)
                T.reads(boxes[v, 0:count, 0:4], classes[v, 0:count], kept[v, 0:count],
                        counts[v, 0:count], votes[v, 0:count])  # fmt: skip
                T.writes(stays[v, 0:count])
                chosen = T.alloc_local((1,), "int32")
                chosen[0] = 0
                for j in range(count):
                    stays[v, j] = kept[v, j]
                    if chosen[0] >= limit:
                        stays[v, j] = 0
                    if stays[v, j] * counts[v, j] == 1:
                        for k in range(j):
                            if stays[v, k] * votes[v, k] == 1 and (
                                classes[v, k] == classes[v, j]
                                and overlap_of(boxes, v, j, k) >= T.Cast(dtype, overlap)
                            ):
                                stays[v, j] = 0
                        chosen[0] = chosen[0] + stays[v, j]

    return non_max_suppression


CONVERTERS: dict[str, Converter] = {
    "vision.get_valid_counts": _get_valid_counts,
    "vision.non_max_suppression": _non_max_suppression,
    "vision.multibox_prior": _multibox_prior,
    "vision.multibox_transform_loc": _multibox_transform_loc,
    "vision.roi_align": _roi_align,
    "vision.roi_pool": _roi_pool,
    "vision.yolo_reorg": _yolo_reorg,
}
