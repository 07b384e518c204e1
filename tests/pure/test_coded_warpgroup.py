"""Tiles of products of many vectors with codes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tvm_tile.device import find_device
from tvm_tile.tile.coded.few_vectors import CodedProduct
from tvm_tile.tile.coded.warpgroup import STEP, construct_coded_warpgroup

H200, A100 = (find_device(f"nvidia/{name}") for name in ("h200", "a100"))
PRODUCT = CodedProduct(128, 4096, 4096, 4, 128, 4096 * 32 * 2, 4)


@pytest.mark.parametrize("vectors", [17, 33, 64, 128, 200, 512, 4096])
def test_tiles_cover_all_and_fit(vectors: int) -> None:
    tiles = construct_coded_warpgroup(replace(PRODUCT, vectors=vectors), 2, H200)
    assert tiles
    assert list(tiles) == sorted(tiles, key=lambda tile: tile.seconds)
    for tile in tiles:
        rows, columns = tile.counts
        assert rows * tile.block_rows >= 4096
        assert (columns - 1) * tile.width < vectors <= columns * tile.width
        assert tile.width % 8 == 0
        assert tile.width <= 256
        assert tile.shared_bytes <= 232448
        assert tile.depth % tile.unit == tile.unit % STEP == 0
        assert tile.grid <= tile.tiles * tile.splits


def test_few_vectors_make_clusters_share_sums() -> None:
    first, *_ = construct_coded_warpgroup(replace(PRODUCT, vectors=64), 1, H200)
    assert first.splits > 1


def test_many_vectors_are_bound_by_the_matrix_units() -> None:
    first, *_ = construct_coded_warpgroup(replace(PRODUCT, vectors=4096), 1, H200)
    assert first.width >= 192
    assert first.seconds > 2 * 4096**3 / 989e12


@pytest.mark.parametrize(
    "product",
    [
        replace(PRODUCT, vectors=16),
        replace(PRODUCT, group=16),
        replace(PRODUCT, depth=4096 + 32, group=32),
    ],
    ids=str,
)
def test_others_have_no_tiles(product: CodedProduct) -> None:
    assert not construct_coded_warpgroup(product, 1, H200)


def test_devices_without_warpgroups_have_no_tiles() -> None:
    assert not construct_coded_warpgroup(PRODUCT, 1, A100)
