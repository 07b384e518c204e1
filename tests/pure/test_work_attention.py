"""What kernels of attention are said to do: no less than there is, and all of their tiles say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from test_attention_tiles import chain_of
from test_decode_tiles import decode

from tvm_tile.device import Device, find_device
from tvm_tile.tile.attention.band import Band
from tvm_tile.tile.attention.chain import Chain
from tvm_tile.tile.attention.cores import construct_core_attention
from tvm_tile.tile.attention.decode import construct_decode
from tvm_tile.tile.attention.rounds import WalkingTile
from tvm_tile.tile.attention.warpgroups import construct_chain
from tvm_tile.tile.attention.warps import construct_warp_attention
from tvm_tile.tile.time import AMID, Unit, Work, seconds_of

A100, H200, MI300X, RDNA, EMULATED = (
    find_device(name)
    for name in ("nvidia/a100", "nvidia/h200", "amd/mi300x", "amd/rx9070xt", "emulated")
)
EVERY = 10_000
SIZES = (
    {"b": 1, "h": 1, "q": 64, "k": 64},
    {"q": 200, "k": 130},
    {"b": 8, "h": 12, "q": 197, "k": 197, "columns": 64},
    {"b": 1, "h": 32, "q": 2048, "k": 2048, "d": 128, "columns": 128},
    {"b": 4, "h": 8, "q": 4096, "k": 77, "d": 40, "columns": 40},
)
Construct = Callable[[Chain, Device, int], Sequence[WalkingTile]]
FAMILIES: tuple[tuple[Construct, Device, str, Unit], ...] = (
    (construct_chain, H200, "float16", Unit.GROUP),
    (construct_warp_attention, A100, "bfloat16", Unit.WARP),
    (construct_warp_attention, MI300X, "float16", Unit.WAVE),
    (construct_warp_attention, RDNA, "float16", Unit.WAVE),
    (construct_core_attention, H200, "float32", Unit.CORES),
    (construct_core_attention, EMULATED, "float16", Unit.CORES),
)
families = pytest.mark.parametrize(
    ("construct", "device", "dtype", "unit"),
    FAMILIES,
    ids=lambda own: str(getattr(own, "name", getattr(own, "__name__", own))),
)


def total(work: Work, name: str) -> float:
    """A quantity of all blocks."""
    return work.blocks * sum(part.repeats * getattr(part, name) for part in work.parts)


def at_least(found: float, least: float) -> bool:
    return found >= least * (1 - 1e-9)


def works_of(tiles: Sequence[Any]) -> list[Work]:
    assert tiles
    works = [tile.work for tile in tiles]
    assert None not in works
    return works


@families
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_blocks_do_all_that_there_is_to_do(
    construct: Construct, device: Device, dtype: str, unit: Unit, sizes: dict[str, int]
) -> None:
    chain = chain_of(dtype, **sizes)
    tiles = construct(chain, device, EVERY)
    for tile, work in zip(tiles, works_of(tiles), strict=True):
        assert (work.unit, work.blocks, work.resident > 0) == (unit, tile.grid, True)
        assert work.read + work.written == chain.traffic
        assert work.written == chain.second.write.tensor.size
        assert at_least(total(work, "fills"), work.read)
        assert at_least(total(work, "stores"), work.written)
        if unit is Unit.CORES:
            # A multiply-add of each of a warp's threads is one instruction, or more.
            assert at_least(total(work, "operations") * device.warp_size, chain.flops / 2)
            assert total(work, "flops") == 0
        else:
            padded = 2 * tile.rounds.items * tile.rows * (tile.depth + tile.columns)
            steps = max(tile.rounds.lengths)
            assert at_least(total(work, "flops"), padded * steps * tile.keys)
            assert padded * steps * tile.keys >= chain.flops
            assert work.dtype == dtype
            # One weight is an exponential of every score.
            scores = chain.first.write.tensor.size / chain.first.write.tensor.element_size
            assert total(work, "operations") * device.warp_size > 4 * scores


@families
def test_a_band_halves_the_work_and_a_bias_adds_to_it(
    construct: Construct, device: Device, dtype: str, unit: Unit
) -> None:
    chain = chain_of(dtype, b=8, h=16, q=4096, k=4096, d=64, columns=64)
    causal = replace(chain, band=Band(None, 0))
    fills = []
    for own in (chain, causal):
        tiles = construct(own, device, EVERY)
        works = works_of(tiles)
        found = {
            tile.describe(): total(work, "fills") for tile, work in zip(tiles, works, strict=True)
        }
        fills.append(found)
    whole, halved = fills
    for name in whole:
        assert 0.45 < halved[name] / whole[name] < 0.65
    (plain,), (biased,) = (
        works_of(construct(replace(chain, beside=beside, asked=asked), device, 1))
        for beside, asked in ((0, 0.0), (4096 * 4096, 1.0))
    )
    for name in ("fills", "moves", "loads", "operations"):
        assert total(biased, name) > total(plain, name)


@pytest.mark.parametrize("device", [A100, H200, EMULATED], ids=lambda own: own.name)
@pytest.mark.parametrize("width", [35, 64, 128])
@pytest.mark.parametrize(("groups", "rows", "keys"), [(8, 4, 1152), (3, 1, 77), (64, 7, 9000)])
def test_decode_reads_every_key_once(
    device: Device, width: int, groups: int, rows: int, keys: int
) -> None:
    problem = decode(groups=groups, rows=rows, keys=keys, width=width)
    tiles = construct_decode(problem, device, EVERY)
    for tile, work in zip(tiles, works_of(tiles), strict=True):
        assert work.blocks == tile.grid
        assert work.read + work.written == problem.traffic
        assert at_least(total(work, "fills"), groups * problem.read_bytes)
        assert at_least(total(work, "stores"), work.written)
        products = groups * rows * keys * 2 * width
        assert at_least(total(work, "operations") * device.warp_size, products)
        assert work.parts[1].repeats * tile.workers * tile.splits * tile.lanes >= keys


def test_times_tell_tiles_apart() -> None:
    tiles = construct_chain(chain_of("float16", q=2048, k=2048), H200, EVERY)
    for scene in ((), (AMID,)):
        seconds = seconds_of(works_of(tiles), H200, *scene)
        assert 0 < seconds.min() < seconds.max() < 1
