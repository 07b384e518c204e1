"""Tiles of attention of few queries: what a device has for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tvm_tile.device import Device, find_device
from tvm_tile.device.device import MemoryLevel
from tvm_tile.tile.attention.decode import MOST_ROWS, construct_decode, vector_of
from tvm_tile.tile.attention.decode_tile import Cached, Decode, rooms_of
from tvm_tile.tile.staging import shared_bytes

A100, H200, MI300X, EMULATED = (
    find_device(name) for name in ("nvidia/a100", "nvidia/h200", "amd/mi300x", "emulated")
)
EVERY = 10_000


def decode(
    *, groups: int = 8, rows: int = 4, keys: int = 1152, width: int = 64, dtype: str = "bfloat16"
) -> Decode:
    size = 4 if dtype == "float32" else 2
    cached = Cached(width, dtype, vector_of(dtype, iter([width])))
    return Decode(groups, rows, keys, cached, cached, 2 * groups * keys * width * size)


@pytest.mark.parametrize("device", [A100, H200, EMULATED], ids=lambda own: own.name)
@pytest.mark.parametrize("width", [16, 35, 64, 80, 96, 128, 256])
@pytest.mark.parametrize("rows", [1, 4, 7, MOST_ROWS])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tiles_fit_and_have_every_column_once(
    device: Device, width: int, rows: int, dtype: str
) -> None:
    found = construct_decode(decode(rows=rows, width=width, dtype=dtype), device, EVERY)
    # The sums of so many have no room in a thread's registers.
    assert found or (rows, width) == (MOST_ROWS, 256)
    assert [tile.seconds for tile in found] == sorted(tile.seconds for tile in found)
    for tile in found:
        assert tile.splits <= device.cluster_size
        assert tile.block_size <= device.max_threads_per_block
        walk, then = rooms_of(tile)
        assert tile.shared_bytes == max(shared_bytes(walk), shared_bytes(then))
        assert tile.shared_bytes <= device.memory(MemoryLevel.SHARED).capacity
        vectors = tile.decode.values.vectors
        assert tile.parts * min(vectors, tile.lanes) <= tile.lanes
        assert tile.lanes % tile.parts == 0
        assert tile.runs * tile.lanes >= vectors
        assert tile.turns * tile.workers * tile.splits * tile.lanes >= tile.decode.key_count
        for rows_of in (tile.decode.keys, tile.decode.values):
            assert rows_of.pitch % rows_of.vector == 0
            assert rows_of.pitch // rows_of.vector % 2 == 1  # neighbours' banks differ


def test_one_group_is_shared_out_where_blocks_make_clusters() -> None:
    (best,) = construct_decode(decode(), H200, 1)
    assert best.splits == 8
    (alone,) = construct_decode(decode(), A100, 1)
    assert alone.splits == 1
    (many,) = construct_decode(decode(groups=1024, keys=256), H200, 1)
    assert many.splits == 1


@pytest.mark.parametrize("width", [16, 80, 128, 256])
@pytest.mark.parametrize("rows", [1, 8, 9, MOST_ROWS])
def test_tensor_cores_multiply_where_all_is_narrow(rows: int, width: int) -> None:
    narrow = replace(decode(rows=rows, width=width), is_narrow=True)
    found = construct_decode(narrow, H200, EVERY)
    on_matrices = [tile for tile in found if tile.on_matrices]
    # Nor has a thread registers for all of 16 maxima, scales and scores, and so many sums.
    assert found[0].on_matrices if (rows, width) != (MOST_ROWS, 256) else not found
    for tile in on_matrices:
        walk, then = rooms_of(tile)
        assert tile.shared_bytes == max(shared_bytes(walk), shared_bytes(then))
        assert tile.sums == tile.workers * rows * width
        step = next(part for part in tile.work.parts if part.flops)
        padded = -(-rows // 8) * 8
        tiles = tile.tiles / tile.splits
        assert step.repeats * step.flops == pytest.approx(2 * tiles * 32 * padded * 2 * width)
    plain = construct_decode(decode(rows=rows, width=width), H200, EVERY)
    assert plain == tuple(
        replace(tile, decode=replace(tile.decode, is_narrow=False))
        for tile in found
        if not tile.on_matrices
    )
    odd = construct_decode(replace(narrow, values=Cached(36, "bfloat16", 4)), H200, EVERY)
    assert not any(tile.on_matrices for tile in odd)
    assert not any(tile.on_matrices for tile in construct_decode(narrow, EMULATED, EVERY))


def test_what_is_refused() -> None:
    assert construct_decode(decode(rows=MOST_ROWS + 1), H200, EVERY) == ()
    assert construct_decode(decode(), MI300X, EVERY) == ()
    odd = Cached(64, "float8_e4m3fn", 1)
    assert construct_decode(replace(decode(), keys=odd), H200, EVERY) == ()


def test_vectors_end_where_rows_do() -> None:
    assert vector_of("bfloat16", iter([64, 128])) == 8
    assert vector_of("bfloat16", iter([64, 36])) == 4
    assert vector_of("float32", iter([35])) == 1


def test_more_keys_take_longer() -> None:
    times = [construct_decode(decode(keys=keys), H200, 1)[0].seconds for keys in (512, 4096, 32768)]
    assert times == sorted(times)
    # At the speed of memory.
    longest = decode(keys=131072, groups=64)
    (tile,) = construct_decode(longest, H200, 1)
    assert 1.0 < tile.seconds * H200.read_bandwidth / longest.traffic < 2
