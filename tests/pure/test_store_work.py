"""What becomes of sums takes time, which blocks that share a multiprocessor hide for each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from operators import einsum

from tvm_tile.device import find_device
from tvm_tile.tile.products.store_work import BARE, StoreWork, store_part
from tvm_tile.tile.products.warpgroup import construct_warpgroup
from tvm_tile.tile.units.product import Product, find_product
from tvm_tile.tile.units.sum_layout import MMA_SUMS

H200 = find_device("nvidia/h200")
SILU = StoreWork(operations=20)
SINGLE = StoreWork(is_wide=False)


def product(m: int, n: int, k: int) -> Product:
    result = find_product(einsum("mk", "nk", "mn", "float16", m=m, n=n, k=k))
    assert result is not None
    return result


def test_all_sums_are_worked_on_and_stored_side_by_side_or_one_by_one() -> None:
    operations, moves = SILU.storing(warps=8, each=64)
    assert (operations, moves) == (8 * 64 * 21, 8 * 64 / 4)
    bare, single = BARE.storing(8, 64), SINGLE.storing(8, 64)
    assert bare[0] == single[0] < operations
    assert 4 * bare[1] == single[1]
    assert BARE.stored(4096, 64) == 4096
    assert SINGLE.stored(4096, 64) == 1.5 * 4096  # two sectors, and one for where they begin


def test_residuals_come_from_memory() -> None:
    of = product(65536, 512, 64)
    works = (BARE, StoreWork(read_bytes=65536 * 512 * 2))
    (bare,), (residual,) = (construct_warpgroup(of, H200, 1, work) for work in works)
    assert residual.seconds > 1.2 * bare.seconds


def test_shallow_products_share_a_multiprocessor() -> None:
    of = product(1_000_000, 64, 64)
    tiles = construct_warpgroup(of, H200, 1000)
    assert tiles[0].blocks > 1
    assert tiles[0].seconds < min(tile.seconds for tile in tiles if tile.blocks == 1)


@pytest.mark.parametrize("work", [SILU, SINGLE], ids=["silu", "single"])
def test_work_behind_a_shallow_product_takes_time(work: StoreWork) -> None:
    of = product(1_000_000, 128, 32)
    (bare,), (first,) = (construct_warpgroup(of, H200, 1, own) for own in (BARE, work))
    assert first.seconds > 1.05 * bare.seconds


def test_behind_a_deep_one_it_is_little() -> None:
    of = product(8192, 8192, 8192)
    (bare,), (silu,) = (construct_warpgroup(of, H200, 1, work) for work in (BARE, SILU))
    assert bare.blocks == 1
    assert bare.seconds < silu.seconds < 1.1 * bare.seconds


def test_rows_that_end_within_neighbours_wait_for_each_load() -> None:
    bias = StoreWork(operations=1, is_wide=False, loads=1)
    plain, ragged = (
        store_part(own, MMA_SUMS, (4, 32, 32), 2.0**20, 64)
        for own in (bias, replace(bias, is_ragged=True))
    )
    assert plain.loads == 1 < ragged.loads
    assert replace(ragged, loads=1) == plain
