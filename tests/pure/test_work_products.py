"""What kernels of products say they do: all of the sums, all of the bytes, by all of the blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from operators import conv_nhwc, einsum
from test_halo_tiles import halo_of

from tvm_tile.device import find_device
from tvm_tile.device.rocm import MI300X, RX7900XTX
from tvm_tile.tile.products.halo import construct_halo
from tvm_tile.tile.products.halo_tile import Halo, Row
from tvm_tile.tile.products.matrix_cores import construct_matrix_cores
from tvm_tile.tile.products.mma import construct_mma
from tvm_tile.tile.products.store_work import BARE, StoreWork
from tvm_tile.tile.products.warp_tile import WarpTile
from tvm_tile.tile.products.warpgroup import construct_warpgroup
from tvm_tile.tile.products.warpgroup_tile import WarpgroupTile
from tvm_tile.tile.time import ALONE, AMID, Part, Work, seconds_of
from tvm_tile.tile.units.product import Product, find_product

A100, H200 = find_device("nvidia/a100"), find_device("nvidia/h200")
EVERY = 10**6
FAMILIES = {
    "wgmma": (construct_warpgroup, H200),
    "mma": (construct_mma, H200),
    "mma_a100": (construct_mma, A100),
    "matrix_cores": (construct_matrix_cores, MI300X),
    "matrix_cores_rdna": (construct_matrix_cores, RX7900XTX),
}


def found(operator: Any) -> Product:
    product = find_product(operator)
    assert product is not None
    return product


def matmul(m: int, n: int, k: int, left: str = "mk", right: str = "nk", b: int = 1) -> Product:
    return found(einsum(f"b{left}", f"b{right}", "bmn", "float16", b=b, m=m, n=n, k=k))


PRODUCTS = {
    "small": matmul(64, 64, 64),
    "few_rows": matmul(16, 1024, 1024),
    "long": matmul(128, 128, 16384),
    "ragged": matmul(200, 328, 1000, right="kn"),
    "odd": matmul(37, 41, 53, left="km"),
    "heads": matmul(512, 512, 64, b=96),
    "large": matmul(4096, 4096, 4096, left="km", right="kn"),
    "shallow": matmul(1_000_000, 64, 64),
    "conv": found(conv_nhwc(128, (14, 14), 256, 256, kernel=3)),
}
HALOS = {
    "bottleneck": halo_of(),
    "half": halo_of(columns=None),
    "strides": halo_of((Row(32), Row(28, 3, 2), Row(28, 3, 2)), 192, depth=32, columns=64),
    "feed_forward": halo_of((Row(1), Row(4096)), 128, depth=64, columns=64, parts=2),
}


def total(work: Work, name: str) -> float:
    """A quantity of all blocks, all repetitions."""
    return work.blocks * sum(part.repeats * getattr(part, name) for part in work.parts)


def works(tiles: Sequence[Any]) -> list[tuple[Any, Work]]:
    assert tiles
    return [(tile, tile.work) for tile in tiles]


def check(work: Work) -> None:
    """What holds of any work."""
    assert min(work.blocks, work.resident) >= 1
    for part in work.parts:
        assert part.ahead >= 1
        assert all(getattr(part, field) >= 0 for field in Part.__slots__)
    assert total(work, "stores") > 0.99 * work.written
    # What comes from the cache was brought there, each byte once at least.
    assert total(work, "fills") > 0.99 * work.read


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", PRODUCTS)
def test_all_sums_are_made_and_stored(name: str, family: str) -> None:
    product = PRODUCTS[name]
    construct, device = FAMILIES[family]
    if family == "wgmma" and name == "odd":
        return  # strides that copies refuse
    for tile, work in works(construct(product, device, EVERY)):
        check(work)
        assert work.read == product.left.read_size + product.right.read_size
        chunks, steps = work.parts[1].repeats, math.prod(a.extent for a in product.steps)
        if isinstance(tile, WarpTile):
            summed, parts = chunks * tile.depth * tile.parts, tile.parts
            assert bool(work.then) == (parts > 1)
            assert work.written == product.write.tensor.size * (2 * parts if parts > 1 else 1)
        else:
            assert isinstance(tile, WarpgroupTile)
            groups = tile.consumers if tile.alternates else 1
            assert (work.blocks, work.resident) == (tile.grid * groups, tile.blocks * groups)
            assert work.warps * groups * 32 == tile.block_size - 128
            # Each block's turns are an average of a multiprocessor's.
            summed = chunks * tile.depth * tile.splits * work.blocks / tile.tiles / tile.splits
            assert work.written == product.write.tensor.size
        assert summed > 0.99 * steps * product.depth.extent
        assert total(work, "flops") > 0.99 * product.flops


@pytest.mark.parametrize("name", HALOS)
def test_halos_make_both_products_and_all_windows(name: str) -> None:
    halo: Halo = HALOS[name]
    windows = math.prod(row.extent for row in halo.rows)
    least = halo.first.flops + (halo.second.flops if halo.second else 0)
    least += 2 * windows * halo.channels * halo.taps * len(halo.parts) * halo.has_window
    for _, work in works(construct_halo(halo, H200, EVERY)):
        check(work)
        assert total(work, "flops") >= least
        assert work.written == 2 * windows * (halo.columns or halo.channels)
        assert work.read + work.written == halo.traffic


@pytest.mark.parametrize("family", ["wgmma", "mma"])
def test_work_on_sums_is_done_for_each(family: str) -> None:
    construct, device = FAMILIES[family]
    product = PRODUCTS["ragged"]
    sums = product.left.extent * product.right.extent
    own = StoreWork(operations=5, is_wide=False, read_bytes=2 * sums, loads=1)
    bare, more = (
        {tile.describe(): w for tile, w in works(construct(product, device, EVERY, work))}
        for work in (BARE, own)
    )
    for name, work in bare.items():
        assert total(more[name], "operations") - total(work, "operations") >= 5 * sums / 32
        assert total(more[name], "moves") - total(work, "moves") >= 2 * sums / 32 * 3 / 4
        assert total(more[name], "loads") > total(work, "loads")
        assert total(more[name], "fills") - total(work, "fills") > 1.99 * sums
        assert more[name].read - work.read == 2 * sums


@pytest.mark.parametrize("scene", [ALONE, AMID], ids=["alone", "amid"])
def test_longer_sums_take_longer(scene: Any) -> None:
    for construct in (construct_warpgroup, construct_mma):
        best = [construct(matmul(1024, 1024, k), H200, 1) for k in (64, 1024, 16384)]
        times = seconds_of([work for tiles in best for _, work in works(tiles)], H200, scene)
        assert 0 < times[0] < times[1] < times[2] < 1e-3
