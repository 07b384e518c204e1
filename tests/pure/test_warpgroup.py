"""Tiles for warpgroup instructions: what the copies, the instructions and the memories ask for."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from operators import conv_nhwc, einsum

from tvm_tile.device import Device, MemoryLevel, find_device, with_tf32
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.tile.products.warpgroup import construct_warpgroup, warpgroup_dtypes
from tvm_tile.tile.products.warpgroup_tile import LINE, PARTIAL_PADDING, WARPGROUP, WarpgroupTile
from tvm_tile.tile.units.product import Operand, Product, find_product
from tvm_tile.tile.units.sum_layout import CORNER_PITCH, CORNER_ROWS

H200 = find_device("nvidia/h200")
H100 = find_device("nvidia/h100")
EVERY = 10**6
LARGEST_BOX = 256
LAYOUTS = ("NN", "NT", "TN", "TT")
# Whole lines, whole instructions, neither; strides of 16 bytes need eight elements.
FREE = st.one_of(st.integers(1, 40), st.sampled_from([64, 65, 127, 1000, 4096, 50_257]))
EIGHTS = st.one_of(st.integers(1, 40), st.sampled_from([125, 512, 6283])).map(lambda n: 8 * n)


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


def check(tile: WarpgroupTile, of: Product, device: Device = H200) -> None:
    """What every tile must keep to."""
    shared = device.memory(MemoryLevel.SHARED).capacity
    stage = (tile.block_rows + tile.width) * LINE
    stored = 4 * tile.consumers * CORNER_ROWS * CORNER_PITCH * 4
    if tile.splits > 1:
        stored = tile.block_rows * (tile.width + PARTIAL_PADDING) * 4
        assert tile.grid == tile.tiles * tile.splits  # no cluster waits for another to end
    barriers = 2 * 8 * tile.stages
    # The ring starts at a multiple of 1024 bytes.
    assert tile.stages * stage + stored + barriers + 1024 <= tile.shared_bytes <= shared
    assert tile.stages >= 2
    assert stage % 1024 == 0
    sums = tile.instructions * tile.width // 2
    assert sums <= 128  # half of what a thread can name
    assert tile.registers > sums
    check_sharing(tile, device)
    assert tile.block_size == WARPGROUP * (tile.consumers + 1)
    assert tile.depth * of.left.tensor.element_size == LINE
    assert tile.width % 8 == 0
    assert tile.width <= 256
    units = device.multi_processor_count
    assert 1 <= tile.grid == min(tile.tiles * tile.splits, tile.blocks * units)
    assert tile.raster >= 1
    assert math.prod(tile.rows) <= tile.block_rows
    assert math.prod(tile.columns) <= tile.width
    assert device.launch_latency < tile.seconds < math.inf
    rows, columns = (
        tiles_along(operand, box)
        for operand, box in ((of.left, tile.rows), (of.right, tile.columns))
    )
    assert tile.tiles == of.batches * rows * columns
    check_copies(of.left, tile.rows)
    check_copies(of.right, tile.columns)


def check_sharing(tile: WarpgroupTile, device: Device) -> None:
    """As many blocks as the tile says run on a multiprocessor at once."""
    assert tile.blocks == 1 or tile.splits == 1
    kept = device.shared_memory_per_multi_processor - device.memory(MemoryLevel.SHARED).capacity
    used = tile.blocks * (tile.shared_bytes + kept)
    assert used <= device.shared_memory_per_multi_processor
    assert tile.grid > (tile.blocks - 1) * device.multi_processor_count  # all of them have work
    threads = tile.blocks * tile.block_size
    assert threads <= device.max_threads_per_multi_processor
    launched = min(255, device.registers_per_multi_processor // threads // 8 * 8)
    assert launched >= tile.width // 2 + 26  # or ptxas refuses the instruction
    producer, consumer = tile.division or (launched, launched)
    assert producer % 8 == consumer % 8 == 0 or tile.division is None
    assert 24 <= producer <= launched <= consumer <= 255
    assert consumer >= tile.registers
    # Consumers wait until the producer has given away enough: more than that would never come.
    assert producer + tile.consumers * consumer <= launched * (tile.consumers + 1)


def tiles_along(operand: Operand, box: tuple[int, ...]) -> int:
    return math.prod(-(-axis.extent // size) for axis, size in zip(operand.free, box, strict=True))


def check_copies(operand: Operand, box: tuple[int, ...]) -> None:
    """What the copy engine asks of an operand and its boxes."""
    line = LINE // operand.tensor.element_size
    assert len(operand.indices) <= 5
    assert all(stride % 16 == 0 for stride in operand.strides[:-1])
    copied = list(box)
    if not operand.is_depth_major:
        assert box[-1] % line == 0
        assert math.prod(box) == box[-1]
        copied[-1] = line
    for axis, size in zip(operand.free, copied, strict=True):
        step = max(i.coefficient(axis.name) for i in operand.indices)
        assert 1 <= step <= 8
        assert (size - 1) * step + 1 <= LARGEST_BOX


def check_all(of: Product, device: Device = H200) -> None:
    tiles = construct_warpgroup(of, device, EVERY)
    assert tiles
    assert len(set(tiles)) == len(tiles)
    for tile in tiles:
        check(tile, of, device)
    # Best first; what is within a percent of the best goes by its traffic.
    best = min(tile.seconds for tile in tiles)
    close = [tile for tile in tiles if tile.seconds <= best * 1.01]
    assert set(tiles[: len(close)]) == set(close)
    assert all(a.seconds <= b.seconds for a, b in itertools.pairwise(tiles[len(close) :]))
    assert construct_warpgroup(of, device, 3) == tiles[:3]


@settings(max_examples=60)
@given(
    m=FREE,
    n=FREE,
    k=EIGHTS,
    layout=st.sampled_from(LAYOUTS),
    batch=st.sampled_from([1, 3, 96]),
    dtype=st.sampled_from(["float16", "bfloat16"]),
    device=st.sampled_from([H100, H200]),
)
def test_tiles_of_matrix_products(
    m: int, n: int, k: int, layout: str, batch: int, dtype: str, device: Device
) -> None:
    # Rows or columns that are contiguous make strides; one alone has no other dimension.
    m = -(-m // 8) * 8 if layout[0] == "T" else m
    n = -(-n // 8) * 8 if layout[1] == "N" else n
    check_all(product(m, n, k, layout=layout, batch=batch, dtype=dtype), device)


@settings(max_examples=60)
@example(1, 1, 2048, 64, 64, 1, 8)  # a single axis of rows, stepped over
@example(128, 224, 13, 8, 1, 1, 1)  # fewer tiles where none has neighbouring columns
@example(1, 2, 112, 8, 1, 1, 8)  # boxes that step over columns have few
@given(
    images=st.sampled_from([1, 2, 7, 128]),
    height=st.sampled_from([1, 2, 7, 14, 17, 56, 224]),
    width=st.sampled_from([1, 3, 8, 13, 112, 300, 2048]),
    channels=st.sampled_from([8, 24, 64, 256]),
    filters=st.sampled_from([1, 20, 64, 100, 1000]),
    kernel=st.sampled_from([1, 3, 7]),
    stride=st.sampled_from([1, 2, 3, 8]),
)
def test_tiles_of_convolutions(
    images: int, height: int, width: int, channels: int, filters: int, kernel: int, stride: int
) -> None:
    size = (height, width)
    check_all(convolution(images, size, channels, filters, kernel=kernel, stride=stride))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_large_product_is_near_the_tensor_cores_rate(layout: str) -> None:
    of = product(8192, 8192, 8192, layout=layout)
    best, *_ = construct_warpgroup(of, H200, 1)
    assert best.block_rows * best.width >= 128 * 256
    assert 1 < best.seconds * dict(H200.matrix_flops)["float16"] / of.flops < 2


@pytest.mark.parametrize(
    ("dtype", "rate", "sums"),
    [
        ("float8_e5m2", "float8_e4m3", "float32"),
        ("int8", "int8", "int32"),
        ("float32", "tf32", "float32"),
    ],
)
def test_other_dtypes_at_their_rate(dtype: str, rate: str, sums: str) -> None:
    of = product(8192, 8192, 8192, dtype=dtype)
    best, *others = construct_warpgroup(of, with_tf32(H200), EVERY)
    assert {tile.sum_dtype for tile in (best, *others)} == {sums}
    check(best, of)
    assert 1 < best.seconds * dict(H200.matrix_flops)[rate] / of.flops < 2


def mixed(left: str, right: str) -> Product:
    """A product of two dtypes of one size."""
    of = product(256, 256, 256, dtype=left)
    tensor = replace(of.right.tensor, dtype=right)
    return replace(of, right=replace(of.right, tensor=tensor))


@pytest.mark.parametrize("dtypes", [("float8_e4m3fn", "float8_e5m2"), ("uint8", "int8")])
def test_two_dtypes_of_one_instruction(dtypes: tuple[str, str]) -> None:
    assert construct_warpgroup(mixed(*dtypes), H200, 1)


def test_long_operands_take_the_memorys_time() -> None:
    of = product(64, 65536, 512)
    best, *_ = construct_warpgroup(of, H200, 1)
    assert best.seconds < 2 * of.traffic / H200.read_bandwidth


def test_images_are_cut_where_fewest_tiles_result() -> None:
    best, *_ = construct_warpgroup(convolution(128, (14, 14), 256, 256, kernel=3), H200, 1)
    # Rows of 14 x 14 places: their factors, or whole images, waste little of 128 or 256.
    images, height, width = best.rows
    assert tiles_along(found_left(128, 14), best.rows) * best.block_rows <= 1.35 * 128 * 14 * 14
    assert (images, height, width) >= (1, 1, 7)


def found_left(images: int, size: int) -> Operand:
    return convolution(images, (size, size), 256, 256, kernel=3).left


class TestRefusals:
    @pytest.mark.parametrize("name", ["nvidia/a100", "nvidia/v100", "amd/mi300x", "emulated"])
    def test_devices_without_such_instructions(self, name: str) -> None:
        device = find_device(name)
        assert warpgroup_dtypes(device) == frozenset()
        assert construct_warpgroup(product(512, 512, 512), device, EVERY) == ()

    @pytest.mark.parametrize("device", [H100, H200], ids=lambda device: device.name)
    def test_dtypes(self, device: Device) -> None:
        known = {"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8"}
        assert warpgroup_dtypes(device) == known
        assert warpgroup_dtypes(with_tf32(device)) == known | {"float32"}
        assert construct_warpgroup(product(512, 512, 512, dtype="float32"), device, EVERY) == ()

    @pytest.mark.parametrize("dtypes", [("float16", "bfloat16"), ("int8", "float8_e5m2")])
    def test_two_dtypes_that_no_instruction_takes(self, dtypes: tuple[str, str]) -> None:
        assert construct_warpgroup(mixed(*dtypes), H200, EVERY) == ()

    @pytest.mark.parametrize(
        ("layout", "m", "n", "k"),
        [("NT", 64, 64, 100), ("NN", 64, 100, 64), ("TN", 100, 64, 64), ("TT", 64, 64, 100)],
    )
    def test_strides_that_copies_cannot_take(self, layout: str, m: int, n: int, k: int) -> None:
        assert construct_warpgroup(product(m, n, k, layout=layout), H200, EVERY) == ()
        eights = (-(-extent // 8) * 8 for extent in (m, n, k))
        assert construct_warpgroup(product(*eights, layout=layout), H200, EVERY)

    @pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8", "float32"])
    def test_another_axis_contiguous(self, dtype: str) -> None:
        """Only 16-bit operands can be transposed."""
        rows = product(256, 256, 256, layout="NN", dtype=dtype)
        assert construct_warpgroup(rows, with_tf32(H200), EVERY) == ()

    def test_few_channels(self) -> None:
        assert construct_warpgroup(convolution(8, (14, 14), 3, 64), H200, EVERY) == ()

    def test_long_steps(self) -> None:
        assert construct_warpgroup(convolution(8, (14, 14), 64, 64, stride=9), H200, EVERY) == ()

    def test_more_dimensions_than_a_copy_has(self) -> None:
        of = found(einsum("abcdmk", "nk", "abcdmn", **dict.fromkeys("abcdmnk", 8)))
        assert construct_warpgroup(of, H200, EVERY) == ()

    def test_what_lies_behind_a_part_of_a_sum_is_not_zero(self) -> None:
        """The last chunk is longer than what is left of the depth: it must leave the tensors."""
        of = product(64, 64, 104)
        assert construct_warpgroup(part_of(of, 104, 104), H200, 1)
        assert construct_warpgroup(part_of(of, 208, 104), H200, 1) == ()
        # Whole chunks read no more than they should.
        assert construct_warpgroup(part_of(product(64, 64, 128), 208, 128), H200, 1)

    @pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
    def test_boxes_that_begin_between_sixteen_bytes(self, layout: str) -> None:
        """A slice's start or padding along the contiguous dimension: an illegal instruction."""
        of = product(64, 64, 64, layout=layout)
        *others, last = of.left.indices
        for offset, fits in ((8, True), (16, True), (-8, True), (1, False), (-2, False)):
            indices = (*others, replace(last, offset=offset))
            moved = replace(of, left=replace(of.left, indices=indices))
            assert bool(construct_warpgroup(moved, H200, 1)) == fits

    def test_too_little_shared_memory(self) -> None:
        shared = H200.memory(MemoryLevel.SHARED)
        memories = tuple(replace(m, capacity=16 << 10) if m is shared else m for m in H200.memories)
        small = replace(H200, memories=memories)
        assert construct_warpgroup(product(512, 512, 512), small, EVERY) == ()


