"""NonMaxSuppression against a reference, with thresholds as inputs and as constants."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tvm_tile

BATCHES, CLASSES, BOXES = 2, 3, 24
NAMES = ("boxes", "scores", "limit", "overlap", "threshold")


def model(given: tuple[str, ...]) -> onnx.ModelProto:
    """A model of one node that takes the inputs in ``given``, the others left out."""
    shapes = {"boxes": [BATCHES, BOXES, 4], "scores": [BATCHES, CLASSES, BOXES]}
    inputs = [
        helper.make_tensor_value_info(
            name, TensorProto.INT64 if name == "limit" else TensorProto.FLOAT, shapes.get(name, [1])
        )
        for name in given
    ]
    names = [name if name in given else "" for name in NAMES]
    output = helper.make_tensor_value_info("selected", TensorProto.INT64, ["rows", 3])
    node = helper.make_node("NonMaxSuppression", names, ["selected"])
    graph = helper.make_graph([node], "boxes", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def sample() -> tuple[np.ndarray, np.ndarray]:
    """Boxes with corners in any order, and scores with ties and negative ones."""
    random = np.random.default_rng(3)
    boxes = random.uniform(0, 1, (BATCHES, BOXES, 4)).astype("float32")
    boxes[:, 1] = boxes[:, 0]
    scores = random.integers(-4, 12, (BATCHES, CLASSES, BOXES)).astype("float32") / 8
    return boxes, scores


def intersection_over_union(a: np.ndarray, b: np.ndarray) -> float:
    low_a, high_a = np.minimum(a[:2], a[2:]), np.maximum(a[:2], a[2:])
    low_b, high_b = np.minimum(b[:2], b[2:]), np.maximum(b[:2], b[2:])
    sides = np.minimum(high_a, high_b) - np.maximum(low_a, low_b)
    shared = float(sides.clip(0).prod())
    total = float((high_a - low_a).prod() + (high_b - low_b).prod())
    return shared / (total - shared) if shared else 0.0


def expected(
    boxes: np.ndarray, scores: np.ndarray, limit: int, overlap: float, threshold: float
) -> list[list[int]]:
    rows = []
    for batch, kind in np.ndindex(BATCHES, CLASSES):
        chosen: list[int] = []
        for box in np.argsort(-scores[batch, kind], kind="stable"):
            overlaps = [intersection_over_union(boxes[batch, box], boxes[batch, c]) for c in chosen]
            if scores[batch, kind, box] > threshold and max(overlaps, default=0.0) <= overlap:
                chosen.append(int(box))
        rows += [[batch, kind, box] for box in chosen[:limit]]
    return rows


@pytest.mark.parametrize(
    ("limit", "overlap", "threshold"), [(5, 0.3, 0.1), (99, 0.05, -9), (0, 1, 0)]
)
def test_thresholds_are_inputs(limit: int, overlap: float, threshold: float) -> None:
    boxes, scores = sample()
    compiled = tvm_tile.compile(model(NAMES), "emulated")
    selected = compiled(
        boxes,
        scores,
        np.array([limit]),
        np.array([overlap], "float32"),
        np.array([threshold], "float32"),
    )
    assert selected.tolist() == expected(boxes, scores, limit, overlap, threshold)


def test_classes_run_in_parallel() -> None:
    (kernel,) = [
        kernel
        for kernel in tvm_tile.compile(model(NAMES), "emulated").report.kernels
        if "suppress" in kernel.operators
    ]
    assert kernel.rule == "dlight"


def test_without_thresholds_no_box_is_too_bad_and_none_may_overlap() -> None:
    boxes, scores = sample()
    selected = tvm_tile.compile(model(NAMES[:3]), "emulated")(boxes, scores, np.array([BOXES]))
    assert selected.tolist() == expected(boxes, scores, BOXES, 0.0, -np.inf)


def test_without_a_limit_nothing_is_selected() -> None:
    boxes, scores = sample()
    selected = tvm_tile.compile(model(NAMES[:2]), "emulated")(boxes, scores)
    assert (selected.shape, str(selected.dtype)) == ((0, 3), "int64")


def test_cuda_builds_it() -> None:
    assert tvm_tile.compile(model(NAMES), "nvidia/h200").report.kernels
