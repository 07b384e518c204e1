"""The measurement of products of many vectors with codes, as far as it goes without a GPU."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from bench.coded_tiles.many import Measured, describe, groups, offered, others
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


def test_right_tiles_are_what_parameters_are_fitted_to() -> None:
    tiles = [choice for choice in offered(PRODUCT, H100) if choice.rule == CODED_WARPGROUP][:3]
    records = [
        Measured(H100.name, 32, 256, 1024, tile.tile, us, tile.seconds * 1e6, error, {}, ORIGIN)
        for tile, us, error in zip(tiles, (3.0, 2.0, 4.0), (1e-4, 1e-4, 1.0), strict=True)
    ]
    (group,) = groups(records, H100)
    np.testing.assert_allclose(group.measured, [3e-6, 2e-6])
    np.testing.assert_allclose(group.predict(H100), [tile.seconds for tile in tiles[:2]])
    assert tiles[1].tile in describe(records)
