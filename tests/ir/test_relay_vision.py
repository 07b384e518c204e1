"""Relay's operators on boxes, against loops by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from relay_calls import call
from relay_operators import Known, equal

pytestmark = pytest.mark.bank(6)

_RNG = np.random.default_rng(6)


def boxes(batch: int, count: int) -> np.ndarray:
    """Rows of a class, a score and two corners; some of no class, some of a score below zero."""
    rows = np.zeros((batch, count, 6), "float32")
    rows[..., 0] = _RNG.integers(-1, 3, (batch, count))
    rows[..., 1] = np.round(_RNG.uniform(-0.2, 1, (batch, count)), 1)
    corner = _RNG.uniform(0, 2, (batch, count, 2))
    rows[..., 2:4], rows[..., 4:] = corner, corner + _RNG.uniform(-1, 1, (batch, count, 2))
    return rows


@pytest.mark.parametrize("identity", [0, -1])
@pytest.mark.parametrize("form", ["known", "given", "attribute"])
def test_get_valid_counts(identity: int, form: str) -> None:
    rows = boxes(3, 12)
    least = np.float32(0.3)
    arguments = {"known": [Known(least)], "given": [least], "attribute": []}[form]
    found = call(
        "vision.get_valid_counts", rows, *arguments,
        id_index=identity, score_index=1, score_threshold=0.3,
    )  # fmt: skip
    counts, kept, places = np.zeros(3, "int32"), np.full_like(rows, -1), np.full((3, 12), -1)
    for i, j in np.ndindex(3, 12):
        if rows[i, j, 1] > least and (identity < 0 or rows[i, j, identity] >= 0):
            kept[i, counts[i]], places[i, counts[i]] = rows[i, j], j
            counts[i] += 1
    for own, expected in zip(found, (counts, kept, places.astype("int32")), strict=True):
        equal(own, expected)


def shared(one: np.ndarray, other: np.ndarray) -> float:
    """Area of the intersection over that of the union."""
    low = [np.minimum(box[:2], box[2:]) for box in (one, other)]
    high = [np.maximum(box[:2], box[2:]) for box in (one, other)]
    common = float(np.prod(np.maximum(0, np.minimum(*high) - np.maximum(*low))))
    union = sum(float(np.prod(h - w)) for w, h in zip(low, high, strict=True)) - common
    return common / union if union > 0 else 0.0


def suppressed(
    rows: np.ndarray, valid: int, limit: int, overlap: float, force: bool, top: int, identity: int
) -> tuple[np.ndarray, np.ndarray]:
    """Of one batch the rows from the best score down, -1 for those that go, and their places."""
    order = sorted(range(valid), key=lambda j: -rows[j, 1])
    kept = min(valid, top) if top > 0 else valid
    made, places = np.full_like(rows, -1), np.full(len(rows), -1)
    made[:kept], places[:kept] = rows[order[:kept]], order[:kept]
    number = 0
    for j in range(valid):
        if number == limit:
            made[j], places[j] = -1, -1
        elif made[j, 1] > 0:
            stays = True
            for k in range(j):
                voted = made[k, 1] > 0 and (identity < 0 or made[k, identity] >= 0)
                same = force or identity < 0 or made[j, identity] == made[k, identity]
                if voted and same and shared(made[j, 2:], made[k, 2:]) >= overlap:
                    stays = False
            if stays:
                number += 1
            else:
                made[j], places[j] = -1, -1
    return made, places


@pytest.mark.parametrize(
    ("identity", "force", "limit", "top"),
    [(0, False, -1, -1), (0, True, 2, -1), (0, False, -1, 5), (-1, False, -1, -1), (0, True, 0, 3)],
)
def test_non_max_suppression(identity: int, force: bool, limit: int, top: int) -> None:
    rows, valid = boxes(3, 12), np.array([12, 7, 0], "int32")
    indices = np.argsort(_RNG.random((3, 12)), axis=1).astype("int32") + 100
    settings = {"coord_start": 2, "score_index": 1, "id_index": identity, "top_k": top}
    settings |= {"force_suppress": force}
    limits = Known(limit, "int32"), Known(0.3, "float32")
    each = [
        suppressed(r, int(v), limit, 0.3, force, top, identity)
        for r, v in zip(rows, valid, strict=True)
    ]

    def result(bottom: bool, back: bool) -> Any:
        return call(
            "vision.non_max_suppression", rows, valid, indices, *limits,
            return_indices=back, invalid_to_bottom=bottom, **settings,
        )  # fmt: skip

    equal(result(False, False), np.stack([made for made, _ in each]))
    packed = np.full_like(rows, -1)
    own = np.full((3, 12), -1, "int32")
    for i, (made, places) in enumerate(each):
        left = made[made[:, 0] >= 0]
        packed[i, : len(left)] = left
        left = indices[i][places[places >= 0]]
        own[i, : len(left)] = left
    equal(result(True, False), packed)
    found, counts = result(False, True)
    equal(found, own)
    equal(counts, (own >= 0).sum(1, keepdims=True).astype("int32"))


@pytest.mark.parametrize("clip", [True, False])
def test_multibox_prior(clip: bool) -> None:
    sizes, ratios, steps, offsets = (0.4, 0.8), (1.0, 2.0, 0.5), (-1.0, 0.3), (0.5, 0.25)
    settings = {"sizes": sizes, "ratios": ratios, "steps": steps, "offsets": offsets}
    found = call("vision.multibox_prior", np.zeros((1, 1, 3, 4), "float32"), clip=clip, **settings)
    expected = []
    for i, j in np.ndindex(3, 4):
        y, x = (i + 0.5) / 3, (j + 0.25) * 0.3
        for size, ratio in ((0.4, 1.0), (0.8, 1.0), (0.4, 2.0), (0.4, 0.5)):
            w, h = size * 3 / 4 * math.sqrt(ratio) / 2, size / math.sqrt(ratio) / 2
            expected.append([x - w, y - h, x + w, y + h])
    wide = np.array([expected])
    equal(found, (np.clip(wide, 0, 1) if clip else wide).astype("float32"), 1e-6)


@pytest.mark.parametrize("clip", [True, False])
def test_multibox_transform_loc(clip: bool) -> None:
    scores = _RNG.random((2, 4, 6)).astype("float32")
    shifts = _RNG.standard_normal((2, 24)).astype("float32")
    anchors = np.sort(_RNG.random((1, 6, 2, 2)), axis=2).reshape(1, 6, 4).astype("float32")
    shares = (0.1, 0.2, 0.3, 0.4)
    settings = {"threshold": 0.8, "variances": shares, "clip": clip}
    rows, counts = call("vision.multibox_transform_loc", scores, shifts, anchors, **settings)
    expected, numbers = np.full((2, 6, 6), -1.0), [0, 0]
    for i, j in np.ndindex(2, 6):
        which = int(scores[i, 1:, j].argmax()) + 1
        if scores[i, which, j] < np.float32(0.8):
            continue
        left, top, right, bottom = anchors[0, j].astype("float64")
        x, y, w, h = shifts[i, 4 * j : 4 * j + 4].astype("float64") * shares
        x, y = x * (right - left) + (left + right) / 2, y * (bottom - top) + (top + bottom) / 2
        w, h = math.exp(w) * (right - left) / 2, math.exp(h) * (bottom - top) / 2
        corners = np.array([x - w, y - h, x + w, y + h])
        corners = np.clip(corners, 0, 1) if clip else corners
        expected[i, numbers[i]] = [which - 1, scores[i, which, j], *corners]
        numbers[i] += 1
    equal(counts, np.array(numbers, "int32"))
    equal(rows, expected.astype("float32"), 1e-5)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align(mode: str) -> None:
    x = _RNG.standard_normal((2, 3, 8, 9)).astype("float32")
    regions = np.array([[0, 1, 2, 10, 9], [1, -6, -5, 30, 7], [1, 4, 4, 4, 4]], "float32")
    settings = {"pooled_size": (2, 3), "spatial_scale": 0.5, "sample_ratio": 2, "layout": "NCHW"}
    found = call("vision.roi_align", x, regions, mode=mode, **settings)
    expected = np.zeros((3, 3, 2, 3))
    for n, i, j in np.ndindex(3, 2, 3):
        left, top, right, bottom = regions[n, 1:].astype("float64") * 0.5
        height, width = max(bottom - top, 1) / 2, max(right - left, 1) / 3
        samples = []
        for a, b in np.ndindex(2, 2):
            y, z = top + (i + (a + 0.5) / 2) * height, left + (j + (b + 0.5) / 2) * width
            value = np.zeros(3)
            if -1 <= y <= 8 and -1 <= z <= 9:
                (t, y0), (s, z0) = (math.modf(min(max(p, 0), last)) for p, last in ((y, 7), (z, 8)))
                for row, share in ((int(y0), 1 - t), (min(int(y0) + 1, 7), t)):
                    for column, part in ((int(z0), 1 - s), (min(int(z0) + 1, 8), s)):
                        value += x[int(regions[n, 0]), :, row, column] * share * part
            samples.append(value)
        expected[n, :, i, j] = np.mean(samples, 0) if mode == "avg" else np.max(samples, 0)
    equal(found, expected.astype("float32"), 1e-5)
    with pytest.raises(NotImplementedError, match="-1 samples"):
        call("vision.roi_align", x, regions, mode=mode, **(settings | {"sample_ratio": -1}))


def test_roi_pool() -> None:
    x = _RNG.standard_normal((2, 3, 8, 9)).astype("float32")
    regions = np.array([[0, 1, 2, 11, 9], [1, -5, -5, 30, 7], [1, 40, 40, 50, 50]], "float32")
    settings = {"pooled_size": (2, 3), "spatial_scale": 0.5, "layout": "NCHW"}
    found = call("vision.roi_pool", x, regions, **settings)
    expected = np.zeros((3, 3, 2, 3), "float32")
    for n, i, j in np.ndindex(3, 2, 3):
        ends = [math.floor(abs(p) * 0.5 + 0.5) * (1 if p >= 0 else -1) for p in regions[n, 1:]]
        left, top, right, bottom = ends
        height, width = max(bottom - top + 1, 1) / 2, max(right - left + 1, 1) / 3
        rows = [math.floor(i * height) + top, math.ceil((i + 1) * height) + top]
        columns = [math.floor(j * width) + left, math.ceil((j + 1) * width) + left]
        (a, b), (c, d) = np.clip(rows, 0, 8), np.clip(columns, 0, 9)
        if a < b and c < d:
            expected[n, :, i, j] = x[int(regions[n, 0]), :, a:b, c:d].max((1, 2))
    equal(found, expected)


def test_yolo_reorg() -> None:
    x = np.arange(2 * 8 * 4 * 6, dtype="float32").reshape(2, 8, 4, 6)
    found = call("vision.yolo_reorg", x, stride=2)
    flat, moved = x.reshape(2, 2, 8, 12), np.zeros((2, 8, 4, 6), "float32")
    for k, j, i in np.ndindex(8, 4, 6):
        moved[:, k, j, i] = flat[:, k % 2, j * 2 + k // 2 // 2, i * 2 + k // 2 % 2]
    equal(found, moved.reshape(2, 32, 2, 3))
