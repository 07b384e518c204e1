"""Rows that threads hold: which can be held, and in what tiles."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operators import access, axes, index

from tvm_tile.device import Device, devices, find_device
from tvm_tile.graph.tile_graph import Access, AffineIndex, Operator
from tvm_tile.tile.rows.held_rows import HeldRows, construct_held, find_held_rows

H200 = find_device("nvidia/h200")
DEVICES = st.sampled_from(devices())
EXTENTS = st.sampled_from([2, 3, 7, 31, 32, 33, 64, 197, 768, 1000, 2053, 8192])
ROWS = frozenset("i")
ROW, J, K = index(i=1), index(j=1), index(k=1)


def total(rows: int, length: int, x: Access | None = None, dtype: str = "float32") -> Operator:
    """``s[i] += x[i, k]``."""
    read = x or access("x", (rows, length), ROW, K, dtype=dtype)
    return Operator("total", axes("k", i=rows, k=length), (read,), access("s", (rows,), ROW), 1)


def scaled(rows: int, length: int, *others: Access, dtype: str = "float32") -> Operator:
    """``y[i, j] = f(x[i, j], s[i], others)``."""
    x = access("x", (rows, length), ROW, J, dtype=dtype)
    y = access("y", (rows, length), ROW, J, dtype=dtype)
    reads = (x, access("s", (rows,), ROW), *others)
    return Operator("scaled", axes("", i=rows, j=length), reads, y, 2)


def held(rows: int, length: int, *others: Access, dtype: str = "float32") -> HeldRows | None:
    output = scaled(rows, length, *others, dtype=dtype)
    return find_held_rows(output, [total(rows, length, dtype=dtype)], ROWS)


def test_what_reductions_read_is_held_and_what_the_output_alone_reads_is_a_parameter() -> None:
    found = held(64, 96, access("weight", (96,), J), access("scale", (64,), ROW))
    assert found is not None
    assert (found.tensors, found.parameters) == (("x",), ("weight",))
    assert (found.rows, found.length, found.stages) == (64, 96, 1)
    assert found.bytes_held == 4


@pytest.mark.parametrize(
    ("length", "dtype", "vector"),
    [
        (96, "float32", 4),
        (96, "float16", 8),
        (96, "float64", 2),
        (98, "float16", 2),
        (97, "float16", 1),
        (64, "int8", 8),
    ],
)
def test_vectors_divide_rows(length: int, dtype: str, vector: int) -> None:
    found = held(64, length, dtype=dtype)
    assert found is not None
    assert found.vector == vector


def test_vectors_start_where_memory_is_aligned() -> None:
    cut = access("x", (64, 96), ROW, index(k=1, offset=2))
    part = replace(scaled(64, 64), reads=(access("x", (64, 96), ROW, index(j=1, offset=2)),))
    found = find_held_rows(part, [total(64, 64, cut)], ROWS)
    assert found is not None
    assert found.vector == 2
    odd = held(64, 64, access("mask", (65,), index(j=1, offset=1)))
    assert odd is not None
    assert odd.vector == 1


@pytest.mark.parametrize(
    "read",
    [
        access("x", (64, 96, 3), ROW, K, index(offset=1)),
        access("x", (64, 192), ROW, index(k=2)),
        access("x", (64, 96), ROW, AffineIndex((("k", 1),), is_exact=False)),
        replace(access("x", (64, 96), ROW, K), is_computed=True),
        access("x", (64, 96), ROW, K, dtype="bool"),
    ],
)
def test_only_rows_side_by_side_are_held(read: Access) -> None:
    assert find_held_rows(scaled(64, 96), [total(64, 96, read)], ROWS) is None


def test_a_window_over_the_row_is_not_held() -> None:
    moved = access("x", (64, 97), ROW, index(j=1, offset=1))
    output = replace(scaled(64, 96), reads=(access("x", (64, 97), ROW, J), moved))
    assert find_held_rows(output, [total(64, 96, access("x", (64, 97), ROW, K))], ROWS) is None
    shifted = replace(output, reads=(moved,))
    assert find_held_rows(shifted, [total(64, 96, access("x", (64, 97), ROW, K))], ROWS) is None


def test_stages_of_other_lengths_hold_nothing() -> None:
    assert find_held_rows(scaled(64, 96), [total(64, 48)], ROWS) is None


def test_what_stages_compute_once_is_held_instead() -> None:
    made = access("e", (64, 96), ROW, J)
    first = Operator(
        "exp", axes("", i=64, j=96), (access("x", (64, 96), ROW, J, dtype="float16"),), made, 9
    )
    second = total(64, 96, access("e", (64, 96), ROW, K))
    output = replace(scaled(64, 96, dtype="float16"), reads=(made, access("s", (64,), ROW)))
    found = find_held_rows(output, [first, second], ROWS)
    assert found is not None
    assert found.tensors == ("x",)
    assert found.bytes_held == 4


@given(rows=EXTENTS, length=EXTENTS, device=DEVICES, dtype=st.sampled_from(["float16", "float32"]))
def test_threads_hold_whole_rows(rows: int, length: int, device: Device, dtype: str) -> None:
    found = held(rows, length, dtype=dtype)
    assert found is not None
    tiles = construct_held(found, device)
    assert [tile.seconds for tile in tiles] == sorted(tile.seconds for tile in tiles)
    for tile in tiles:
        assert tile.grid * tile.rows_per_block >= rows > (tile.grid - 1) * tile.rows_per_block
        assert tile.block_size <= device.max_threads_per_block
        assert tile.block_size % device.warp_size == 0
        assert tile.registers * tile.block_size <= device.registers_per_multi_processor
        assert tile.elements % tile.vector == 0 == length % tile.vector
        lap = tile.threads_per_row * tile.vector
        assert math.ceil(length / lap) * tile.vector == tile.elements
        assert tile.seconds > device.launch_latency


def test_longer_rows_are_held_by_more_threads_until_none_can() -> None:
    best = [construct_held(held(4096, n, dtype="float16"), H200)[0] for n in (128, 1024, 8192)]
    threads = [tile.threads_per_row for tile in best]
    assert threads == sorted(threads)
    assert threads[0] < 32 < threads[-1]
    assert construct_held(held(8, 150_000), H200) == ()


@pytest.mark.parametrize(("length", "dtype"), [(40960, "float32"), (98304, "float16")])
def test_what_registers_do_not_hold_is_in_shared_memory(length: int, dtype: str) -> None:
    for tile in construct_held(held(512, length, dtype=dtype), H200):
        assert tile.is_shared
        assert tile.shared_bytes >= length * (4 if dtype == "float32" else 2)
        assert tile.rows_per_block == 1
        assert 1 <= tile.together <= tile.elements // tile.vector
    short = construct_held(held(512, 4096, dtype=dtype), H200)
    assert not short[0].is_shared


def test_one_row_is_held_by_many_threads() -> None:
    assert construct_held(held(1, 4096), H200)[0].threads_per_row >= 128


def test_rows_that_are_neighbours_go_to_neighbouring_threads() -> None:
    x, y = access("x", (96, 4096), J, ROW), access("y", (96, 4096), J, ROW)
    output = replace(scaled(4096, 96), reads=(x, access("g", (96,), J)), write=y)
    found = find_held_rows(output, [total(4096, 96, access("x", (96, 4096), K, ROW))], ROWS)
    assert found is not None
    assert found.are_neighbours
    assert (found.vector, found.tensors, found.parameters) == (1, ("x",), ())
    for tile in construct_held(found, H200):
        assert tile.are_neighbours
        assert tile.rows_per_block % H200.warp_size == 0
        assert tile.threads_per_row * tile.elements >= 96


def test_a_sum_of_the_sums_of_other_rows_is_not_held() -> None:
    first = total(64, 64)
    second = Operator(
        "mean", axes("k", u=1, k=64), (access("s", (64,), K),), access("t", (1,), index(u=1)), 1
    )
    output = scaled(64, 64, access("t", (1,), index()))
    assert find_held_rows(output, [first], ROWS) is not None
    assert find_held_rows(output, [first, second], ROWS) is None
