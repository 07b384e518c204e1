"""Tiles of copies: sectors counted one by one, vectors that stay aligned, boxes that cover all."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tvm_tile.device import find_device
from tvm_tile.graph.tile_graph import Access, AffineIndex, Axis, Tensor
from tvm_tile.tile.moves.sectors import count_sectors
from tvm_tile.tile.moves.transpose import (
    Copy,
    Source,
    TransposeTile,
    construct_flat,
    construct_transpose,
    neighbours,
)

H200 = find_device("nvidia/h200")
EXTENTS = st.sampled_from([1, 2, 3, 7, 8, 12, 31, 49, 64, 96, 197])
DTYPES = st.sampled_from(["int8", "float16", "float32", "int64"])


def flat(dtype: str, extents: dict[str, int], order: str, offset: int = 0) -> Access:
    """An access to a tensor whose dimensions are these axes, the last one fastest."""
    terms, stride = [], 1
    for name in reversed(order):
        terms.append((name, stride))
        stride *= extents[name]
    tensor = Tensor(order, (stride + offset,), dtype)
    return Access(tensor, (AffineIndex(tuple(terms), offset),))


def transposed(extents: dict[str, int], order: str, dtype: str = "float16") -> Copy:
    """From a tensor whose dimensions are in this order."""
    axes = tuple(Axis(name, extent) for name, extent in extents.items())
    source = Source((flat(dtype, extents, order),), frozenset())
    return Copy(axes, (source,), flat(dtype, extents, "".join(extents)))


def touched(access: Access, places: list[dict[str, int]]) -> tuple[int, int, int]:
    """Sectors, lines, and elements, one place after the other."""
    size, index = access.tensor.element_size, access.indices[0]
    found = {index.offset + sum(f * place[a] for a, f in index.terms) for place in places}
    return (
        len({element * size // 32 for element in found}),
        len({element * size // 128 for element in found}),
        len(found),
    )


@given(a=EXTENTS, b=EXTENTS, dtype=DTYPES, offset=st.integers(0, 40))
def test_sectors_are_those_that_elements_lie_in(a: int, b: int, dtype: str, offset: int) -> None:
    access = flat(dtype, {"a": a, "b": b}, "ba", offset)
    places = [{"a": i, "b": j} for i, j in itertools.product(range(a), range(min(b, 9)))]
    arrays = {name: np.array([place[name] for place in places]) for name in ("a", "b")}
    assert count_sectors(access, arrays) == touched(access, places)


@given(a=EXTENTS, b=EXTENTS, c=EXTENTS, own=EXTENTS, offset=st.sampled_from([0, 2, 8, 24]))
def test_neighbours_lie_in_a_row_wherever_a_box_begins(
    a: int, b: int, c: int, own: int, offset: int
) -> None:
    extents = {"a": a, "b": b, "c": c}
    axes = tuple(Axis(name, extent) for name, extent in extents.items())
    box = {"a": 1, "b": min(own, b), "c": c}
    access = flat("float16", extents, "abc", offset)
    count = math.gcd(8, neighbours(access, axes, box, frozenset()))
    index = access.indices[0]
    for begin in range(0, b, box["b"]):
        inside = itertools.product(range(begin, min(b, begin + box["b"])), range(c))
        places = [index.offset + y * c + x for y, x in inside]
        for first in range(0, len(places), count):
            run = places[first : first + count]
            assert run == list(range(run[0], run[0] + count))
            assert run[0] % count == 0


def test_a_vector_does_not_cross_what_a_choice_depends_on() -> None:
    extents = {"a": 4, "b": 16}
    axes = tuple(Axis(name, extent) for name, extent in extents.items())
    access = flat("float16", extents, "ab")
    assert neighbours(access, axes, {}, frozenset()) == 64
    assert neighbours(access, axes, {}, frozenset({"a"})) == 16
    assert neighbours(access, axes, {}, frozenset({"b"})) == 1


@given(a=EXTENTS, b=EXTENTS, c=EXTENTS, dtype=DTYPES)
def test_tiles_cover_the_output_and_fit_the_device(a: int, b: int, c: int, dtype: str) -> None:
    copy = transposed({"a": a, "b": b, "c": c}, "cab", dtype)
    size = copy.write.tensor.element_size
    tiles = construct_transpose(copy, H200)
    assert [tile.seconds for tile in tiles] == sorted(tile.seconds for tile in tiles)
    for tile in tiles:
        assert tile.vector * size <= 16
        assert all(load * size <= 16 for load in tile.loads)
        assert tile.block_size % 32 == 0
        if tile.extents:
            blocks = [-(-axis.extent // n) for axis, n in zip(copy.axes, tile.extents, strict=True)]
            assert math.prod(blocks) == tile.grid
            assert math.prod(tile.extents) * size <= 48 * 1024
        else:
            assert (tile.grid - 1) * tile.block_size * tile.vector < copy.points
            assert tile.grid * tile.block_size * tile.vector >= copy.points


def best(copy: Copy) -> TransposeTile:
    return construct_transpose(copy, H200)[0]


def test_a_transpose_of_images_goes_through_shared_memory() -> None:
    extents = {"yx": 65536, "c": 96}
    axes = tuple(Axis(name, extent) for name, extent in extents.items())
    read = Access(Tensor("x", (65536 * 96,), "float16"), (AffineIndex((("yx", 1), ("c", 65536))),))
    write = Access(Tensor("y", (65536 * 96,), "float16"), (AffineIndex((("yx", 96), ("c", 1))),))
    tile = best(Copy(axes, (Source((read,), frozenset()),), write))
    assert tile.vector == 8
    assert tile.loads == (8,)
    assert tile.staged == (True,)
    least = 65536 * 96 * 2 / 32
    assert least <= tile.asked <= 1.1 * least


def test_one_element_a_thread_reads_a_sector_for_each() -> None:
    copy = transposed({"a": 1024, "b": 1024}, "ba")
    tile = construct_flat(copy, 1, H200)
    points = 1024 * 1024
    assert points <= tile.asked <= 1.2 * points


def test_three_channels_are_padded_without_shared_memory() -> None:
    """Each thread stores the eight channels of a pixel; a warp's loads are neighbours."""
    axes = (Axis("yx", 256 * 256), Axis("c", 8))
    index = AffineIndex((("yx", 1), ("c", 256 * 256)))
    source = Source((Access(Tensor("x", (3 * 256 * 256,), "float16"), (index,)),), frozenset("c"))
    write = flat("float16", {"y": 256 * 256, "c": 8}, "yc")
    write = Access(write.tensor, (AffineIndex((("yx", 8), ("c", 1))),))
    tile = best(Copy(axes, (source,), write))
    assert tile.extents == ()
    assert tile.vector == 8
