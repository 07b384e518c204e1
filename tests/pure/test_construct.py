"""What every constructed tile must be, whatever the model prefers."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operators import access, axes, conv2d, index, matmul

from tvm_tile.device import Device, MemoryLevel, devices, find_device
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.tile.construct import aligned_steps, construct_contraction, transfer_seconds
from tvm_tile.tile.residency import nameable_registers
from tvm_tile.tile.rtile import RProgram, RTile, longest_reduce_axis

H200 = find_device("nvidia/h200")
EXTENTS = st.sampled_from([1, 2, 3, 7, 16, 31, 49, 64, 100, 128, 197, 768, 1000, 2053])
MOST = 10_000  # more than are ever constructed


def batched(batch: int, m: int, n: int, k: int) -> Operator:
    """``C[b, i, j] += A[b, i, k] * B[b, j, k]``."""
    b, i, j, d = (index(**{axis: 1}) for axis in "bijk")
    reads = (access("A", (batch, m, k), b, i, d), access("B", (batch, n, k), b, j, d))
    extents = {"b": batch, "i": m, "j": n, "k": k}
    return Operator("bmm", axes("k", **extents), reads, access("C", (batch, m, n), b, i, j), 2)


OPERATORS = {
    "square": matmul(1024, 1024, 1024),
    "primes": matmul(197, 49, 197),
    "deep": matmul(8, 24, 8191),
    "vector": matmul(1, 1000, 2048),
    "huge": matmul(65536, 16384, 8192),
    "half": matmul(128, 768, 768, "float16"),
    "heads": batched(12, 197, 197, 64),
    "conv3x3": conv2d(64, 64, 56, 3),
    "conv1x1": conv2d(1024, 256, 14, 1),
    "stem": conv2d(3, 64, 112, 7, stride=2),
    "last": conv2d(512, 512, 7, 3, batch=2),
}


def check(program: RProgram, device: Device) -> None:
    op = program.operator
    spatial = list(zip(op.spatial_axes, program.spatial, strict=True))
    assert all(block % thread == 0 for _, (block, thread) in spatial)
    assert all(1 <= thread <= block <= axis.extent for axis, (block, thread) in spatial)
    for axis, (block, _) in spatial:
        assert -(-axis.extent // block) * block <= 1.35 * axis.extent
    pairs = zip(op.axes, program.register.shape, strict=True)
    assert all(extent == 1 for axis, extent in pairs if axis.is_reduce)
    assert 32 <= program.block_size <= device.max_threads_per_block
    assert 1 <= program.grid < 1 << 31
    assert program.shared_bytes <= device.memory(MemoryLevel.SHARED).capacity
    assert program.registers <= nameable_registers(device)
    assert program.block_size * program.registers <= device.registers_per_multi_processor
    assert program.seconds > device.launch_latency
    covered = math.prod(-(-axis.extent // block) * block for axis, (block, _) in spatial)
    blocks = math.prod(block for _, (block, _) in spatial)
    assert program.grid * blocks == covered * program.parts
    if program.groups > 1:
        longest = op.reduce_axes[program.group_axis]
        assert longest.extent % (program.groups * program.chunk[program.group_axis]) == 0
    longest = op.reduce_axes[program.group_axis]
    assert program.groups == 1 or program.parts == 1
    assert (program.parts - 1) * program.part < longest.extent <= program.parts * program.part
    assert program.part % program.staged[longest.name] == 0
    staged = math.prod(program.staged[axis.name] for axis in op.reduce_axes)
    summed = math.prod(axis.extent for axis in op.reduce_axes)
    assert program.parts * program.steps * staged >= summed


@pytest.mark.parametrize("device", devices(), ids=lambda device: device.name)
@pytest.mark.parametrize("name", OPERATORS)
def test_every_plan_is_sound(name: str, device: Device) -> None:
    plans = construct_contraction(OPERATORS[name], device, 50)
    assert plans
    for plan in plans:
        check(plan, device)


@pytest.mark.parametrize("name", OPERATORS)
def test_plans_are_ranked_distinct_and_repeatable(name: str) -> None:
    plans = construct_contraction(OPERATORS[name], H200, 100)
    seconds = [plan.seconds for plan in plans]
    near = [plan for plan in plans if plan.seconds <= 1.02 * min(seconds)]
    # What no model tells apart goes by traffic.
    assert plans[: len(near)] == tuple(near)
    moved = [transfer_seconds(plan, H200) for plan in near]
    assert moved == sorted(moved)
    assert seconds[len(near) :] == sorted(seconds[len(near) :])
    programs = set(plans)
    assert len(programs) == len(plans)
    assert plans == construct_contraction(OPERATORS[name], H200, 100)


def test_topk_only_cuts_the_list() -> None:
    many = construct_contraction(OPERATORS["conv3x3"], H200, 20)
    for count in (0, 1, 7):
        assert construct_contraction(OPERATORS["conv3x3"], H200, count) == many[:count]


@settings(max_examples=30)
@given(m=EXTENTS, n=EXTENTS, k=EXTENTS)
def test_products_of_any_size(m: int, n: int, k: int) -> None:
    for plan in construct_contraction(matmul(m, n, k), H200, 10):
        check(plan, H200)


@settings(max_examples=15)
@given(
    channels=st.sampled_from([1, 3, 13, 64, 96]),
    filters=st.sampled_from([1, 2, 24, 64, 197]),
    size=st.sampled_from([1, 7, 13, 28, 56]),
    kernel=st.sampled_from([1, 2, 3, 5, 7, 11]),
)
def test_convolutions_of_any_size(channels: int, filters: int, size: int, kernel: int) -> None:
    for plan in construct_contraction(conv2d(channels, filters, size, kernel), H200, 10):
        check(plan, H200)


@pytest.mark.parametrize("shape", list(itertools.product((1, 2), repeat=3)))
def test_products_with_fewer_outputs_than_a_warp_need_groups(shape: tuple[int, int, int]) -> None:
    assert construct_contraction(matmul(*shape), H200, 5) == ()


def test_large_products_fill_the_device() -> None:
    for name in ("square", "conv3x3", "last"):
        best = construct_contraction(OPERATORS[name], H200, 1)[0]
        assert best.grid * best.groups >= H200.multi_processor_count // 2
    best = construct_contraction(OPERATORS["huge"], H200, 1)[0]
    assert math.prod(best.register.shape) >= 16  # reuse in registers
    assert best.groups == 1  # nothing to gain from splitting the sum


@pytest.mark.parametrize("shape", [(65536, 1024, 1024), (65536, 4096, 1024), (4096, 4096, 4096)])
def test_large_products_have_the_largest_thread_tiles(shape: tuple[int, int, int]) -> None:
    best = construct_contraction(matmul(*shape), H200, 1)[0]
    assert math.prod(best.register.shape) == 64


def test_a_small_output_splits_its_sum() -> None:
    best = construct_contraction(OPERATORS["deep"], H200, MOST)
    assert best
    even = construct_contraction(matmul(8, 24, 8192), H200, 1)[0]
    assert even.groups * even.parts > 1


@pytest.mark.parametrize("shape", [(134, 1396, 5119), (256, 256, 65536), (49, 768, 3072)])
def test_a_long_sum_is_split_into_parts_where_its_output_is_small(
    shape: tuple[int, int, int],
) -> None:
    best = construct_contraction(matmul(*shape), H200, 1)[0]
    assert best.parts > 1
    assert best.grid >= 0.9 * H200.multi_processor_count
    assert math.prod(best.register.shape) >= 16


def test_partial_sums_in_half_precision_stay_in_registers() -> None:
    for plan in construct_contraction(matmul(134, 1396, 5119, "float16"), H200, MOST):
        assert plan.parts == 1


def test_a_grid_that_fills_the_device_keeps_its_sums_whole() -> None:
    for shape in ((4096, 4096, 4096), (65536, 1024, 1024)):
        assert construct_contraction(matmul(*shape), H200, 1)[0].parts == 1


def test_an_axis_without_divisors_has_tiles_that_hardly_overhang() -> None:
    for extent in (131, 134, 197, 257, 509):
        usual = [step for step in aligned_steps(extent) if step % 8 == 0 and 32 <= step <= 128]
        assert min(-(-extent // step) * step for step in usual) <= 1.1 * extent
    assert aligned_steps(1000) == tuple(s for s in aligned_steps(1000) if 1000 % s == 0 or
                                        s & (s - 1) == 0)  # fmt: skip


@given(extent=st.integers(1, 5000))
def test_steps_pad_little(extent: int) -> None:
    steps = aligned_steps(extent)
    assert steps[0] == 1
    assert list(steps) == sorted(set(steps))
    assert all(step <= min(extent, 512) for step in steps)
    assert all(-(-extent // step) * step <= 1.35 * extent for step in steps)


def test_a_program_in_numbers() -> None:
    op = matmul(100, 64, 96)
    program = RProgram(op, RTile((4, 2, 1)), RTile((16, 32, 8)), groups=4)
    assert program.spatial == ((16, 4), (32, 2))
    assert program.chunk == (8,)
    assert program.staged == {"i": 16, "j": 32, "k": 32}
    assert program.block_size == 4 * 4 * 16
    assert program.grid == 7 * 2
    assert program.steps == 3
    assert program.describe() == "block 16x32, thread 4x2, chunk 8, groups 4"


def test_a_program_in_parts_in_numbers() -> None:
    program = RProgram(matmul(100, 64, 97), RTile((4, 2, 1)), RTile((16, 32, 8)), parts=3)
    assert program.part == 40  # the last one has 17 left
    assert program.block_size == 4 * 16
    assert program.grid == 3 * 7 * 2
    assert program.steps == 5
    assert program.describe() == "block 16x32, thread 4x2, chunk 8, parts 3"


def test_groups_share_the_first_longest_axis() -> None:
    assert longest_reduce_axis(conv2d(3, 8, 7, 5)) == 1
    assert longest_reduce_axis(conv2d(5, 8, 7, 5)) == 0
