"""Tiles with halos: what they reach, what lies where, and which a device gets."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operators import einsum

from tvm_tile.device import Device, find_device
from tvm_tile.device.device import MemoryLevel
from tvm_tile.tile.products.halo import construct_halo
from tvm_tile.tile.products.halo_tile import WARP, WARPS, Halo, HaloTile, Row
from tvm_tile.tile.units.product import Product, find_product

A100, H200 = find_device("nvidia/a100"), find_device("nvidia/h200")
REGISTERS = 65536 // (WARP * WARPS)  # that a thread of a block may have
ALIGNMENT = 16  # bytes, of what is copied or loaded at once


def product(
    rows: int, columns: int, depth: int, dtype: str = "float16", right: str = "cd"
) -> Product:
    """Places by channels."""
    operator = einsum("pd", right, "pc", dtype, p=rows, c=columns, d=depth)
    found = find_product(operator)
    assert found is not None
    return found


def halo_of(
    rows: tuple[Row, ...] = (Row(2), Row(14, 3), Row(14, 3)),
    channels: int = 96,
    *,
    depth: int = 24,
    columns: int | None = 24,
    parts: int = 1,
    dtype: str = "float16",
) -> Halo:
    """An inverted bottleneck; without windows where all have one tap, or without its end."""
    windows = math.prod(row.extent for row in rows)
    reached = math.prod(row.reach(row.extent) for row in rows)
    return Halo(
        first=product(reached, channels * parts, depth, dtype),
        rows=rows,
        channels=channels,
        parts=tuple(channels * part for part in range(parts)),
        has_window=any(row.taps > 1 for row in rows),
        second=None if columns is None else product(windows, columns, channels, dtype),
        inner_operations=2,
        outer_operations=2,
        traffic=2 * reached * depth + 2 * windows * (columns or channels),
    )


def starts(tile: HaloTile) -> list[tuple[int, int]]:
    """First element of each part of shared memory, and the one behind its last."""
    return [(tile.start(part), tile.start(part) + size) for part, size in enumerate(tile.sizes)]


rows = st.builds(
    Row,
    extent=st.integers(1, 40),
    taps=st.sampled_from([1, 2, 3, 5]),
    step=st.integers(1, 3),
    spread=st.integers(1, 2),
)
halos = st.builds(
    halo_of,
    rows=st.tuples(st.builds(Row, st.integers(1, 3)), rows, rows),
    channels=st.sampled_from([16, 32, 48, 80, 96, 192, 240]),
    depth=st.sampled_from([8, 20, 24, 96]),
    columns=st.sampled_from([None, 8, 40, 96]),
    parts=st.sampled_from([1, 2]),
    dtype=st.sampled_from(["float16", "bfloat16"]),
).filter(lambda halo: halo.second is not None or halo.has_window)


@given(halos, st.sampled_from([A100, H200]))
def test_every_tile(halo: Halo, device: Device) -> None:
    for tile in construct_halo(halo, device, 1000):
        counts = [-(-row.extent // n) for row, n in zip(halo.rows, tile.box, strict=True)]
        # Each window of each channel is of one block and one turn.
        assert halo.channels % tile.chunk == 0
        assert tile.grid * tile.turns * tile.chunk == math.prod(counts) * halo.channels
        if halo.second:
            assert tile.turns * tile.chunk == halo.channels
            assert tile.width >= halo.columns
        assert tile.registers <= REGISTERS
        assert tile.shared_bytes <= device.memory(MemoryLevel.SHARED).capacity
        assert sum(tile.sizes) * 2 <= tile.shared_bytes
        assert all(first * 2 % ALIGNMENT == 0 for first, _ in starts(tile))
        assert math.isfinite(tile.seconds)
        assert tile.seconds > 0


@given(halos)
def test_parts_of_shared_memory_hold_what_is_put_there(halo: Halo) -> None:
    for tile in construct_halo(halo, H200, 1000):
        places, values, sums, first, second, taps = tile.sizes
        assert all(a <= b for a, b in itertools.pairwise(itertools.chain(*starts(tile))))
        for pitch in (tile.depth_pitch, tile.kept_pitch, tile.chunk_pitch):
            # Eight neighbouring rows' units lie on eight different groups of banks.
            assert len({row * pitch * 2 // ALIGNMENT % 8 for row in range(8)}) == 8
        assert tile.depth >= halo.first.depth.extent
        assert places >= math.prod(tile.halo) * tile.depth_pitch
        assert first >= tile.stages * tile.chunk * len(halo.parts) * tile.depth
        assert second >= tile.stages * halo.columns * tile.chunk
        if halo.has_window:
            assert values >= tile.places * tile.chunk * len(halo.parts)
            assert sums >= tile.windows * tile.chunk
            assert taps >= 2 * halo.taps * tile.chunk * len(halo.parts) * tile.turns
        else:
            assert values >= max(tile.places, tile.windows) * tile.chunk
            assert (sums, taps) == (0, 0)


@given(halos)
def test_warps_share_the_work(halo: Halo) -> None:
    for tile in construct_halo(halo, H200, 1000):
        along_rows, along_columns = tile.warps
        assert along_rows * along_columns == WARPS
        assert tile.windows % (16 * along_rows) == 0
        assert tile.windows >= math.prod(tile.box)
        assert tile.width % (16 * along_columns) == 0
        assert tile.channel_warps * 16 == tile.chunk
        summed = tile.fragments * (WARPS // tile.channel_warps) * 16
        assert summed >= tile.windows
        assert tile.has_spare_fragments == (summed > tile.windows)


@given(st.tuples(st.builds(Row, st.integers(1, 2)), rows, rows))
def test_a_halo_is_what_the_taps_of_its_windows_reach(own: tuple[Row, ...]) -> None:
    for tile in construct_halo(halo_of(own), H200, 3):
        for row, windows, size in zip(own, tile.box, tile.halo, strict=True):
            taps = itertools.product(range(windows), range(row.taps))
            reached = {window * row.step + tap * row.spread for window, tap in taps}
            assert (min(reached), max(reached)) == (0, size - 1)


@pytest.mark.parametrize("columns", [None, 24])
def test_bottlenecks_have_tiles(columns: int | None) -> None:
    for device in (A100, H200):
        tiles = construct_halo(halo_of(columns=columns), device, 1000)
        assert len({(tile.box, tile.chunk, tile.turns) for tile in tiles}) == len(tiles) > 20
        assert [tile.seconds for tile in tiles] == sorted(tile.seconds for tile in tiles)
        assert construct_halo(halo_of(columns=columns), device, 3) == tiles[:3]


def test_a_feed_forward_has_tiles_without_a_halo() -> None:
    tiles = construct_halo(halo_of((Row(2), Row(9), Row(9)), 128), H200, 1000)
    assert tiles
    assert all(tile.halo == tile.box and tile.taps == 0 for tile in tiles)


def test_the_second_product_sums_all_channels_in_one_block() -> None:
    """Others may share them out: each block has windows' sums of its own."""
    whole = {tile.turns * tile.chunk for tile in construct_halo(halo_of(), H200, 1000)}
    half = {tile.turns for tile in construct_halo(halo_of(columns=None), H200, 1000)}
    assert whole == {96}
    assert {1, 2, 3, 6} == half


