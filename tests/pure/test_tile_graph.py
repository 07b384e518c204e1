"""Footprints and traffic of affine accesses, against brute force."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operators import access, axes, conv2d, depthwise, elementwise, index, matmul, row_sum

from tvm_tile.graph.signature import Signature
from tvm_tile.graph.tile_graph import (
    Access,
    AffineIndex,
    Operator,
    Tensor,
    TileGraph,
    element_size,
)

TILES = st.fixed_dictionaries({name: st.integers(1, 5) for name in "ab"})


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("float16", 2), ("float32", 4), ("int8", 1), ("uint8", 1), ("int64", 8), ("bool", 1)],
)
def test_element_sizes(dtype: str, size: int) -> None:
    assert element_size(dtype) == size
    assert Tensor("x", (3, 5), dtype).size == 15 * size


@given(a=st.integers(-4, 4), b=st.integers(-4, 4), offset=st.integers(0, 9), tile=TILES)
def test_a_span_covers_every_position(a: int, b: int, offset: int, tile: dict[str, int]) -> None:
    form = index(offset, a=a, b=b)
    points = itertools.product(range(tile["a"]), range(tile["b"]))
    positions = [a * i + b * j + offset for i, j in points]
    assert form.span(tile) == max(positions) - min(positions) + 1


def test_an_index_without_axes_is_one_position() -> None:
    assert AffineIndex((), 7).span({"a": 5}) == 1
    assert index(a=2).coefficient("b") == 0
    assert index(a=2).coefficient("a") == 2


def test_an_axis_missing_from_the_tile_stands_still() -> None:
    assert index(a=1, b=1).span({"a": 4}) == 4


@given(tile=TILES, extent=st.integers(1, 12))
def test_footprints_end_at_the_tensor(tile: dict[str, int], extent: int) -> None:
    read = access("X", (extent, 3), index(a=2, b=1), index())
    assert read.elements(tile) == min(2 * (tile["a"] - 1) + tile["b"], extent)


def test_footprints_grow_with_the_tile() -> None:
    (data, _) = conv2d(8, 16, 14, 3).reads
    one = dict.fromkeys("nfyxcpq", 1)
    assert data.elements(one | {"y": 4}) == 4
    assert data.elements(one | {"y": 4, "p": 3}) == 6
    assert data.elements(one | {"y": 14, "x": 14, "p": 3, "q": 3, "c": 8}) == 16 * 16 * 8
    assert data.elements(one | {"f": 16}) == 1


@pytest.mark.parametrize(
    ("read", "axis"),
    [
        (access("X", (4, 5), index(a=1), index(b=1)), "b"),
        (access("X", (4, 5), index(b=1), index(a=1)), "a"),
        (access("X", (4, 5), index(a=1), index(b=2)), None),
        (access("X", (5, 1), index(a=1), index()), "a"),
        (access("X", (4, 10), index(a=1), index(a=-1)), None),
        (access("X", (), *()), None),
        (access("X", (20,), index(a=4, b=1)), "b"),
    ],
)
def test_the_contiguous_axis_has_stride_one(read: Access, axis: str | None) -> None:
    assert read.contiguous_axis == axis


def test_axes_of_an_access() -> None:
    data, weights = depthwise(3, 8, 3).reads
    assert data.axes == set("cyxpq")
    assert weights.axes == set("cpq")
    assert data.is_exact


def test_a_product_in_numbers() -> None:
    op = matmul(17, 23, 19)
    assert [axis.name for axis in op.spatial_axes] == ["i", "j"]
    assert [axis.name for axis in op.reduce_axes] == ["k"]
    assert op.points == 17 * 23 * 19
    assert op.total_flops == 2 * op.points
    assert op.traffic == 4 * (17 * 19 + 19 * 23 + 17 * 23)


def test_only_what_is_touched_is_traffic() -> None:
    # Every second column of eight, one of three planes.
    read = access("X", (3, 4, 8), index(1), index(a=1), index(b=2))
    write = access("Y", (4, 4), index(a=1), index(b=1))
    op = Operator("slice", axes("", a=4, b=4), (read,), write, 1)
    assert op.traffic == 4 * (4 * 7 + 16)


def test_a_tensor_read_twice_crosses_memory_once() -> None:
    shifted = access("X", (9,), index(1, a=1))
    plain = access("X", (9,), index(a=1))
    op = Operator("diff", axes("", a=8), (plain, shifted), access("Y", (8,), index(a=1)), 1)
    assert op.traffic == 4 * (8 + 8)


def chain() -> TileGraph:
    """``t = X * s``, then ``Y[i] += t[i, k]``."""
    first, second = elementwise(6, 10), row_sum(6, 10)
    total = Operator("sum", second.axes, (access("Y", (6, 10), index(i=1), index(k=1)),),
                     access("Z", (6,), index(i=1)), 1)  # fmt: skip
    return TileGraph((first, total))


def test_handed_over_tensors_are_no_traffic() -> None:
    graph = chain()
    assert [tensor.name for tensor in graph.inputs] == ["X", "S"]
    assert [tensor.name for tensor in graph.outputs] == ["Z"]
    assert [op.name for op in graph.reductions] == ["sum"]
    assert graph.traffic == 4 * (60 + 6 + 6)
    assert graph.flops == sum(op.total_flops for op in graph.operators)


@pytest.mark.parametrize(
    ("first", "second", "elements"),
    [(0, 10, 20), (0, 0, 10), (15, 20, 20)],
    ids=["two_slices", "one_slice_twice", "overlapping"],
)
def test_slices_of_a_tensor_are_different_elements(first: int, second: int, elements: int) -> None:
    """Of 30: two operators read ten each; no more than all of them is ever counted."""
    operators = tuple(
        Operator(name, axes("", a=10), (access("X", (30,), index(start, a=1)),),
                 access(name, (10,), index(a=1)), 1)
        for name, start in (("Y", first), ("Z", second))
    )  # fmt: skip
    assert TileGraph(operators).traffic == 4 * (elements + 20)


def test_overlapping_slices_are_no_more_than_the_tensor() -> None:
    operators = tuple(
        Operator(f"Y{start}", axes("", a=8), (access("X", (10,), index(start, a=1)),),
                 access(f"Y{start}", (8,), index(a=1)), 1)
        for start in range(3)
    )  # fmt: skip
    assert TileGraph(operators).traffic == 4 * (10 + 3 * 8)


@given(m=st.integers(1, 300), n=st.integers(1, 300), k=st.integers(1, 300))
def test_a_graph_of_one_product_has_its_traffic(m: int, n: int, k: int) -> None:
    op = matmul(m, n, k)
    graph = TileGraph((op,))
    assert graph.traffic == op.traffic
    assert graph.traffic == sum(math.prod(t.shape) * 4 for t in (*graph.inputs, *graph.outputs))


def test_graphs_are_values() -> None:
    assert chain() == chain()
    assert len({chain(), chain()}) == 1


def test_signatures_read_well() -> None:
    assert str(Signature("image", (1, 3, 8, 8), "float32")) == "image: float32[1, 3, 8, 8]"
