"""ONNX's NonMaxSuppression as tensor operators and one kernel.

TVM's converter takes thresholds that are no constants for its own defaults, keeps boxes whose
overlap equals the threshold from being selected, and sorts on the host.
"""

from __future__ import annotations

import numpy as np
from tvm import relax, tirx
from tvm.ir import GenericConst
from tvm.relax import op
from tvm.script import tirx as T

from tvm_tile.frontend.onnx.node import Node
from tvm_tile.frontend.ops.boxes import overlap as overlap_of
from tvm_tile.frontend.ops.values import Value


def convert_non_max_suppression(node: Node) -> Value:
    """Convert a node of NonMaxSuppression.

    Its inputs are boxes (batches, boxes, 4), scores (batches, classes, boxes), then each of one
    element or left out: the most boxes of a class, overlap and score thresholds.

    Returns:
        The selected (batch, class, box) of int64, as many rows as there are.
    """
    builder = node.builder
    boxes, scores, limit, overlap, threshold = (node.input(i) for i in range(5))
    batches, classes, number = (int(extent) for extent in scores.ty.shape)
    most = number if limit is not None else 0
    if isinstance(limit, GenericConst):
        most = max(0, min(number, int(limit.value.numpy().item())))
    if batches * classes * most == 0:
        return relax.const(np.zeros((0, 3)), "int64")
    rows = batches * classes
    arguments = (
        _corners(builder, boxes, bool(node.attrs.get("center_point_box", 0))),
        op.reshape(op.astype(scores, "float32"), (rows, number)),
        op.reshape(op.astype(limit, "int64"), (1,)),
        _scalar(overlap, 0.0),
        _scalar(threshold, -np.inf),
    )
    kernel = builder.add_func(_suppress(batches, classes, number, most), "non_max_suppression")
    chosen = builder.emit(
        relax.call_tir(
            kernel,
            tuple(builder.emit(argument) for argument in arguments),
            [
                relax.TensorType((rows, number), "float32"),
                relax.TensorType((rows, most), "int64"),
                relax.TensorType((rows,), "int64"),
            ],
        )
    )
    indices, counts = builder.emit(chosen[1]), builder.emit(chosen[2])
    collect = builder.add_func(_collect(classes, rows, most), "collect_boxes")
    table = builder.emit(
        relax.call_tir(collect, (indices, counts), relax.TensorType((rows * most, 3), "int64"))
    )
    total = builder.emit(op.sum(counts, axis=[0], keepdims=True))
    end = builder.emit(op.concat([total, relax.const(np.array([3]), "int64")], axis=0))
    zeros, ones = (relax.const(np.full(2, value), "int64") for value in (0, 1))
    return op.dynamic_strided_slice(table, zeros, end, ones)


def _scalar(value: Value | None, default: float) -> Value:
    if value is None:
        return relax.const(np.array([default], "float32"))
    return op.reshape(op.astype(value, "float32"), (1,))


def _corners(builder: relax.BlockBuilder, boxes: Value, is_center: bool) -> Value:
    """Boxes as any two opposite corners."""
    boxes = builder.emit(op.astype(boxes, "float32"))
    if not is_center:
        return boxes
    center, size = (op.strided_slice(boxes, [2], [start], [start + 2]) for start in (0, 2))
    half = builder.emit(op.multiply(size, relax.const(0.5, "float32")))
    return op.concat([op.subtract(center, half), op.add(center, half)], axis=2)


def _suppress(batches: int, classes: int, number: int, most: int) -> tirx.PrimFunc:
    """For each class of each batch: the best box left, until none is left or enough are chosen.

    One pass over the boxes discards what overlaps the last choice and finds the next one.
    """
    rows = batches * classes

    @T.prim_func(private=True, s_tir=True)
    def non_max_suppression(  # type: ignore[no-untyped-def]
        a: T.handle, b: T.handle, c: T.handle, d: T.handle, e: T.handle, f: T.handle,
        g: T.handle, h: T.handle,
    ):  # fmt: skip
        boxes = T.match_buffer(a, (batches, number, 4), "float32")
        scores = T.match_buffer(b, (rows, number), "float32")
        limit = T.match_buffer(c, (1,), "int64")
        overlap = T.match_buffer(d, (1,), "float32")
        threshold = T.match_buffer(e, (1,), "float32")
        left = T.match_buffer(f, (rows, number), "float32")
        chosen = T.match_buffer(g, (rows, most), "int64")
        count = T.match_buffer(h, (rows,), "int64")
        for row in range(rows):
            with T.sblock("suppress"):
                v = T.axis.spatial(rows, row)
                T.reads(boxes[v // classes, 0:number, 0:4], scores[v, 0:number], limit[0],
                        overlap[0], threshold[0])  # fmt: skip
                T.writes(left[v, 0:number], chosen[v, 0:most], count[v])
                best = T.alloc_local((1,), "int64")
                top = T.alloc_local((1,), "float32")
                last = T.alloc_local((1,), "int64")
                best[0] = T.int64(-1)
                top[0] = T.float32("-inf")
                count[v] = T.int64(0)
                for j in range(number):
                    left[v, j] = T.float32("-inf")
                    if scores[v, j] > threshold[0]:
                        left[v, j] = scores[v, j]
                    if left[v, j] > top[0]:
                        top[0] = left[v, j]
                        best[0] = T.Cast("int64", j)
                while best[0] >= T.int64(0) and count[v] < T.min(limit[0], T.int64(most)):
                    last[0] = best[0]
                    chosen[v, count[v]] = last[0]
                    count[v] = count[v] + T.int64(1)
                    left[v, last[0]] = T.float32("-inf")
                    best[0] = T.int64(-1)
                    top[0] = T.float32("-inf")
                    for j in range(number):
                        if left[v, j] > T.float32("-inf"):
                            if overlap_of(boxes, v // classes, last[0], j) > overlap[0]:
                                left[v, j] = T.float32("-inf")
                            if left[v, j] > top[0]:
                                top[0] = left[v, j]
                                best[0] = T.Cast("int64", j)

    return non_max_suppression


def _collect(classes: int, rows: int, most: int) -> tirx.PrimFunc:
    """All classes' choices as rows (batch, class, box), without gaps."""

    @T.prim_func(private=True, s_tir=True)
    def collect_boxes(a: T.handle, b: T.handle, c: T.handle):  # type: ignore[no-untyped-def]
        chosen = T.match_buffer(a, (rows, most), "int64")
        count = T.match_buffer(b, (rows,), "int64")
        table = T.match_buffer(c, (rows * most, 3), "int64")
        for row in range(rows):
            with T.sblock("collect"):
                v = T.axis.spatial(rows, row)
                T.reads(chosen[v, 0:most], count[0:rows])
                T.writes(table[0 : rows * most, 0:3])
                start = T.alloc_local((1,), "int64")
                start[0] = T.int64(0)
                for before in range(v):
                    start[0] = start[0] + count[before]
                for k in range(count[v]):
                    table[start[0] + k, 0] = T.Cast("int64", v // classes)
                    table[start[0] + k, 1] = T.Cast("int64", v % classes)
                    table[start[0] + k, 2] = chosen[v, k]

    return collect_boxes
