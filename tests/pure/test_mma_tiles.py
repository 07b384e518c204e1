"""Tiles for warp instructions: what the instructions, the copies and the memories ask for."""

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
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.tile.products.image import ImageTile, construct_image, units_of_sum
from tvm_tile.tile.products.mma import MmaTile, construct_mma, mma_dtypes
from tvm_tile.tile.products.warp_tile import WarpTile, chunk_counts, tile_counts
from tvm_tile.tile.units.product import Operand, Product, find_product
from tvm_tile.tile.units.unit import MmaUnit

A100, RTX3090, RTX4090, H200 = (
    find_device(f"nvidia/{name}") for name in ("a100", "rtx3090", "rtx4090", "h200")
)
EVERY = 10**6
LAYOUTS = ("NN", "NT", "TN", "TT")
EXTENTS = st.one_of(st.integers(1, 40), st.sampled_from([64, 65, 127, 197, 1000, 4096, 50_257]))


def product(
    m: int, n: int, k: int, *, layout: str = "NT", batch: int = 1, dtype: str = "float16"
) -> Product:
    """``C[b, m, n] += A * B``, each stored as the letter of ``layout`` says."""
    left, right = "bmk" if layout[0] == "N" else "bkm", "bkn" if layout[1] == "N" else "bnk"
    return found(einsum(left, right, "bmn", dtype, b=batch, m=m, n=n, k=k))


def convolution(*extents: Any, **options: int) -> Product:
    return found(conv_nhwc(*extents, **options))


def found(operator: Operator) -> Product:
    result = find_product(operator)
    assert result is not None
    return result


