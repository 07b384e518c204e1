"""Bands of matrices: which constants are some, and the tiles that hold their elements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_tile.tile.attention.band import Band, find_banded, find_runs

BOUNDS = st.none() | st.integers(-40, 40)
SIZES = st.integers(1, 30)


def inside(band: Band, rows: int, columns: int) -> np.ndarray:
    """Element by element."""
    diagonal = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    lower = -100 if band.lower is None else band.lower
    upper = 100 if band.upper is None else band.upper
    return (lower <= diagonal) & (diagonal <= upper)


@given(SIZES, SIZES, BOUNDS, BOUNDS, st.booleans())
def test_a_band_is_found_where_there_is_one(
    rows: int, columns: int, lower: int | None, upper: int | None, is_flipped: bool
) -> None:
    mask = inside(Band(lower, upper), rows, columns) ^ is_flipped
    found = find_banded(mask)
    if mask.all() or not mask.any():
        assert found is None
        return
    assert found is not None
    assert (found.inside, found.outside) in ((True, False), (False, True))
    assert np.array_equal(np.where(inside(found.band, rows, columns), *values(found)), mask)


def values(found: object) -> tuple[object, object]:
    return found.inside, found.outside  # type: ignore[attr-defined]


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 2**25 - 1))
def test_whatever_is_found_is_the_constant(rows: int, columns: int, bits: int) -> None:
    mask = np.array([bits >> i & 1 for i in range(rows * columns)]).reshape(rows, columns)
    found = find_banded(mask)
    candidates = [
        inside(Band(lower, upper), rows, columns) ^ flip
        for lower in range(-rows, columns + 1)
        for upper in range(-rows, columns + 1)
        for flip in (False, True)
    ]
    is_band = any(np.array_equal(c, mask) for c in candidates)
    assert (found is not None) == (is_band and 0 < mask.sum() < mask.size)
    if found is not None:
        assert np.array_equal(np.where(inside(found.band, rows, columns), *values(found)), mask)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_added_masks(dtype: str) -> None:
    mask = np.triu(np.full((2, 3, 20, 24), -np.inf, dtype), 5)
    found = find_banded(mask)
    assert found is not None
    restored = np.where(inside(found.band, 20, 24), *values(found))
    assert np.array_equal(np.broadcast_to(restored, mask.shape), mask)


def test_what_is_no_band() -> None:
    causal = np.tril(np.ones((16, 16)))
    one_more = causal.copy()
    one_more[3, 9] = 1
    third = causal.copy()
    third[15, 0] = 2
    two_heads = np.stack([causal, causal.T])
    nan = np.where(causal == 1, 0, np.nan)
    rows, blocks = np.zeros((16, 16)), np.kron(np.eye(4), np.ones((4, 4)))
    rows[4:] = 1
    slopes = -np.abs(np.arange(16)[:, None] - np.arange(16))
    others = (
        rows,
        blocks,
        slopes,
        np.arange(16.0),
        np.array(1.0),
        np.zeros((0, 4)),
        np.ones((9, 9)),
    )
    for array in (one_more, third, two_heads, nan, -nan, *others):
        assert find_banded(array) is None


@given(
    st.integers(1, 60), st.integers(1, 60), BOUNDS, BOUNDS, st.integers(1, 20), st.integers(1, 20)
)
def test_kept_tiles_hold_all_elements_and_no_more(
    rows: int, columns: int, lower: int | None, upper: int | None, height: int, width: int
) -> None:
    if lower is not None and upper is not None and lower > upper:
        lower, upper = upper, lower
    band = Band(lower, upper)
    # Rows behind the last one, with which a last block is filled up.
    whole = inside(band, -(-rows // height) * height, columns)
    counts = band.kept_tiles((rows, columns), (height, width))
    for block, row in enumerate(range(0, rows, height)):
        first, end = band.tiles(row, height, columns, width)
        assert 0 <= first < end <= -(-columns // width)
        assert counts[block] == end - first
        own = whole[row : row + height].any(axis=0)
        held = [bool(own[start : start + width].any()) for start in range(0, columns, width)]
        kept = [first <= tile < end for tile in range(len(held))]
        assert all(keeps for keeps, holds in zip(kept, held, strict=True) if holds)
        if any(held):
            assert kept == held
        else:
            assert end - first == 1


@given(BOUNDS, BOUNDS, st.integers(0, 40), st.integers(0, 40), SIZES, SIZES)
def test_tiles_that_cross_the_edge(
    lower: int | None, upper: int | None, row: int, column: int, rows: int, columns: int
) -> None:
    band = Band(lower, upper)
    mask = inside(band, row + rows, column + columns)[row:, column:]
    assert any(band.crosses(column - row, rows, columns)) == (not mask.all())
    corner = all(band.holds(column - row))
    assert corner == mask[0, 0]


@given(SIZES, SIZES, BOUNDS, BOUNDS)
def test_rows_with_elements(rows: int, columns: int, lower: int | None, upper: int | None) -> None:
    if lower is not None and upper is not None and lower > upper:
        lower, upper = upper, lower
    band = Band(lower, upper)
    all_rows = bool(inside(band, rows, columns).any(axis=1).all())
    assert band.reaches_all_rows(rows, columns) == all_rows


def test_runs() -> None:
    assert find_runs([]) == find_runs([False]) == []
    assert find_runs([True]) == [(0, 0)]
    assert find_runs([False, True, True, False, True]) == [(1, 2), (4, 4)]
