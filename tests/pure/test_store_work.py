"""What becomes of sums takes time, which blocks that share a multiprocessor hide for each other."""

from __future__ import annotations

import pytest
from operators import einsum

from tvm_tile.device import find_device
from tvm_tile.tile.product import Product, find_product
from tvm_tile.tile.store_work import BARE, StoreWork, store_seconds
from tvm_tile.tile.warpgroup import construct_warpgroup

H200 = find_device("nvidia/h200")
SILU = StoreWork(operations=20)
SINGLE = StoreWork(is_wide=False)


def product(m: int, n: int, k: int) -> Product:
    result = find_product(einsum("mk", "nk", "mn", "float16", m=m, n=n, k=k))
    assert result is not None
    return result


def test_a_few_warps_wait_and_many_take_turns() -> None:
    few, twice, many = (store_seconds(SILU, H200, 64, warps) for warps in (1, 2, 16))
    assert few == twice < many
    assert many == pytest.approx(2 * store_seconds(SILU, H200, 64, 8))
    assert store_seconds(SILU, H200, 128, 2) == pytest.approx(2 * twice)
    assert store_seconds(BARE, H200, 128, 8) == 0


@pytest.mark.parametrize("work", [SILU, SINGLE], ids=["silu", "single"])
def test_shallow_products_with_work_share_a_multiprocessor(work: StoreWork) -> None:
    of = product(1_000_000, 128, 32)
    first, *_ = construct_warpgroup(of, H200, 1, work)
    assert first.blocks > 1
    alone = min(
        tile.seconds for tile in construct_warpgroup(of, H200, 1000, work) if tile.blocks == 1
    )
    assert first.seconds < 0.8 * alone
    bare, *_ = construct_warpgroup(of, H200, 1)
    assert bare.seconds < first.seconds


def test_deep_products_hide_it() -> None:
    of = product(8192, 8192, 8192)
    (bare,), (silu,) = (construct_warpgroup(of, H200, 1, work) for work in (BARE, SILU))
    assert bare.blocks == 1
    assert silu.seconds == pytest.approx(bare.seconds, rel=1e-3)
