"""Reads and writes at indices that are data: right, and never outside of their tensors."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from scan_cases import module_of, results
from tvm.relax import op

import tvm_tile

pytestmark = [
    pytest.mark.bank(8),
    pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl"),
]
_NOT_CACHED = tvm_tile.Options(cache=False)
# Far outside, also of what 32 bits hold.
WILD = np.array([0, 4, -1, 5, -5, -6, 1000, -100, 10**9, 2**33 + 1, -(2**33)], "int64")
EXTENT = 5


def ran(arrays: list[np.ndarray], body: Any) -> list[np.ndarray]:
    """Outputs of what ``body`` makes of inputs like these."""
    mod = module_of(
        [(x.shape, str(x.dtype)) for x in arrays],
        lambda builder, inputs: [builder.emit(result) for result in body(*inputs)],
    )
    compiled = tvm_tile.compile(mod, device="emulated", options=_NOT_CACHED)
    return results(compiled, arrays)


def nearest(index: np.ndarray, extent: int) -> np.ndarray:
    """Counted from the end where negative, then clamped."""
    return np.clip(np.where(index < 0, index + extent, index), 0, extent - 1)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("float32")


def test_reads_are_clamped() -> None:
    x, own = random(3, EXTENT), nearest(WILD, EXTENT)
    pairs = np.stack([np.array([0, 2, -1, 3, -9, 0, 1, 9, 2, 2**40, 1]), WILD], 1)
    wide = np.tile(WILD, (3, 1))
    small = WILD[:9].astype("int32")
    found = ran(
        [x, WILD, wide, pairs, small],
        lambda x, i, wide, pairs, small: [
            op.take(x, i, 1),
            op.take(x, i, 1, mode="clip"),
            op.take(x, i, 1, mode="wrap"),
            op.take(x, i, 1, mode="nan"),
            op.gather_elements(x, wide, 1),
            op.gather_nd(x, pairs),
            op.take(x, small, 1),
        ],
    )
    inside = (WILD >= 0) & (WILD < EXTENT)
    expected = [
        # On their way in, models are given this mode for none at all.
        x[:, np.clip(WILD, 0, EXTENT - 1)],
        x[:, np.clip(WILD, 0, EXTENT - 1)],
        x[:, WILD % EXTENT],
        np.where(inside, x[:, own], np.nan),
        x[:, own],
        x[nearest(pairs[:, 0], 3), own],
        x[:, np.clip(small, 0, EXTENT - 1)],
    ]
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_reads_at_several_indices_are_clamped() -> None:
    x, column = random(4, EXTENT, 3), WILD.reshape(-1, 1)
    row = np.array([[1, -7, 3]])
    (found,) = ran([x, column, row], lambda x, i, j: [op.index_tensor(x, (j, i))])
    np.testing.assert_array_equal(found, x[nearest(row, 4), nearest(column, EXTENT)])


@pytest.mark.parametrize("reduction", ["update", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_writes_outside_are_skipped(reduction: str, dtype: str) -> None:
    x = (random(EXTENT, 3) * 4).astype(dtype)
    index = np.stack([WILD, WILD[::-1], np.roll(WILD, 3)], 1)
    updates = (random(len(WILD), 3) * 4).astype(dtype)
    lines, wanted_lines = updates[:, 0].copy(), x.copy()
    combine = {
        "update": lambda _, new: new,
        "add": np.add,
        "mul": np.multiply,
        "max": np.maximum,
        "min": np.minimum,
    }[reduction]
    if dtype == "float32":
        updates[0, 0] = np.nan
    wanted = x.copy()
    pairs = np.stack([WILD, np.arange(len(WILD)) % 3], 1)
    for t in range(len(WILD)):
        for column in range(3):
            row = index[t, column] + EXTENT * (index[t, column] < 0)
            if 0 <= row < EXTENT:
                wanted[row, column] = combine(wanted[row, column], updates[t, column])
        row, column = pairs[t, 0] + EXTENT * (pairs[t, 0] < 0), pairs[t, 1]
        if 0 <= row < EXTENT:
            wanted_lines[row, column] = combine(wanted_lines[row, column], lines[t])
    found = ran(
        [x, index, updates, pairs, lines],
        lambda x, i, updates, pairs, lines: [
            op.scatter_elements(x, i, updates, 0, reduction),
            op.scatter_nd(x, pairs, lines, reduction),
        ],
    )
    for got, want in zip(found, [wanted, wanted_lines], strict=True):
        np.testing.assert_allclose(got, want, 1e-5, 1e-5)


def test_smaller_indices_and_the_other_axis() -> None:
    x, updates = random(4, 7, 3), random(2, 4, 3)
    index = np.random.default_rng(1).integers(-9, 9, (2, 4, 3))
    wanted = x.copy()
    for i, t, k in np.ndindex(2, 4, 3):
        place = index[i, t, k] + 7 * (index[i, t, k] < 0)
        if 0 <= place < 7:
            wanted[i, place, k] = updates[i, t, k]
    (found,) = ran([x, index, updates], lambda *own: [op.scatter_elements(*own, 1)])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put(accumulate: bool) -> None:
    x, values = random(4, EXTENT), random(3, 3)
    rows, columns = np.array([1, -1, 9]), np.array([[2], [-3], [2**35]])
    wanted = x.copy()
    for i, j in np.ndindex(3, 3):
        row, column = rows[j] + 4 * (rows[j] < 0), columns[i, 0] + EXTENT * (columns[i, 0] < 0)
        if 0 <= row < 4 and 0 <= column < EXTENT:
            wanted[row, column] = wanted[row, column] * accumulate + values[i, j]
    (found,) = ran(
        [x, values, rows, columns],
        lambda x, values, rows, columns: [
            op.index_put(x, (rows, columns), values, accumulate=accumulate)
        ],
    )
    np.testing.assert_allclose(found, wanted, 1e-6)