def test_gates_take_as_many_columns_of_the_first_product() -> None:
    for parts in (1, 2):
        halo = halo_of(parts=parts)
        assert {t.columns // t.chunk for t in construct_halo(halo, H200, 1000)} == {parts}
        assert {t.kept // t.chunk for t in construct_halo(halo, H200, 1000)} == {parts}
    gated = halo_of((Row(2), Row(9), Row(9)), parts=2)
    # Of two values that the first product has a value is made at once.
    assert {t.kept // t.chunk for t in construct_halo(gated, H200, 1000)} == {1}


class TestRefused:
    def test_float32(self) -> None:
        assert construct_halo(halo_of(dtype="float32"), H200, 1000) == ()

    def test_devices_without_matrix_units(self) -> None:
        assert construct_halo(halo_of(), find_device("emulated"), 1000) == ()

    def test_channels_in_no_whole_fragments(self) -> None:
        assert construct_halo(halo_of(channels=72), H200, 1000) == ()

    @pytest.mark.parametrize("depth", [7, 25])
    def test_a_depth_that_cannot_be_copied(self, depth: int) -> None:
        assert construct_halo(halo_of(depth=depth), H200, 1000) == ()
        assert construct_halo(halo_of(depth=depth + 1), H200, 1000)

    def test_operands_with_another_axis_contiguous(self) -> None:
        halo = halo_of()
        first = product(512, 96, 24, right="dc")
        second = product(392, 24, 96, right="dc")
        assert construct_halo(replace(halo, first=first), H200, 1000) == ()
        assert construct_halo(replace(halo, second=second), H200, 1000) == ()

    def test_places_by_channels(self) -> None:
        turned = einsum("dp", "cd", "pc", p=512, c=96, d=24)
        first = find_product(turned)
        assert first is not None
        assert construct_halo(replace(halo_of(), first=first), H200, 1000) == ()
