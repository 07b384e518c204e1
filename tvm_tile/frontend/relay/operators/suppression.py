"""Relay's non-maximum suppression: of boxes that overlap the one with the best score stays."""

from __future__ import annotations

import numpy as np
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import tirx as T

from tvm_tile.frontend.ops.boxes import overlap as overlap_of
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.images import require_exact
from tvm_tile.frontend.relay.operators.vision import column, first_rows
from tvm_tile.frontend.relay.values import (
    cast,
    constant,
    dtype_of,
    filled,
    reshaped,
    shape_of,
    sliced,
)


def _number(call: OperatorCall, name: str, index: int) -> float:
    """A limit, which is an argument, or an attribute in old programs."""
    if index < len(call.arguments):
        return float(call.parameter(index, name).item())
    return float(call.attributes[name])


def _non_max_suppression(call: OperatorCall) -> Value:
    rows, valid, indices = call.arguments[:3]
    attributes = call.attributes
    require_exact(call, rows)
    batch, count, _ = shape_of(rows)
    limit = int(_number(call, "max_output_size", 3))
    overlap = _number(call, "iou_threshold", 4)
    if overlap <= 0:
        raise NotImplementedError(f"iou_threshold {overlap}")
    ordered, order, kept = _by_score(call, rows, cast(call, valid, "int32"))
    stays = _staying(call, ordered, kept, count if limit < 0 else limit, overlap)
    if attributes["return_indices"]:
        own = call.emit(op.gather_elements(cast(call, indices, "int32"), order, axis=1))
        known = op.greater_equal(own, constant(0, "int32"))
        known = call.emit(op.logical_and(stays, known))
        total, found, _ = first_rows(call, reshaped(call, own, (batch, count, 1)), known)
        return reshaped(call, found, (batch, count)), reshaped(call, total, (batch, 1))
    if attributes["invalid_to_bottom"]:
        first = op.greater_equal(column(call, ordered, 0), constant(0, dtype_of(rows)))
        return first_rows(call, ordered, call.emit(op.logical_and(stays, first)))[1]
    nothing = constant(-1, dtype_of(rows))
    return call.emit(op.where(reshaped(call, stays, (batch, count, 1)), ordered, nothing))


def _by_score(call: OperatorCall, rows: Value, valid: Value) -> tuple[Value, Value, Value]:
    """The valid rows from the best score down, their places before, and which are to be looked at.

    Where several have a score they stay in order.
    """
    batch, count, _ = shape_of(rows)
    place = constant(np.arange(count)[None], "int32")
    number = reshaped(call, valid, (batch, 1))
    scores = column(call, rows, int(call.attributes["score_index"]))
    is_valid = call.emit(op.less(place, number))
    key = call.emit(op.where(is_valid, scores, constant(-np.inf, dtype_of(rows))))
    order = call.emit(op.argsort(key, axis=1, descending=True, dtype="int32"))
    wide = call.emit(op.broadcast_to(reshaped(call, order, (batch, count, 1)), shape_of(rows)))
    most = int(call.attributes["top_k"])
    if most > 0:
        number = call.emit(op.minimum(number, constant(most, "int32")))
    ordered = call.emit(op.gather_elements(rows, wide, axis=1))
    return ordered, order, call.emit(op.less(place, number))


def _staying(call: OperatorCall, rows: Value, kept: Value, limit: int, overlap: float) -> Value:
    """Which rows stay. One whose score is not positive does, and suppresses none."""
    attributes = call.attributes
    batch, count, _ = shape_of(rows)
    dtype = dtype_of(rows)
    zero = constant(0, dtype)
    identity, start = int(attributes["id_index"]), int(attributes["coord_start"])
    scores = column(call, rows, int(attributes["score_index"]))
    counts = call.emit(op.greater(scores, zero))
    votes = counts
    classes = filled(call, (batch, count), 0, dtype)
    if identity >= 0:
        own = column(call, rows, identity)
        votes = call.emit(op.logical_and(votes, op.greater_equal(own, zero)))
        classes = classes if attributes["force_suppress"] else own
    corners = sliced(call, rows, [range(batch), range(count), range(start, start + 4)])
    flags = [cast(call, flag, "int32") for flag in (kept, counts, votes)]
    kernel = call.builder.add_func(
        _suppress(batch, count, limit, overlap, dtype), "non_max_suppression"
    )
    made = relax.call_tir(
        kernel, (corners, classes, *flags), relax.TensorType((batch, count), "int32")
    )
    return cast(call, call.emit(made), "bool")


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


CONVERTERS: dict[str, Converter] = {"vision.non_max_suppression": _non_max_suppression}
