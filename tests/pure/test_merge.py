"""Which axes may become one, and which must not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from operators import access, axes, conv2d, depthwise, index, matmul

from tvm_tile.graph.tile_graph import Access, AffineIndex, Operator
from tvm_tile.tile.merge import find_merge, find_row_merge

N, F, Y, X = (index(**{axis: 1}) for axis in "nfyx")


def conv1x1(stride: int = 1) -> Operator:
    return conv2d(16, 24, 6, 1, batch=2, stride=stride)


def epilogue(other: Access) -> Operator:
    """``Z[n, f, y, x] = g(Y[n, f, y, x], other)`` behind ``conv1x1()``."""
    extents = {"n": 2, "f": 24, "y": 6, "x": 6}
    reads = (access("Y", (2, 24, 6, 6), N, F, Y, X), other)
    return Operator("g", axes("", **extents), reads, access("Z", (2, 24, 6, 6), N, F, Y, X), 1)


def test_rows_and_columns_of_a_pointwise_convolution() -> None:
    merge = find_merge([conv1x1()], 0)
    assert merge is not None
    assert merge.axes == {0: ("y", "x")}
    assert merge.dimensions == {"X": 2, "Y": 2}
    assert merge.extent == 6


def test_what_is_added_behind_it_is_merged_too() -> None:
    residual = access("R", (2, 24, 6, 6), N, F, Y, X)
    merge = find_merge([conv1x1(), epilogue(residual)], 0)
    assert merge is not None
    assert merge.axes == {0: ("y", "x"), 1: ("y", "x")}
    assert merge.dimensions == {"X": 2, "Y": 2, "Z": 2, "R": 2}


def test_a_bias_has_no_part_in_it() -> None:
    merge = find_merge([conv1x1(), epilogue(access("B", (24,), F))], 0)
    assert merge is not None
    assert "B" not in merge.dimensions


@pytest.mark.parametrize(
    "other",
    [
        access("S", (6,), Y),  # a factor for each row
        access("S", (6, 6), X, Y),  # turned
        access("S", (8, 6), Y, X),  # a part of a larger one
        access("S", (2, 24, 6, 8), N, F, Y, X),
        access("S", (2, 24, 7, 6), N, F, index(offset=1, y=1), X),
        access("S", (6, 6, 6), Y, X, X),  # once more elsewhere
        access("S", (6, 2, 6), Y, N, X),  # apart
    ],
)
def test_one_access_that_tells_them_apart_keeps_them_apart(other: Access) -> None:
    assert find_merge([conv1x1(), epilogue(other)], 0) is None


def test_windows_strides_and_plain_products_keep_their_axes() -> None:
    for op in (conv2d(16, 24, 6, 3, batch=2), conv1x1(stride=2), depthwise(8, 6, 3)):
        assert find_merge([op], 0) is None
    assert find_merge([matmul(8, 16, 32)], 0) is None


def test_a_producer_may_go_on_reading_with_two_indices() -> None:
    """``X[n, c, y, x] = A[n, c, 2 y, 2 x]``, merged into the copy of a pointwise convolution."""
    source = access("A", (2, 16, 11, 11), N, index(c=1), index(y=2), index(x=2))
    picked = access("X", (2, 16, 6, 6), N, index(c=1), Y, X)
    extents = {"n": 2, "c": 16, "y": 6, "x": 6}
    producer = Operator("pick", axes("", **extents), (source,), picked, 1)
    assert find_merge([conv1x1(), producer], 0) is None
    merge = find_merge([conv1x1(), producer], 0, producers=(1,))
    assert merge is not None
    assert merge.axes[1] == ("y", "x")
    assert "A" not in merge.dimensions


def test_a_store_may_go_on_writing_with_two_indices() -> None:
    """``Z[b, h, s, d] = Y[b, s, 64 h + d]`` behind a product: heads of a projection."""
    b, s, n, k = (index(**{axis: 1}) for axis in "bsnk")
    extents = {"b": 3, "s": 50, "n": 192, "k": 40}
    reads = access("A", (3, 50, 40), b, s, k), access("B", (40, 192), k, n)
    product = Operator("mm", axes("k", **extents), reads, access("Y", (3, 50, 192), b, s, n), 2)
    extents.pop("k")
    own = access("Y", (3, 50, 192), b, s, n)
    head = AffineIndex((("n", 1),), is_exact=False)
    stored = access("Z", (3, 3, 50, 64), b, head, s, head)
    store = Operator("heads", axes("", **extents), (own,), stored, 1)
    assert find_merge([product, store], 0) is None
    merge = find_merge([product, store], 0, stores=(1,))
    assert merge is not None
    assert merge.axes == {0: ("b", "s"), 1: ("b", "s")}
    assert merge.dimensions == {"A": 0, "Y": 0}
    # As a producer, it may not; nor may what it reads be apart.
    assert find_merge([product, store], 0, producers=(1,)) is None
    turned = replace(store, reads=(own, access("R", (50, 3), s, b)))
    assert find_merge([product, turned], 0, stores=(1,)) is None


def test_a_batch_with_the_same_weights_is_more_rows() -> None:
    b, i, j, k = (index(**{axis: 1}) for axis in "bijk")
    extents = {"b": 3, "i": 5, "j": 36, "k": 40}
    reads = access("A", (3, 5, 40), b, i, k), access("B", (40, 36), k, j)
    product = Operator("mm", axes("k", **extents), reads, access("C", (3, 5, 36), b, i, j), 2)
    merge = find_merge([product], 0)
    assert merge is not None
    assert merge.dimensions == {"A": 0, "C": 0}
    own = access("A", (3, 5, 40), b, i, k), access("B", (3, 40, 36), b, k, j)
    batched = Operator("mm", axes("k", **extents), own, access("C", (3, 5, 36), b, i, j), 2)
    assert find_merge([batched], 0) is None


def norm(*more: Access) -> list[Operator]:
    """``S[i] += X[i, c, y, x]; Z[i, c, y, x] = f(X, S, more)``."""
    i, c = index(i=1), index(c=1)
    shape = (5, 8, 7, 9)
    extents = dict(zip("icyx", shape, strict=True))
    row, result = access("X", shape, i, c, Y, X), access("S", (5,), i)
    stored = access("Z", shape, i, c, Y, X)
    sums = Operator("sums", axes("cyx", **extents), (row,), result, 1)
    return [sums, Operator("f", axes("", **extents), (row, result, *more), stored, 1)]


def test_axes_along_a_row() -> None:
    merge = find_row_merge(norm(access("G", (8,), index(c=1))))
    assert merge is not None
    assert merge.axes == {0: ("y", "x"), 1: ("y", "x")}
    assert merge.dimensions == {"X": 2, "Z": 2}
    assert find_row_merge(norm(access("G", (7,), Y), access("H", (9, 8), X, index(c=1)))) is None


def test_axes_that_count_rows_are_one() -> None:
    """``S[y, x] += X[c, y, x]``: rows are counted by one axis, however the tensor divides them."""
    c = index(c=1)
    extents = {"c": 8, "y": 7, "x": 9}
    row, result = access("X", (8, 7, 9), c, Y, X), access("S", (7, 9), Y, X)
    sums = Operator("sums", axes("c", **extents), (row,), result, 1)
    stored = access("Z", (8, 7, 9), c, Y, X)
    output = Operator("f", axes("", **extents), (row, result), stored, 1)
    merge = find_row_merge([sums, output])
    assert merge is not None
    assert (merge.axes, merge.extent) == ({0: ("y", "x"), 1: ("y", "x")}, 9)
    assert merge.dimensions == {"X": 1, "S": 0, "Z": 1}
