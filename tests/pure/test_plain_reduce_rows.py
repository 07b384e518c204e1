"""Launch shapes of memory-bound kernels: everything is covered, nothing exceeds the device."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operators import (
    access,
    axes,
    column_sum,
    depthwise,
    elementwise,
    index,
    row_sum,
)

from tvm_tile.device import Device, devices, find_device
from tvm_tile.graph.tile_graph import Access, AffineIndex, Axis, Operator, Tensor
from tvm_tile.tile.moves.plain import (
    PlainTile,
    construct_plain,
    flat_vector_elements,
    vector_elements,
)
from tvm_tile.tile.rows.reduce import by_columns, construct_reduction, construct_window
from tvm_tile.tile.rows.reduce_work import ReduceTile, adding_tile
from tvm_tile.tile.rows.rows import construct_rows

H200 = find_device("nvidia/h200")
DEVICES = st.sampled_from(devices())
EXTENTS = st.sampled_from([1, 2, 3, 7, 31, 32, 33, 64, 197, 768, 1000, 2053, 50_257])
WIDE = 10**6


def is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


@given(rows=EXTENTS, columns=EXTENTS, device=DEVICES)
def test_a_plain_tile_covers_every_output(rows: int, columns: int, device: Device) -> None:
    tile = construct_plain(elementwise(rows, columns), device)[0]
    assert tile.points == rows * columns
    assert tile.grid * tile.block_size * tile.vector >= tile.points
    assert (tile.grid - 1) * tile.block_size * tile.vector < tile.points
    assert tile.block_size <= device.max_threads_per_block
    assert tile.block_size % 32 == 0
    assert columns % tile.vector == 0
    assert tile.seconds > device.launch_latency


def test_large_outputs_fill_every_multiprocessor() -> None:
    tile = construct_plain(elementwise(4096, 4096), H200)[0]
    assert tile.grid >= H200.multi_processor_count
    assert tile.vector == 4
    assert construct_plain(elementwise(4096, 4096, "float16"), H200)[0].vector == 8


@pytest.mark.parametrize(
    ("width", "first", "extent", "vector"),
    [(16, 0, 8, 4), (16, 1, 8, 1), (16, 2, 8, 2), (16, 4, 8, 4), (18, 4, 8, 2), (17, 0, 8, 1)],
)
def test_a_vector_is_stored_at_multiples_of_its_length(
    width: int, first: int, extent: int, vector: int
) -> None:
    """Part of each row is written: ``out[i, j + first] = x[i, j]``."""
    read = access("x", (32, extent), index(i=1), index(j=1))
    write = access("out", (32, width), index(i=1), index(first, j=1))
    operator = Operator("part", axes("", i=32, j=extent), (read,), write, 1)
    assert vector_elements(operator) == flat_vector_elements(operator) == vector


def test_small_outputs_prefer_threads_to_vectors() -> None:
    tile = construct_plain(elementwise(8, 64), H200)[0]
    assert tile.vector == 1
    assert tile.grid > 1


def test_more_traffic_takes_longer() -> None:
    times = [construct_plain(elementwise(4096, n), H200)[0].seconds for n in (1, 1024, 2048, 4096)]
    assert times == sorted(times)


def test_a_plain_tile_describes_itself() -> None:
    assert PlainTile(1000, 64, 4).describe() == "block 256, thread 4"


def copy(read: AffineIndex, extent: int, dtype: str = "float32", **options: bool) -> Operator:
    source = replace(access("X", (8, WIDE), index(i=1), read, dtype=dtype), **options)
    write = access("Y", (8, extent), index(i=1), index(j=1), dtype=dtype)
    return Operator("copy", axes("", i=8, j=extent), (source,), write, 1)


@pytest.mark.parametrize(
    ("operator", "vector"),
    [
        (copy(index(j=1), 64), 4),
        (copy(index(j=1), 6), 2),
        (copy(index(j=1), 63), 1),
        (copy(index(j=1), 64, "int8"), 16),
        (copy(index(j=1), 64, "float64"), 2),
        (copy(index(j=1), 64, "bool"), 1),
        (copy(index(j=2), 64), 1),  # every second element
        (copy(index(j=1), 64, is_computed=True), 1),  # behind a condition
        (copy(AffineIndex((("j", 1),), is_exact=False), 64), 1),  # a gather
        (copy(index(), 64), 4),  # one element for all: a broadcast
        (copy(index(j=1), 1), 1),
    ],
)
def test_vectors_need_neighbours(operator: Operator, vector: int) -> None:
    assert vector_elements(operator) == vector


def test_flat_vectors_run_across_rows_that_every_access_has_whole() -> None:
    planes = (Axis("c", 8), Axis("y", 33), Axis("x", 35))
    whole = (index(c=1), index(y=1), index(x=1))

    def flat(*reads: Access) -> int:
        out = Access(Tensor("out", (8, 33, 35), "float32"), whole)
        return flat_vector_elements(Operator("f", planes, reads, out, 1))

    same = Access(Tensor("a", (8, 33, 35), "float32"), whole)
    per_plane = Access(Tensor("b", (8,), "float32"), (index(c=1),))
    per_row = Access(Tensor("r", (33, 1), "float32"), (index(y=1), index()))
    cropped = Access(Tensor("a", (8, 33, 36), "float32"), whole)
    turned = Access(Tensor("a", (8, 35, 33), "float32"), (index(c=1), index(x=1), index(y=1)))
    assert flat(same) == 4
    assert flat(same, same) == 4
    assert flat(same, per_plane) == 1  # planes of 1155 elements, one value of b each
    assert flat(same, per_row) == 1
    assert flat(cropped) == 1
    assert flat(turned) == 1


def test_what_tells_the_row_may_be_anything_where_a_row_has_its_own_loop() -> None:
    rows = (Axis("i", 40), Axis("j", 64))
    out = Access(Tensor("out", (40, 64), "float32"), (index(i=1), index(j=1)))
    table = Tensor("table", (100, 64), "float32")
    found = AffineIndex((("i", 1),), is_exact=False)
    numbers = Access(Tensor("numbers", (40,), "int64"), (index(i=1),))

    def vectors(*reads: Access) -> int:
        operator = Operator("f", rows, reads, out, 1)
        assert vector_elements(operator) == 1
        return flat_vector_elements(operator)

    gathered = Access(table, (found, index(j=1)))
    assert vectors(gathered, numbers) == 4
    assert vectors(replace(gathered, is_computed=True, guards=frozenset("i"))) == 4
    assert vectors(replace(gathered, is_computed=True, guards=frozenset("j"))) == 1
    assert vectors(replace(gathered, is_computed=True)) == 1
    assert vectors(Access(table, (found, AffineIndex((("j", 1),), is_exact=False)))) == 1


def check_reduction(tile: ReduceTile, operator: Operator, device: Device) -> None:
    outputs = math.prod(axis.extent for axis in operator.spatial_axes)
    assert tile.outputs == outputs
    sums = outputs * tile.parts
    assert tile.grid * tile.outputs_per_block >= sums
    assert (tile.grid - 1) * tile.outputs_per_block < sums
    assert math.prod(axis.extent for axis in operator.reduce_axes) % tile.parts == 0
    assert tile.outputs_per_block % tile.outputs_per_thread == 0
    assert 1 <= tile.block_size <= device.max_threads_per_block
    assert is_power_of_two(tile.threads_per_output)
    assert tile.seconds > device.launch_latency


@given(rows=EXTENTS, length=EXTENTS, device=DEVICES)
def test_a_sum_over_rows(rows: int, length: int, device: Device) -> None:
    operator = row_sum(rows, length)
    tile = construct_reduction(operator, device)[0]
    check_reduction(tile, operator, device)
    assert tile.form == "row" or length == 1  # then neighbours are outputs
    assert tile.block_size % 32 == 0


@given(length=EXTENTS, columns=EXTENTS, device=DEVICES)
def test_a_sum_over_columns(length: int, columns: int, device: Device) -> None:
    operator = column_sum(length, columns)
    tile = construct_reduction(operator, device)[0]
    check_reduction(tile, operator, device)
    assert tile.form == ("column" if columns >= device.warp_size else "row")


def test_few_sums_are_split_over_blocks_and_many_are_not() -> None:
    assert construct_reduction(column_sum(65536, 64), H200)[0].parts >= 64
    assert construct_reduction(row_sum(2, 1 << 22), H200)[0].parts >= 64
    assert construct_reduction(row_sum(1 << 16, 4096), H200)[0].parts == 1
    assert construct_reduction(column_sum(1024, 1 << 18), H200)[0].parts == 1
    assert construct_reduction(column_sum(65537, 64), H200)[0].parts == 1  # a prime


def test_long_rows_are_loaded_in_vectors_that_divide_them() -> None:
    assert construct_reduction(row_sum(512, 1 << 16), H200)[0].vector == 4
    assert construct_reduction(row_sum(512, 65535), H200)[0].vector == 1


def test_few_long_rows_share_many_threads() -> None:
    assert construct_reduction(row_sum(4, 1 << 20), H200)[0].threads_per_output >= 256
    assert construct_reduction(row_sum(1 << 20, 64), H200)[0].threads_per_output in (4, 8, 16)


def group_sum(places: int, groups: int, each: int) -> Operator:
    """``sum[g] += X[p, g * each + c]`` over ``p, c``."""
    read = access("x", (places, groups * each), index(p=1), index(g=each, c=1), dtype="float16")
    summed = [Axis("c", each, is_reduce=True), Axis("p", places, is_reduce=True)]
    write = access("sums", (groups,), index(g=1))
    return Operator("sums", (Axis("g", groups), *summed), (read,), write, 1)


def test_neighbours_that_are_summed_are_columns_where_others_follow() -> None:
    columns = by_columns(group_sum(4096, 32, 10))
    assert columns is not None
    assert (columns.outputs, columns.depth) == (320, 4096)
    assert columns.write.tensor.shape == (32, 10)
    assert by_columns(group_sum(4096, 1, 320)) is None  # no other sum
    assert by_columns(group_sum(1, 32, 10)) is None  # nothing else to add
    assert by_columns(row_sum(32, 40960)) is None
    assert by_columns(column_sum(320, 4096)) is None


def test_few_long_sums_of_groups_are_read_as_they_lie() -> None:
    best = construct_reduction(group_sum(128 * 128, 32, 10), H200)[0]
    assert (best.form, best.neighbours, best.outputs) == ("column", 10, 320)
    assert best.parts > 1
    assert best.shares == 10 * best.parts


@given(outputs=EXTENTS, shares=st.integers(2, 20_000), device=DEVICES)
def test_what_adds_shares_covers_all_sums(outputs: int, shares: int, device: Device) -> None:
    tile = adding_tile(outputs, shares, device)
    assert tile.grid * tile.outputs_per_block >= outputs
    assert tile.block_size <= device.max_threads_per_block
    assert is_power_of_two(tile.threads_per_output)
    assert shares <= 16 or shares // tile.threads_per_output <= max(8, shares // 16)


@pytest.mark.parametrize("device", devices(), ids=lambda device: device.name)
def test_no_block_is_larger_than_the_device_allows(device: Device) -> None:
    stages = softmax_stages(1, 50_257)
    blocks = [
        construct_reduction(row_sum(1, 1 << 20), device)[0].block_size,
        construct_reduction(column_sum(1 << 20, 64), device)[0].block_size,
        construct_rows(*stages, frozenset("i"), device)[0].block_size,
        construct_window(depthwise(8, 14, 3), device)[0].block_size,
        construct_plain(elementwise(4096, 4096), device)[0].block_size,
    ]
    assert max(blocks) <= device.max_threads_per_block


@given(
    channels=st.sampled_from([1, 3, 8, 197, 960]),
    size=st.sampled_from([1, 7, 13, 14, 56, 112]),
    kernel=st.sampled_from([1, 3, 5, 7]),
    device=DEVICES,
)
def test_a_window_belongs_to_one_thread(
    channels: int, size: int, kernel: int, device: Device
) -> None:
    operator = depthwise(channels, size, kernel)
    tile = construct_window(operator, device)[0]
    check_reduction(tile, operator, device)
    assert (tile.form, tile.threads_per_output) == ("window", 1)
    last = next((a.extent for a in reversed(operator.spatial_axes) if a.extent > 1), 1)
    assert last % tile.outputs_per_thread == 0


def softmax_stages(rows: int, length: int) -> tuple[Operator, list[Operator]]:
    return elementwise(rows, length), [row_sum(rows, length), row_sum(rows, length)]


@given(rows=EXTENTS, length=EXTENTS, device=DEVICES)
def test_rows_are_covered(rows: int, length: int, device: Device) -> None:
    output, reductions = softmax_stages(rows, length)
    tiles = construct_rows(output, reductions, frozenset("i"), device)
    assert tiles
    for tile in tiles:
        assert tile.rows == rows
        assert tile.grid * tile.rows_per_block >= rows
        assert (tile.grid - 1) * tile.rows_per_block < rows
        assert tile.block_size <= device.max_threads_per_block
        assert tile.block_size % 32 == 0
        assert is_power_of_two(tile.threads_per_row)
        assert tile.seconds > device.launch_latency


def test_sums_of_one_element_are_not_shared() -> None:
    for rows in (7, 50, 5000):
        output, _ = softmax_stages(rows, 1024)
        for tile in construct_rows(output, [row_sum(rows, 1)], frozenset("i"), H200):
            assert tile.threads_per_row == 1


def test_long_rows_get_more_threads() -> None:
    def threads(rows: int, length: int) -> int:
        return construct_rows(*softmax_stages(rows, length), frozenset("i"), H200)[
            0
        ].threads_per_row

    assert threads(1, 50_257) == 1024
    assert threads(197, 197) < threads(197, 4096)
    assert threads(1 << 20, 4096) <= threads(1 << 10, 4096)