def part_of(of: Product, columns: int, depth: int) -> Product:
    """``of`` with a left operand that has more columns than are summed."""
    assert of.depth.extent == depth
    tensor = replace(of.left.tensor, shape=(of.left.tensor.shape[0], columns))
    return replace(of, left=replace(of.left, tensor=tensor))


def test_a_tile_describes_itself() -> None:
    tile = WarpgroupTile(
        rows=(2, 7, 9),
        columns=(256,),
        depth=64,
        stages=4,
        consumers=2,
        width=256,
        splits=1,
        blocks=1,
        tiles=500,
        chunks=16,
        raster=16,
        sum_dtype="float32",
        grid=132,
        seconds=1e-6,
    )
    text = "block 2x7x9 by 256, depth 64, 4 stages, 2 warpgroups"
    assert tile.describe() == text
    assert (tile.block_rows, tile.block_size) == (128, 384)
    assert replace(tile, blocks=2).describe() == f"{text}, 2 blocks a multiprocessor"
    assert replace(tile, alternates=True).describe() == f"{text} in turns"
    assert replace(tile, alternates=True).block_rows == 64


def test_shallow_products_may_share_a_multiprocessor() -> None:
    tiles = construct_warpgroup(product(1_000_000, 128, 32), H200, EVERY)
    assert {tile.blocks for tile in tiles} == {1, 2, 3, 4, 5, 6}
    # Two consumers of 256 by 64 take turns with two more: 64 sums and 40 registers besides.
    assert any(t.blocks == 2 and t.block_rows == 256 and t.width == 64 for t in tiles)


def test_blocks_without_work_are_not_asked_for() -> None:
    tiles = construct_warpgroup(product(64 * 132, 64, 32), H200, EVERY)
    assert {tile.blocks for tile in tiles if tile.width >= 64} == {1}
