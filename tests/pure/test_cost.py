"""Facts that any cost model of a GPU must keep, whatever its constants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from operators import access, conv2d, depthwise, index, matmul, row_sum

from tvm_tile.device import Device, MemoryLevel, devices, find_device
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.tile.classify import is_contraction, is_window
from tvm_tile.tile.cost import (
    BlockResources,
    Candidates,
    SharedReads,
    coalescing,
    compiled_registers,
    contraction_resources,
    elements,
    reads_without_conflicts,
    store_sectors,
    vector_elements,
    written_sectors,
)
from tvm_tile.tile.residency import given_registers
from tvm_tile.tile.staged_work import contraction_work, staged_seconds
from tvm_tile.tile.time import ALONE, AMID, Scene, least_seconds

H200 = find_device("nvidia/h200")
SHARED = H200.memory(MemoryLevel.SHARED).capacity
BLOCK = (64, 64, 8)
THREAD = (4, 4, 1)


def candidate(op: Operator, *, block: tuple[int, ...] = BLOCK, thread: tuple[int, ...] = THREAD,
              groups: int = 1, parts: int = 1) -> Candidates:  # fmt: skip
    columns = (np.array([value]) for value in (thread, block, groups, 0, parts))
    return Candidates(op, *columns)


def resources(op: Operator, **tile: Any) -> BlockResources:
    return contraction_resources(H200, candidate(op, **tile))


def predicted(
    tiles: Candidates, reads: SharedReads, device: Device = H200, scene: Scene = AMID
) -> float:
    work = contraction_work(device, tiles, reads, contraction_resources(device, tiles))
    return float(staged_seconds(work, tiles, device, scene)[0])


def seconds(op: Operator, device: Device = H200, scene: Scene = AMID, **tile: Any) -> float:
    tiles = candidate(op, **tile)
    return predicted(tiles, reads_without_conflicts(device, tiles), device, scene)


def test_a_tile_that_does_not_fit_takes_forever() -> None:
    op = matmul(1024, 1024, 1024)
    large: dict[str, Any] = {"block": (512, 512, 64), "thread": (16, 32, 1)}
    assert resources(op, **large).footprint[0] > SHARED
    assert seconds(op, **large) == np.inf
    assert np.isfinite(seconds(op))


@given(
    m=st.integers(1, 5),
    n=st.integers(1, 5),
    short=st.integers(1, 63),
    device=st.sampled_from(devices()),
)
def test_padding_is_never_cheaper(m: int, n: int, short: int, device: Device) -> None:
    """The same blocks do the same steps whether or not their last one is full."""
    full, padded = matmul(64 * m, 64 * n, 512), matmul(64 * m - short, 64 * n, 512)
    assert seconds(padded, device) / padded.points >= seconds(full, device) / full.points * 0.999


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_more_work_takes_longer(axis: int) -> None:
    times = []
    for factor in (1, 2, 4, 8, 16, 32):
        shape = [512, 512, 512]
        shape[axis] *= factor
        times.append(seconds(matmul(*shape)))
    assert times == sorted(times)
    assert times[-1] > 3 * times[0]


@pytest.mark.parametrize("device", devices(), ids=lambda device: device.name)
def test_no_tile_beats_the_device(device: Device) -> None:
    op = matmul(4096, 4096, 4096)
    found = seconds(op, device, ALONE)
    assert found >= op.total_flops / device.flops("float32")
    assert found >= op.traffic / device.memory(MemoryLevel.GLOBAL).bandwidth
    assert found < 1.0


def test_a_slower_device_is_slower() -> None:
    op = matmul(4096, 4096, 1024)
    half = replace(H200, multi_processor_count=H200.multi_processor_count // 2,
                   peak_flops=tuple((d, f / 2) for d, f in H200.peak_flops))  # fmt: skip
    assert seconds(op, half) > seconds(op)


def test_every_kernel_pays_its_launch() -> None:
    assert seconds(matmul(64, 64, 8)) > least_seconds(H200) > H200.launch_latency
    late = replace(H200, launch_latency=H200.launch_latency + 1.0)
    assert seconds(matmul(64, 64, 8), late) == pytest.approx(1.0 + seconds(matmul(64, 64, 8)))


def test_the_footprint_counts_both_operands_and_the_partial_sums() -> None:
    op = matmul(1024, 1024, 1024)
    assert resources(op).footprint[0] == 4 * 8 * (64 + 64)
    split = resources(op, groups=2).footprint[0]
    assert split == 4 * 2 * 8 * (64 + 64) + 4 * 64 * 64 * 3


def test_parts_of_a_sum_fill_the_device() -> None:
    op = matmul(64, 64, 8192)
    assert seconds(op, parts=16) < seconds(op) / 4
    assert resources(op, parts=16).footprint[0] == resources(op).footprint[0]


def test_parts_pay_a_second_launch() -> None:
    op = matmul(64, 64, 8192)
    late = replace(H200, launch_latency=H200.launch_latency + 1.0)
    assert seconds(op, late, parts=4) == pytest.approx(2.0 + seconds(op, parts=4))


@given(c=st.integers(1, 64), f=st.integers(1, 64), y=st.integers(1, 14), p=st.integers(1, 3))
def test_array_footprints_are_those_of_the_graph(c: int, f: int, y: int, p: int) -> None:
    op = conv2d(64, 64, 14, 3, stride=2)
    tile = (1, f, y, y, c, p, p)
    by_name = dict(zip((axis.name for axis in op.axes), tile, strict=True))
    for read in (*op.reads, op.write):
        assert elements(read, op, np.array([tile]))[0] == read.elements(by_name)


def test_narrow_rows_waste_bandwidth() -> None:
    op = matmul(1024, 1024, 1024)
    tiles = np.array([(1, 1, 1), (1, 8, 1), (1, 12, 1), (1, 64, 1)])
    assert coalescing(op.write, op, tiles).tolist() == [8.0, 1.0, 4 / 3, 1.0]


def test_whole_rows_are_one_run() -> None:
    op = matmul(1024, 12, 64)
    assert coalescing(op.write, op, np.array([(2, 12, 1)])).tolist() == [1.0]


def test_vectors_divide_runs_and_rows() -> None:
    op = matmul(64, 64, 30)
    left, right = op.reads
    tiles = np.array([(8, 8, 8), (8, 6, 2), (8, 7, 1)])
    assert vector_elements(right, op, tiles).tolist() == [4, 2, 1]
    assert vector_elements(left, op, tiles).tolist() == [2, 2, 1]  # rows of 30
    assert vector_elements(replace(right, is_computed=True), op, tiles).tolist() == [1, 1, 1]


def test_families() -> None:
    contractions = [matmul(64, 64, 64), conv2d(8, 16, 14, 3), matmul(1, 1000, 2048)]
    others = [depthwise(8, 14, 3), row_sum(8, 64), matmul(1, 1, 1), matmul(64, 64, 1)]
    assert all(is_contraction(op) for op in contractions)
    assert not any(is_contraction(op) for op in others)
    assert is_window(depthwise(8, 14, 3))
    assert not is_window(depthwise(8, 14, 9))
    assert is_window(row_sum(8, 16))
    assert not is_window(row_sum(8, 17))


def test_a_gather_is_no_smaller_than_its_tile() -> None:
    read = access("X", (100, 8), index(a=1), index(b=1))
    assert read.elements({"a": 7, "b": 8}) == 56


def sectors(
    op: Operator, block: tuple[int, ...], thread: tuple[int, ...], groups: int = 1
) -> float:
    tiles = candidate(op, block=block, thread=thread, groups=groups)
    return float(store_sectors(H200, tiles)[0])


def test_stores_of_neighbouring_threads_share_sectors() -> None:
    op = conv2d(64, 64, 64, 1)
    least = op.write.tensor.size / 32
    block = (1, 16, 1, 64, 8, 1, 1)
    rows = [(1, 1, 1, width, 1, 1, 1) for width in (1, 2, 4, 8)]
    found = [sectors(op, block, thread) / least for thread in rows]
    # Whole rows, though a row may begin within a sector, and both its ends are read first then.
    # Eight are two runs of four.
    assert max(found) < 1.7
    # A window that slides is no runs: seven elements a thread, each store with its own sector,
    # which is read first.
    narrow = conv2d(64, 64, 14, 3)
    odd = sectors(narrow, (1, 64, 2, 7, 8, 1, 1), (1, 1, 1, 7, 1, 1, 1))
    assert odd == pytest.approx(2 * 8 * narrow.write.tensor.size / 32, rel=0.2)
    # Groups gather their sums before they store: neighbours then.
    assert sectors(op, block, rows[3], 4) == least


def test_uncoalesced_stores_take_longer() -> None:
    op = conv2d(16, 96, 160, 3, batch=32)
    block = (1, 96, 16, 16, 1, 3, 3)
    along, across = (1, 8, 8, 1, 1, 1, 1), (1, 8, 1, 8, 1, 1, 1)
    assert seconds(op, block=block, thread=along) < seconds(op, block=block, thread=across)


@given(threads=st.integers(1, 1024), sums=st.integers(1, 64), ahead=st.integers(0, 64))
def test_registers_of_a_block_fit(threads: int, sums: int, ahead: int) -> None:
    found = int(compiled_registers(H200, *map(np.atleast_1d, (threads, sums, ahead)))[0])
    assert 32 <= found <= 255
    assert min(given_registers(H200, found), 255) * threads <= H200.registers_per_multi_processor


def test_conflicts_loads_and_padding_cost_time() -> None:
    tiles = candidate(matmul(1024, 1024, 1024))
    base = np.array([(16, 200, 0, 30)]).T
    worse = [
        base + np.array([more]).T for more in ((64, 0, 0, 0), (0, 4000, 0, 0), (0, 0, 150_000, 0))
    ]
    first = predicted(tiles, SharedReads(*base))
    for reads in worse:
        assert predicted(tiles, SharedReads(*reads)) > first


def test_narrow_elements_are_widened() -> None:
    reads = SharedReads(*np.array([(16, 200, 0, 30)]).T)
    operators = [matmul(1024, 1024, 1024, dtype) for dtype in ("float16", "float32")]
    done = []
    for op in operators:
        tiles = candidate(op)
        work = contraction_work(H200, tiles, reads, contraction_resources(H200, tiles))
        done.append(work.parts[1].operations)
    assert done[0] > done[1]


def test_sectors_that_are_written_in_part_are_read_first() -> None:
    whole, shifted, every_other, single = 4, 5, 8, 32  # sectors of a warp's 32 words
    found = [float(written_sectors(own, 4)) for own in (whole, shifted, every_other, single)]
    assert found == [4, 5 + 2, 8 + 8, 32 + 32]
