"""Attention on CUDA cores and with warps' instructions: the tiles that a device has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_chain_tiles import behind, scores

from tvm_tile.device import Device, find_device
from tvm_tile.device.device import MemoryLevel
from tvm_tile.tile.attention.band import Band
from tvm_tile.tile.attention.chain import Chain, connect, with_axes_of
from tvm_tile.tile.attention.cores import CoreTile, construct_core_attention
from tvm_tile.tile.attention.warps import WarpAttentionTile, construct_warp_attention

A100, H200, MI300X, EMULATED = (
    find_device(name) for name in ("nvidia/a100", "nvidia/h200", "amd/mi300x", "emulated")
)
MANY = 10_000


def chain_of(dtype: str, *, columns: int = 48, **sizes: int) -> Chain:
    first = scores(dtype=dtype, **sizes)
    second = with_axes_of(first, behind(first, n=columns))
    assert second is not None
    chain = connect(first, second)
    assert chain is not None
    return chain


@pytest.mark.parametrize("device", [A100, H200, MI300X, EMULATED], ids=lambda own: own.name)
@pytest.mark.parametrize("columns", [8, 48, 72, 128])
def test_tiles_for_cores_are_whole_grids_of_threads_and_fit(device: Device, columns: int) -> None:
    found = construct_core_attention(chain_of("float32", columns=columns), device, MANY)
    assert found
    assert [tile.seconds for tile in found] == sorted(tile.seconds for tile in found)
    for tile in found:
        assert tile.rows == tile.down * tile.thread_rows
        assert tile.keys == tile.across * tile.thread_keys
        assert tile.columns == tile.across * tile.thread_columns >= columns
        assert tile.keys % 4 == tile.depth % 4 == tile.across % 4 == 0
        assert tile.thread_columns % tile.column_vector == 0
        assert tile.shared_bytes <= device.memory(MemoryLevel.SHARED).capacity
        # Eight neighbouring rows begin at eight different vectors of the banks.
        for pitch in (tile.depth_pitch, tile.key_pitch):
            assert pitch % 4 == 0
            if tile.depth % 32 == 0 and pitch == tile.depth_pitch:
                assert len({row * pitch // 4 % 8 for row in range(8)}) == 8


@pytest.mark.parametrize("columns", [8, 48, 72, 128])
def test_tiles_for_warps_lie_where_their_swizzle_lets_them(columns: int) -> None:
    found = construct_warp_attention(chain_of("float16", columns=columns), A100, MANY)
    assert found
    for tile in found:
        assert tile.shared_bytes <= A100.memory(MemoryLevel.SHARED).capacity
        ends = [0]
        for slab in tile.chunks:
            assert slab.start >= ends[-1]
            assert slab.start % (slab.size // slab.lines * 16) == 0
            ends.append(slab.start + slab.size)
        assert tile.shared_bytes >= ends[-1]
        assert tile.columns >= columns


@pytest.mark.parametrize(
    ("device", "dtype", "has_cores", "has_warps"),
    [
        (A100, "float32", True, False),
        (A100, "float16", False, True),
        (H200, "bfloat16", False, True),
        (EMULATED, "float16", True, False),
        (MI300X, "float16", False, True),
        (MI300X, "int8", False, False),
        (H200, "float64", False, False),
    ],
    ids=str,
)
def test_a_unit_takes_the_types_it_multiplies(
    device: Device, dtype: str, has_cores: bool, has_warps: bool
) -> None:
    chain = chain_of(dtype)
    assert bool(construct_core_attention(chain, device, 1)) is has_cores
    assert bool(construct_warp_attention(chain, device, 1)) is has_warps


def best(chain: Chain, device: Device) -> CoreTile | WarpAttentionTile:
    found = construct_warp_attention(chain, device, 1) or construct_core_attention(chain, device, 1)
    return found[0]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_causal_mask_halves_the_time_of_long_rows(dtype: str) -> None:
    whole = chain_of(dtype, b=8, q=2048, k=2048)
    causal = replace(whole, band=Band(None, 0))
    share = best(causal, A100).seconds / best(whole, A100).seconds
    assert 0.45 < share < 0.65


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_large_bias_takes_its_time_to_read(dtype: str) -> None:
    chain = chain_of(dtype, b=8, q=256, k=256)
    biased = replace(chain, beside=10**9)
    assert best(biased, A100).seconds > 10**9 / A100.read_bandwidth > best(chain, A100).seconds


def test_float32_reaches_what_such_kernels_do() -> None:
    """From two fifths of the peak up to four fifths: 85 % is what plain products reach."""
    chain = chain_of("float32", b=64, h=12, q=512, k=512, d=64, columns=64)
    share = chain.flops / best(chain, H200).seconds / H200.flops("float32")
    assert 0.4 < share < 0.8
