"""Tables of the tiles of keys that rows see, and what kernels that walk through them do."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from test_chain_tiles import H200, attention

from tvm_tile.tile.attention.key_tiles import Granules
from tvm_tile.tile.attention.warpgroups import construct_chain

RNG = np.random.default_rng(7)


@pytest.mark.parametrize(("rows", "keys"), [*itertools.product((64, 128, 192), repeat=2)])
def test_tables_list_what_granules_say(rows: int, keys: int) -> None:
    seen = RNG.random((7, 10)) < 0.3
    seen[3] = False
    whole = seen & (RNG.random(seen.shape) < 0.5)
    tiles, table = Granules(seen, whole).tiles(rows, keys)
    assert sorted(table[:, 0]) == list(range(-(-7 * 64 // rows)))
    assert list(tiles.lengths) == sorted(table[:, 1], reverse=True) == table[:, 1].tolist()
    parts = 0
    for tile, count, *entries in table.tolist():
        down = slice(tile * rows // 64, (tile + 1) * rows // 64)
        listed = dict(divmod(entry, 2) for entry in entries[:count])
        assert len(listed) == count
        for other in range(-(-10 * 64 // keys)):
            own = seen[down, other * keys // 64 : (other + 1) * keys // 64]
            all_of = whole[down, other * keys // 64 : (other + 1) * keys // 64]
            is_inside = all_of.size == rows * keys // 4096
            if other in listed:
                assert bool(listed[other]) == (bool(all_of.all()) and is_inside)
            assert (other in listed) == bool(own.any()) or (not seen[down].any() and other == 0)
        parts += count - sum(listed.values())
    assert tiles.parts == parts


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_time_is_that_of_the_listed_tiles(share: float) -> None:
    chain = attention(columns=64, b=64, q=4096, k=4096)
    (dense,) = construct_chain(chain, H200, 1)
    seen = np.repeat(np.repeat(RNG.random((32, 32)) < share, 2, 0), 2, 1)
    tiles, _ = Granules(seen, seen).tiles(128, 128)
    (listed,) = construct_chain(replace(chain, listed=tiles), H200, 1)
    assert (listed.rows, listed.keys) == (128, 128)
    own = sum(tiles.lengths) / 32**2
    assert own * dense.seconds < listed.seconds < own * dense.seconds / 0.8 + 10e-6


def test_tiles_that_are_not_the_tables_are_not_named() -> None:
    chain = attention(b=8, q=1024, k=1024)
    seen = np.ones((16, 16), bool)
    tiles, _ = Granules(seen, seen).tiles(64, 128)
    found = construct_chain(replace(chain, listed=tiles), H200, 1000)
    assert {(tile.rows, tile.keys) for tile in found} == {(64, 128)}
