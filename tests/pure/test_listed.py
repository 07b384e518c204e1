"""Lists of the chunks that are not zeros: which, how many a tile walks, and what that costs."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from operators import einsum

from tvm_tile.device import find_device
from tvm_tile.graph.positions import Listed, listed_chunks
from tvm_tile.tile.products.warpgroup import construct_warpgroup
from tvm_tile.tile.units.product import Product, find_product

H200 = find_device("nvidia/h200")
RNG = np.random.default_rng(0)


def blocks(columns: int, depth: int, size: int, density: float) -> np.ndarray:
    kept = RNG.random((-(-columns // size), -(-depth // size))) < density
    return np.kron(kept, RNG.standard_normal((size, size)))[:columns, :depth]


def listed_product(rows: int, columns: int, depth: int, lists: Listed) -> Product:
    product = find_product(einsum("mk", "nk", "mn", m=rows, n=columns, k=depth))
    assert product is not None
    return replace(product, right=replace(product.right, listed=lists))


@pytest.mark.parametrize("shape", [(256, 512), (200, 1000), (8, 64), (72, 4160)])
@pytest.mark.parametrize("size", [8, 24, 64, 128])
def test_lists_are_the_chunks_with_numbers(shape: tuple[int, int], size: int) -> None:
    values = blocks(*shape, size, 0.3)
    lists = listed_chunks(values, 64, "table")
    table = lists.table()
    assert table.shape == lists.shape == (len(lists.groups), lists.words + 1)
    assert sorted(table[:, -1]) == list(range(len(lists.groups)))
    lengths = [lists.groups[n].bit_count() for n in table[:, -1]]
    assert lengths == sorted(lengths, reverse=True)
    np.testing.assert_array_equal(lists.kept().sum(1), [g.bit_count() for g in lists.groups])
    for group in range(len(lists.groups)):
        own = values[group * lists.step : (group + 1) * lists.step]
        for chunk in range(lists.chunks):
            is_listed = table[group, chunk // 32] >> (chunk % 32) & 1
            has_numbers = own[:, chunk * 64 : (chunk + 1) * 64].any()
            assert is_listed == (has_numbers or (chunk == 0 and not own.any()))


def test_groups_are_as_large_as_blocks_are() -> None:
    kept = np.arange(64).reshape(8, 8) % 3 == 0
    assert listed_chunks(np.kron(kept, np.ones((64, 64))), 64, "table").step == 64
    assert listed_chunks(np.kron(kept, np.ones((32, 64))), 64, "table").step == 32
    assert listed_chunks(np.ones((512, 512)), 64, "table").groups == (255,)


@pytest.mark.parametrize("size", [8, 16, 48, 64, 80, 128, 256])
def test_a_tile_walks_what_any_of_its_groups_lists(size: int) -> None:
    values = blocks(640, 1024, 64, 0.3)
    values[::64, 0] = 1  # no group is empty
    lists = listed_chunks(values, 64, "table")
    counts = lists.counts(size, 640)
    assert len(counts) == -(-640 // size)
    if lists.is_ordered(size, 640):
        each = lists.kept().sum(1).repeat(lists.step // size)
        assert counts == sorted(each, reverse=True)
        return
    for number, count in enumerate(counts):
        first = number * size // lists.step * lists.step
        last = -(-(number + 1) * size // lists.step) * lists.step
        own = values[first:last].reshape(-1, 1024 // 64, 64)
        assert count == own.any(axis=(0, 2)).sum()


@pytest.mark.parametrize(("density", "least"), [(0.5, 1.4), (0.25, 2.5), (0.1, 5)])
def test_less_is_read_and_computed_and_takes_less_time(density: float, least: float) -> None:
    lists = listed_chunks(blocks(8192, 8192, 64, density), 64, "table")
    for rows in (16, 4096):
        product = listed_product(rows, 8192, 8192, lists)
        dense = replace(product, right=replace(product.right, listed=None))
        own, whole = (construct_warpgroup(p, H200, 1)[0] for p in (product, dense))
        assert whole.seconds > least * own.seconds
        assert own.walked < 1.5 * density + 0.05
        assert own.columns == (64,)  # of wider ones, more chunks are in some list
        assert product.read_size - 2 * rows * 8192 == int(2 * 8192 * 8192 * lists.share)


def test_lists_of_all_chunks_take_as_long_as_none() -> None:
    lists = listed_chunks(np.ones((2048, 2048)), 64, "table")
    product = listed_product(2048, 2048, 2048, lists)
    dense = replace(product, right=replace(product.right, listed=None))
    alike = {t.describe(): t.seconds for t in construct_warpgroup(dense, H200, 1000)}
    found = {t.describe(): t.seconds for t in construct_warpgroup(product, H200, 1000)}
    both = alike.keys() & found.keys()
    assert len(both) > 10
    assert [found[tile] for tile in both] == pytest.approx([alike[tile] for tile in both])


def test_blocks_that_share_a_list_have_two_chunks_each_and_none_takes_turns() -> None:
    values = blocks(1024, 8192, 64, 0.3)
    values[:64, 5 * 64 :] = 0  # a short list
    values[:64, : 5 * 64] = 1
    for own, most in ((values, 2), (values[64:], 4)):
        lists = listed_chunks(own, 64, "table")
        tiles = construct_warpgroup(listed_product(64, len(own), 8192, lists), H200, 1000)
        assert max(tile.splits for tile in tiles if tile.columns == (64,)) == most
        assert not any(tile.alternates for tile in tiles)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float8_e4m3fn", "int8"])
@pytest.mark.parametrize("is_turned", [False, True])
def test_zeros_of_either_sign_are_zeros_of_every_type(dtype: str, is_turned: bool) -> None:
    drawn = blocks(136, 520, 64, 0.4)
    kept = drawn != 0
    values = np.where(kept, np.where(drawn > 0, 1.5, -128), -0.0)
    values = values.astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    own = np.ascontiguousarray(values.T).T if is_turned else values
    assert listed_chunks(own, 64, "table") == listed_chunks(kept, 64, "table")
