"""Matrices that are kept two numbers of each four: what is kept, and where words say it was."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tvm_tile.graph.sparsity import (
    TWO_OF_FOUR,
    Compressed,
    compress,
    is_two_of_four,
    places_shape,
    with_places,
)

Array = Any
# Four numbers of which at most two are none of both zeros.
NUMBERS = st.sampled_from([1.0, -2.5, np.inf, -np.inf, np.nan, 6e-8, 0.0, -0.0])
ORDERS = st.permutations(range(4))
GROUPS = st.tuples(NUMBERS, NUMBERS, st.sampled_from([0.0, -0.0]), ORDERS).map(
    lambda own: [(own[0], own[1], own[2], 0.0)[place] for place in own[3]]
)


def whole(values: Array, words: Array, depth: int) -> Array:
    """The matrix, number by number, as the docstring of :func:`places_shape` has it."""
    found = np.zeros((len(values), depth), values.dtype)
    for row, k in np.ndindex(len(values), depth // 4):
        first = 4 * k
        lane = row % 64 // 16 * 32 + row % 8 * 4 + first % 64 // 16
        word = words[row // 64, first // 128 * 256 + lane * 2 + first % 128 // 64]
        pair = int(word) >> (row % 16 // 8 * 16 + first % 16) & 15
        assert pair & 3 < pair >> 2, "one place twice means nothing"
        found[row, first + (pair & 3)] = values[row, 2 * k]
        found[row, first + (pair >> 2)] = values[row, 2 * k + 1]
    return found


@given(st.lists(GROUPS, min_size=6, max_size=6), st.sampled_from(["float16", "bfloat16"]))
def test_what_is_kept_is_all(groups: list[list[float]], dtype: str) -> None:
    kind = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    matrix = np.array(groups, np.float32).astype(kind).reshape(2, 12)
    assert is_two_of_four(matrix)
    values, words = compress(matrix)
    assert values.dtype == matrix.dtype
    assert words.shape == places_shape(*matrix.shape)
    found = whole(values, words, 12).astype(np.float32)
    np.testing.assert_array_equal(found, matrix.astype(np.float32))


@pytest.mark.parametrize("is_view", [False, True])
def test_large_matrices(is_view: bool) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((200, 304)).astype(np.float16)
    order = rng.permuted(np.broadcast_to(np.arange(4), (200, 76, 4)), axis=2)[:, :, :2]
    np.put_along_axis(matrix.reshape(200, 76, 4), order, 0, 2)
    own = np.ascontiguousarray(matrix.T).T if is_view else matrix
    assert is_two_of_four(own)
    values, words = compress(own)
    np.testing.assert_array_equal(whole(values, words, 304), matrix)
    matrix[150, 200:204] = [1, 0, 2, 3]
    assert not is_two_of_four(np.ascontiguousarray(matrix.T).T if is_view else matrix)


@pytest.mark.parametrize("depth", [6, 7, 9])
def test_a_group_that_ends_early_is_none(depth: int) -> None:
    assert not is_two_of_four(np.zeros((8, depth), np.float16))


def cutlass(thread: int, value: int) -> tuple[int, int]:
    """Row and pair of summed elements, of 64 by 32, that a thread's value is of.

    ``SM90::GMMA::ELayout_64x32`` (CUTLASS, ``cute/atom/mma_traits_sm90_gmma_sparse.hpp``): shape
    ((2, 2, 8, 4), (16, 2)), stride ((1024, 0, 1, 16), (64, 8)), of row + 64 * element.
    """
    row = thread // 4 % 8 + thread // 32 * 16 + value // 16 * 8
    return row, thread % 2 * 16 + value % 16


def test_words_lie_as_cutlass_lays_them() -> None:
    """Of each thread that an instruction asks, two bits of its word for two elements of the sum."""
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((64, 128)).astype(np.float16)
    order = rng.permuted(np.broadcast_to(np.arange(4), (64, 32, 4)), axis=2)[:, :, :2]
    np.put_along_axis(matrix.reshape(64, 32, 4), order, 0, 2)
    values, words = compress(matrix)
    lanes = words[0].reshape(128, 2)
    for thread, value, word in np.ndindex(128, 32, 2):
        row, element = cutlass(thread, value)
        start = word * 64 + thread % 4 // 2 * 32  # the instruction that these lanes are asked by
        group = (start + element) // 4
        which = element % 4 // 2  # number of the two that are kept of the four
        place = int(lanes[thread, word]) >> value // 2 * 2 & 3
        assert matrix[row, 4 * group + place] == values[row, 2 * group + which]


@given(arrays(np.uint32, (3, 5)))
def test_any_words_become_some_that_mean_something(words: Array) -> None:
    found = with_places(words)
    np.testing.assert_array_equal(with_places(found), found)
    pairs = found[..., None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15
    assert (pairs & 3 < pairs >> 2).all()


def test_bytes_and_names() -> None:
    assert str(TWO_OF_FOUR) == "2:4"
    assert TWO_OF_FOUR.share == 0.5
    assert Compressed(TWO_OF_FOUR, "places").places_bytes(128) == 16
