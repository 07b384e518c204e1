"""The measurement of products of many vectors with codes, as far as it goes without a GPU."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from bench.coded_tiles.many import Measured, describe, offered, others
from bench.coded_tiles.measure import product_of
from bench.open_shapes.record import Provenance
from tvm_tile.device import find_device
from tvm_tile.tile.rules import CODED, CODED_WARPGROUP

H100 = find_device("nvidia/h100")
ORIGIN = Provenance("", "", "", "", "", "")
PRODUCT = product_of(32, 256, 1024, 128)


def test_tiles_of_both_kernels_are_offered_and_others_built_beside_them() -> None:
    assert {choice.rule for choice in offered(PRODUCT, H100)} == {CODED, CODED_WARPGROUP}
    assert set(others(PRODUCT, H100)) == {"decode", "own"}


def test_the_fastest_tile_of_a_product_is_told() -> None:
    tiles = [choice for choice in offered(PRODUCT, H100) if choice.rule == CODED_WARPGROUP][:2]
    records = [
        Measured(H100.name, 32, 256, 1024, tile.tile, us, tile.seconds * 1e6, 1e-4, {}, ORIGIN)
        for tile, us in zip(tiles, (3.0, 2.0), strict=True)
    ]
    assert describe(records).startswith("(32, 256, 1024): 2.0 us (predicted ")
    assert tiles[1].tile in describe(records)
