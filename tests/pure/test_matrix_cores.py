"""Tiles for AMD's matrix cores: what the instructions, the loads and the memories ask for."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operators import conv_nhwc, einsum

from tvm_tile.device import Device, MemoryLevel, find_device
from tvm_tile.device.rocm import MI250X, MI300X, ROCM_DEVICES, RX7900XTX
from tvm_tile.tile.products.matrix_cores import (
    MatrixTile,
    construct_matrix_cores,
    matrix_core_dtypes,
)
from tvm_tile.tile.products.warp_tile import WarpTile, chunk_counts, tile_counts
from tvm_tile.tile.units.product import Product, find_product
from tvm_tile.tile.units.unit import WaveUnit

EVERY = 10**6
LAYOUTS = ("NN", "NT", "TN", "TT")
EXTENTS = st.one_of(st.integers(2, 40), st.sampled_from([64, 65, 127, 197, 1000, 4096, 50_257]))


def product(
    m: int, n: int, k: int, *, layout: str = "NT", batch: int = 1, dtype: str = "float16"
) -> Product:
    """``C[b, m, n] += A * B``, each stored as the letter of ``layout`` says."""
    left, right = "bmk" if layout[0] == "N" else "bkm", "bkn" if layout[1] == "N" else "bnk"
    found = find_product(einsum(left, right, "bmn", dtype, b=batch, m=m, n=n, k=k))
    assert found is not None
    return found


def check(tile: MatrixTile, of: Product, device: Device) -> None:
    """What every tile must keep to."""
    element = of.left.tensor.element_size
    size = tile.unit.instruction.shape[0]
    assert tile.unit.instruction in device.matrix_instructions
    assert tile.unit.instruction.in_dtype == of.left.tensor.dtype
    assert tile.depth * element in (64, 128)
    for extent in (tile.warp_rows, tile.warp_columns):
        assert extent & (extent - 1) == 0  # for the swizzle
        assert size <= extent <= 128
    assert max(tile.rows, tile.columns) <= 256
    staged = tile.stages * (tile.rows + tile.columns) * tile.depth * element
    corner = size * (min(32, tile.warp_columns) + 4) * 4
    assert tile.shared_bytes == max(staged, math.prod(tile.warps) * corner)
    assert tile.shared_bytes <= device.memory(MemoryLevel.SHARED).capacity
    chunks = math.prod(chunk_counts(of, tile.depth))
    assert 1 <= tile.stages <= min(2, chunks)
    assert tile.parts in (1, 2, 4, 8, 16, 32)
    if tile.parts > 1:
        assert 2 * tile.parts <= chunks
        assert tile.grid <= 2 * device.multi_processor_count
    assert tile.warp_rows * tile.warp_columns // device.warp_size == tile.sums <= 128
    assert tile.sums < tile.registers
    assert tile.registers <= device.memory(MemoryLevel.REGISTER).capacity // 4
    assert tile.registers * tile.block_size <= device.registers_per_multi_processor
    assert tile.block_size == device.warp_size * math.prod(tile.warps) <= 1024
    rows = math.prod(tile_counts(of.left, tile.rows))
    tiles = of.batches * rows * math.prod(tile_counts(of.right, tile.columns))
    assert tile.grid == tiles * tile.parts
    assert 1 <= tile.raster <= rows
    left, right = tile.chunks(of)
    assert right.start == left.size
    assert left.size + right.size == tile.stage_bytes
    assert device.launch_latency <= tile.seconds < math.inf


def check_all(of: Product, device: Device) -> None:
    tiles = construct_matrix_cores(of, device, EVERY)
    reached = max(math.prod(o.tensor.shape) for o in (of.left, of.right)) < 1 << 31
    assert bool(tiles) == reached
    assert len(set(tiles)) == len(tiles)
    for tile in tiles:
        check(tile, of, device)
    assert all(a.seconds <= b.seconds for a, b in itertools.pairwise(tiles))
    assert construct_matrix_cores(of, device, 3) == tiles[:3]


@settings(max_examples=20, deadline=None)
@given(
    m=EXTENTS,
    n=EXTENTS,
    k=EXTENTS,
    layout=st.sampled_from(LAYOUTS),
    batch=st.sampled_from([1, 3, 96]),
    device=st.sampled_from(ROCM_DEVICES),
    data=st.data(),
)
def test_tiles_of_matrix_products(
    m: int, n: int, k: int, layout: str, batch: int, device: Device, data: Any
) -> None:
    dtype = data.draw(st.sampled_from(sorted(matrix_core_dtypes(device))))
    check_all(product(m, n, k, layout=layout, batch=batch, dtype=dtype), device)


@settings(max_examples=10, deadline=None)
@given(
    images=st.sampled_from([1, 7, 128]),
    size=st.sampled_from([(1, 3), (7, 13), (56, 112)]),
    channels=st.sampled_from([3, 24, 256]),
    filters=st.sampled_from([2, 64, 1000]),
    kernel=st.sampled_from([1, 3]),
    stride=st.sampled_from([1, 2]),
    device=st.sampled_from(ROCM_DEVICES),
)
def test_tiles_of_convolutions(
    images: int,
    size: tuple[int, int],
    channels: int,
    filters: int,
    kernel: int,
    stride: int,
    device: Device,
) -> None:
    of = find_product(conv_nhwc(images, size, channels, filters, kernel=kernel, stride=stride))
    assert of is not None
    if of.left.tensor.dtype in matrix_core_dtypes(device):
        check_all(of, device)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("device", ROCM_DEVICES, ids=lambda device: device.name)
def test_a_large_product_is_near_the_matrix_cores_rate(layout: str, device: Device) -> None:
    of = product(8192, 8192, 8192, layout=layout)
    best, *_ = construct_matrix_cores(of, device, 1)
    assert best.rows * best.columns >= 128 * 64
    assert 1 < best.seconds * dict(device.matrix_flops)["float16"] / of.flops < 2


def test_a_small_product_fills_the_device() -> None:
    best, *_ = construct_matrix_cores(product(512, 512, 512), MI300X, 1)
    assert best.grid >= MI300X.multi_processor_count // 2


DEEP = ((128, 768, 16384), (64, 64, 65536), (49, 512, 4608))
WIDE = ((4096, 4096, 4096), (512, 65536, 256), (8192, 64, 512), (128, 768, 64))


@pytest.mark.parametrize("device", ROCM_DEVICES, ids=lambda device: device.name)
@pytest.mark.parametrize("extents", DEEP)
def test_deep_products_of_few_tiles_are_split(
    extents: tuple[int, int, int], device: Device
) -> None:
    best, *others = construct_matrix_cores(product(*extents), device, EVERY)
    whole = next(tile for tile in others if tile.parts == 1)
    assert best.parts > 1
    assert best.seconds < 0.9 * whole.seconds


@pytest.mark.parametrize("device", ROCM_DEVICES, ids=lambda device: device.name)
@pytest.mark.parametrize("extents", WIDE)
def test_products_of_many_tiles_or_of_few_chunks_are_whole(
    extents: tuple[int, int, int], device: Device
) -> None:
    best, *_ = construct_matrix_cores(product(*extents), device, 1)
    assert best.parts == 1


def test_parts_cost_a_launch_and_what_they_move() -> None:
    of = product(128, 768, 3072)
    slow = replace(MI300X, launch_latency=100e-6)
    small = replace(MI300X, l2_capacity=0, read_bandwidth=50e9)
    assert construct_matrix_cores(of, MI300X, 1)[0].parts > 1
    for device in (slow, small):
        assert construct_matrix_cores(of, device, 1)[0].parts == 1


def test_long_operands_take_the_memorys_time() -> None:
    of = product(64, 65536, 512)
    best, *_ = construct_matrix_cores(of, MI300X, 1)
    assert best.seconds < 2 * of.traffic / MI300X.read_bandwidth


def test_loads_by_element_cost_more() -> None:
    even, odd = (construct_matrix_cores(product(4096, 4096, k), MI300X, 1)[0] for k in (4096, 4095))
    assert odd.seconds > even.seconds


class TestRefusals:
    @pytest.mark.parametrize("name", ["nvidia/v100", "nvidia/h200", "emulated"])
    def test_devices_without_such_instructions(self, name: str) -> None:
        device = find_device(name)
        assert matrix_core_dtypes(device) == frozenset()
        assert construct_matrix_cores(product(512, 512, 512), device, EVERY) == ()

    def test_dtypes(self) -> None:
        halves = {"float16", "bfloat16", "int8"}
        assert matrix_core_dtypes(MI300X) == matrix_core_dtypes(MI250X) == halves | {"float32"}
        assert matrix_core_dtypes(RX7900XTX) == halves
        for dtype in ("float32", "uint8", "float8_e4m3fn"):
            of = product(64, 64, 64, dtype=dtype)
            assert construct_matrix_cores(of, RX7900XTX, EVERY) == ()

    def test_operands_of_two_dtypes(self) -> None:
        of = product(64, 64, 64, dtype="int8")
        other = replace(of.right, tensor=replace(of.right.tensor, dtype="uint8"))
        assert construct_matrix_cores(replace(of, right=other), MI300X, EVERY) == ()

    def test_what_addresses_do_not_reach(self) -> None:
        assert construct_matrix_cores(product(1 << 16, 64, (1 << 15) - 8), MI300X, 1)
        assert construct_matrix_cores(product(1 << 16, 64, 1 << 15), MI300X, 1) == ()

    def test_too_little_shared_memory(self) -> None:
        shared = MI300X.memory(MemoryLevel.SHARED)
        memories = tuple(replace(m, capacity=512) if m is shared else m for m in MI300X.memories)
        device = replace(MI300X, memories=memories)
        assert construct_matrix_cores(product(512, 512, 512), device, EVERY) == ()


def test_a_tile_describes_itself() -> None:
    unit = WaveUnit(MI300X.matrix_instructions[2], 64)
    tile = WarpTile(unit, 64, 32, (2, 4), 32, 1)
    assert tile.describe() == "block 128 by 128, depth 32, 1 stage, 2 by 4 waves, mfma 16x16x16"
    assert (tile.rows, tile.columns, tile.block_size) == (128, 128, 512)
    assert replace(tile, parts=4).describe() == f"{tile.describe()}, parts 4"