def check(tile: MmaTile, of: Product, device: Device) -> None:
    """What every tile must keep to."""
    ring = tile.stages * (tile.rows + tile.columns) * tile.depth * 2
    corners = math.prod(tile.warps) * 16 * 40 * 4
    assert tile.shared_bytes == max(ring, corners)
    assert tile.shared_bytes <= device.memory(MemoryLevel.SHARED).capacity
    chunks = math.prod(chunk_counts(of, tile.depth))
    assert 2 <= tile.stages <= max(2, -(-chunks // tile.parts) + 1)
    assert tile.parts in (1, 2, 4, 8, 16, 32)
    if tile.parts > 1:
        assert 2 * tile.parts <= chunks
        assert tile.grid <= 2 * device.multi_processor_count
    assert tile.depth in (32, 64)
    for extent in (tile.warp_rows, tile.warp_columns):
        assert extent in (16, 32, 64)  # powers of two, for the swizzle
    for extent in (tile.rows, tile.columns):
        assert extent & (extent - 1) == 0
        assert 16 <= extent <= 256
    sums = tile.warp_rows * tile.warp_columns // 32
    assert sums <= 128  # half of what a thread can name
    assert sums < tile.registers <= 255
    assert tile.registers * tile.block_size <= device.registers_per_multi_processor
    assert tile.block_size == 32 * math.prod(tile.warps)
    assert tile.block_size <= device.max_threads_per_block
    rows, columns = tiles_along(of.left, tile.rows), tiles_along(of.right, tile.columns)
    assert tile.grid == of.batches * rows * columns * tile.parts
    assert 1 <= tile.raster <= rows
    assert device.launch_latency < tile.seconds < math.inf


def tiles_along(operand: Operand, size: int) -> int:
    """Any rows make a tile; neighbours that are copied together must be along one axis."""
    if operand.is_depth_major:
        return -(-math.prod(axis.extent for axis in operand.free) // size)
    *others, last = (axis.extent for axis in operand.free)
    return math.prod(others) * -(-last // size)


def check_all(of: Product, device: Device) -> None:
    tiles = construct_mma(of, device, EVERY)
    reached = max(math.prod(o.tensor.shape) for o in (of.left, of.right)) < 1 << 31
    assert bool(tiles) == reached
    assert len(set(tiles)) == len(tiles)
    for tile in tiles:
        check(tile, of, device)
    assert all(a.seconds <= b.seconds for a, b in itertools.pairwise(tiles))
    assert construct_mma(of, device, 3) == tiles[:3]


@settings(max_examples=20, deadline=None)
@given(
    m=EXTENTS,
    n=EXTENTS,
    k=EXTENTS,
    layout=st.sampled_from(LAYOUTS),
    batch=st.sampled_from([1, 3, 96]),
    dtype=st.sampled_from(["float16", "bfloat16"]),
    device=st.sampled_from([A100, RTX3090, RTX4090, H200]),
)
def test_tiles_of_matrix_products(
    m: int, n: int, k: int, layout: str, batch: int, dtype: str, device: Device
) -> None:
    operator = einsum(
        "bmk" if layout[0] == "N" else "bkm",
        "bkn" if layout[1] == "N" else "bnk",
        "bmn",
        dtype,
        **{"b": batch, "m": m, "n": n, "k": k},
    )
    of = find_product(operator)
    if of is None:  # a single row or column may leave no product
        assert min(m, n, k) == 1
        return
    check_all(of, device)


@settings(max_examples=12, deadline=None)
@given(
    images=st.sampled_from([1, 2, 7, 128]),
    height=st.sampled_from([1, 2, 7, 14, 56]),
    width=st.sampled_from([1, 3, 13, 112]),
    channels=st.sampled_from([3, 8, 24, 64, 256]),
    filters=st.sampled_from([1, 20, 64, 1000]),
    kernel=st.sampled_from([1, 3, 7]),
    stride=st.sampled_from([1, 2, 16]),
)
def test_tiles_of_convolutions(
    images: int, height: int, width: int, channels: int, filters: int, kernel: int, stride: int
) -> None:
    size = (height, width)
    of = convolution(images, size, channels, filters, kernel=kernel, stride=stride)
    check_all(of, RTX4090)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("device", [A100, RTX3090, RTX4090], ids=lambda device: device.name)
def test_a_large_product_is_near_the_tensor_cores_rate(layout: str, device: Device) -> None:
    of = product(8192, 8192, 8192, layout=layout)
    best, *_ = construct_mma(of, device, 1)
    assert best.rows * best.columns >= 128 * 128
    assert 1 < best.seconds * dict(device.matrix_flops)["float16"] / of.flops < 2


def test_a_small_product_fills_the_device() -> None:
    best, *_ = construct_mma(product(512, 512, 512), A100, 1)
    assert best.grid >= A100.multi_processor_count // 2


def test_long_operands_take_the_memorys_time() -> None:
    of = product(64, 65536, 512)
    best, *_ = construct_mma(of, A100, 1)
    assert best.seconds < 2 * of.traffic / A100.read_bandwidth


def test_copies_by_element_cost_more() -> None:
    even, odd = (construct_mma(product(2048, 2048, k), A100, 1)[0] for k in (2048, 2047))
    assert odd.seconds > 1.2 * even.seconds


def test_rows_of_many_axes_are_walked_as_one() -> None:
    of = convolution(8, (7, 7), 64, 64, kernel=3, padding=1)
    assert tile_counts(of.left, 128) == [4]  # of 392
    assert tile_counts(product(100, 64, 32, layout="TN").left, 64) == [2]


def test_slabs_lie_as_their_operands_do() -> None:
    of = product(64, 100, 72, layout="TT")
    tile, *_ = construct_mma(of, A100, 1)
    left, right = tile.chunks(of)
    assert (left.is_turned, left.width, left.rows) == (True, 8, tile.rows)
    assert (right.is_turned, right.width, right.rows) == (False, 8, tile.columns)
    assert left.size + right.size == tile.stage_bytes


class TestRefusals:
    @pytest.mark.parametrize("name", ["nvidia/v100", "amd/mi300x", "emulated"])
    def test_devices_without_such_instructions(self, name: str) -> None:
        device = find_device(name)
        assert mma_dtypes(device) == frozenset()
        assert construct_mma(product(512, 512, 512), device, EVERY) == ()

    def test_dtypes(self) -> None:
        assert mma_dtypes(A100) == mma_dtypes(H200) == {"float16", "bfloat16"}
        for dtype in ("float32", "float8_e4m3fn"):
            assert construct_mma(product(64, 64, 64, dtype=dtype), A100, EVERY) == ()

    def test_what_addresses_do_not_reach(self) -> None:
        assert construct_mma(product(1 << 16, 64, (1 << 15) - 8), A100, 1)
        assert construct_mma(product(1 << 16, 64, 1 << 15), A100, 1) == ()

    def test_too_little_shared_memory(self) -> None:
        shared = A100.memory(MemoryLevel.SHARED)
        memories = tuple(replace(m, capacity=4 << 10) if m is shared else m for m in A100.memories)
        assert construct_mma(product(512, 512, 512), replace(A100, memories=memories), EVERY) == ()


def test_a_tile_describes_itself() -> None:
    tile = WarpTile(MmaUnit(), 64, 32, (2, 4), 32, 4)
    assert tile.describe() == "block 128 by 128, depth 32, 4 stages, 2 by 4 warps"
    assert (tile.rows, tile.columns, tile.block_size) == (128, 128, 256)


@given(st.integers(0, 200), st.integers(1, 80))
def test_units_that_a_warp_loads_at_once_lie_on_all_banks(first: int, apart: int) -> None:
    tile = ImageTile(MmaUnit(), 16, 16, (1, 1), 16, 1, apart=apart)
    found = [tile.swizzled(first + row * apart) for row in range(8)]
    assert len({unit % 8 for unit in found}) == 8
    whole = [tile.swizzled(unit) for unit in range(first // 8 * 8, first // 8 * 8 + 8)]
    assert sorted(whole) == list(range(first // 8 * 8, first // 8 * 8 + 8))


def test_images_lie_in_shared_memory_once_where_channels_are_few() -> None:
    thin = convolution(64, (56, 56), 16, 16, padding=1)
    tiles = construct_image(thin, H200, EVERY)
    assert tiles
    for tile in tiles:
        rows, columns = tile.box[-2:]
        assert tile.places == (1, rows + 2, columns + 2)
        assert tile.channels == 2
        assert tile.rows == math.prod(tile.box) == tile.warps[0] * tile.warp_rows
        assert tile.turns * tile.grid >= tile.tiles == 64 * -(-56 // rows) * -(-56 // columns)
        assert units_of_sum(tile, thin)[:8] == [
            *(0, 1, 2, 3, 4, 5),
            *((columns + 2) * 2, (columns + 2) * 2 + 1),
        ]
    assert not construct_image(convolution(64, (56, 56), 64, 64, padding=1), H200, EVERY)
    assert not construct_image(convolution(64, (56, 56), 12, 12, padding=1), H200, EVERY)
    assert not construct_image(product(128, 128, 128), H200, EVERY)
