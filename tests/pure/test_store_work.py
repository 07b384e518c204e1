"""What becomes of sums takes time, which blocks that share a multiprocessor hide for each other."""

from __future__ import annotations

import pytest
from operators import einsum

from tvm_tile.device import find_device
from tvm_tile.tile.products.store_work import BARE, StoreWork, store_seconds
from tvm_tile.tile.products.warpgroup import construct_warpgroup
from tvm_tile.tile.units.product import Product, find_product

H200 = find_device("nvidia/h200")
SILU = StoreWork(operations=20)
SINGLE = StoreWork(is_wide=False)


def product(m: int, n: int, k: int) -> Product:
    result = find_product(einsum("mk", "nk", "mn", "float16", m=m, n=n, k=k))
    assert result is not None
    return result


def test_warps_take_turns_and_hide_each_others_waits() -> None:
    alone = store_seconds(SILU, H200, 64, 1)
    assert alone < store_seconds(SILU, H200, 64, 8) < 8 * alone
    assert store_seconds(SILU, H200, 128, 1) == pytest.approx(2 * alone)
    bare = store_seconds(BARE, H200, 64, 1)
    assert 0 < bare < min(alone, store_seconds(SINGLE, H200, 64, 1))


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
    assert first.seconds > 1.1 * bare.seconds


def test_behind_a_deep_one_it_is_little() -> None:
    of = product(8192, 8192, 8192)
    (bare,), (silu,) = (construct_warpgroup(of, H200, 1, work) for work in (BARE, SILU))
    assert bare.blocks == 1
    assert bare.seconds < silu.seconds < 1.1 * bare.seconds
