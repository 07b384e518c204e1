"""Layouts of staged tiles: wavefronts counted by hand, and what every layout must be."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from operators import access, axes, conv2d, index, matmul

from tvm_tile import find_device
from tvm_tile.device import MemoryLevel
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.tile.banks import (
    _lanes,
    _strides,
    read_widths,
    staged_layout,
    staged_layouts,
    wavefronts,
)
from tvm_tile.tile.construct import construct_contraction
from tvm_tile.tile.rtile import RProgram, RTile

H200 = find_device("nvidia/h200")


@pytest.mark.parametrize(
    ("addresses", "width", "expected"),
    [
        (range(0, 128, 4), 4, 1),  # a word of each bank
        ([0] * 32, 4, 1),  # one word for all
        (range(0, 32 * 128, 128), 4, 32),  # all in one bank
        (range(0, 32 * 8, 8), 4, 2),  # every other bank, twice
        (range(0, 512, 16), 16, 4),  # 512 bytes, 128 at a time
        (range(0, 32 * 64, 64), 16, 16),  # of eight threads, each fourth at the same banks
        (range(0, 64, 2), 2, 1),  # two halves a word
        ([0] * 32, 16, 2),  # one address for all: a half of the warp at a time
        ([0] * 16 + [16] * 16, 16, 2),
        ([i // 2 * 16 for i in range(32)], 16, 2),  # neighbours in pairs
        ([i % 2 * 16 for i in range(32)], 16, 2),  # next neighbours but one
        ([i % 8 * 16 for i in range(32)], 16, 4),  # the same eight, but no neighbours
        ([i % 8 * 32 for i in range(32)], 16, 8),  # of which two meet in a bank
        ([0] * 32, 8, 1),
    ],
)
def test_wavefronts(addresses: list[int], width: int, expected: int) -> None:
    assert wavefronts(tuple(addresses), width, 32) == expected


def transposed_product(m: int, n: int, k: int) -> Operator:
    """``C[i, j] += A[i, k] * B[j, k]``."""
    i, j, d = index(i=1), index(j=1), index(k=1)
    reads = (access("A", (m, k), i, d), access("B", (n, k), j, d))
    return Operator("nt", axes("k", i=m, j=n, k=k), reads, access("C", (m, n), i, j), 2)


def test_an_operand_across_the_banks_is_turned() -> None:
    op = transposed_product(512, 512, 512)
    program = RProgram(op, RTile((8, 8, 1)), RTile((64, 128, 16)))
    layout = staged_layout(op.reads[1], program, H200)
    assert layout.order == (1, 0)
    # Per step and warp 16 x 2 loads of 16 lanes' 16 bytes, twice what banks could do at best.
    assert layout.wavefronts < 8 * 16 * 2 * 4 + 300


def test_an_operand_along_the_banks_stays() -> None:
    op = matmul(512, 512, 512)
    program = RProgram(op, RTile((8, 8, 1)), RTile((64, 128, 16)))
    assert staged_layout(op.reads[1], program, H200).is_plain


OPERATORS = [
    matmul(128, 96, 64),
    matmul(33, 47, 29),
    matmul(64, 64, 64, dtype="float16"),
    transposed_product(96, 128, 64),
    conv2d(16, 32, 14, 3),
    conv2d(24, 40, 7, 1, batch=8),
    conv2d(16, 32, 14, 3, stride=2),
]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_every_layout_keeps_elements_apart_and_vectors_aligned(op: Operator) -> None:
    for plan in construct_contraction(op, H200, 5):
        for read in op.reads:
            layout = staged_layout(read, plan, H200)
            region = read.region(plan.staged)
            strides = _strides(region, layout.order, layout.alignment)
            assert sorted(layout.order) == list(range(len(region)))
            places = {
                sum(i * s for i, s in zip(position, strides, strict=True))
                for position in itertools.product(*map(range, region))
            }
            assert len(places) == math.prod(region)


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_lanes_are_the_first_warp_of_the_block(op: Operator) -> None:
    program = construct_contraction(op, H200, 1)[0]
    lanes = _lanes(program, 32)
    positions = list(zip(*lanes.values(), strict=True))
    assert len(positions) == min(32, program.block_size)
    assert len(set(positions)) == len(positions)
    for axis, (block, thread) in zip(op.spatial_axes, program.spatial, strict=True):
        assert all(lanes[axis.name] % thread == 0)
        assert all(lanes[axis.name] < block)


@pytest.mark.parametrize(
    ("offsets", "vector", "expected"),
    [
        (range(8), 4, {4: 2}),
        (range(9), 4, {4: 2, 1: 1}),
        (range(1, 9), 4, {1: 2, 2: 1, 4: 1}),  # narrow ones lead up to an aligned place
        (range(7), 1, {1: 7}),
        (range(0, 14, 2), 4, {1: 7}),  # nothing to merge
        ([0, 1, 2, 3, 6, 7], 4, {4: 1, 2: 1}),
        ([3], 4, {1: 1}),
        (range(2, 10), 8, {2: 2, 4: 1}),
    ],
)
def test_loads_merge_aligned_neighbours(
    offsets: Sequence[int], vector: int, expected: dict[int, int]
) -> None:
    assert read_widths(np.array(offsets), vector) == expected


@given(
    offsets=st.sets(st.integers(0, 200), min_size=1),
    vector=st.sampled_from([1, 2, 4, 8]),
)
def test_loads_take_each_element_once(offsets: set[int], vector: int) -> None:
    found = read_widths(np.array(sorted(offsets)), vector)
    assert sum(width * count for width, count in found.items()) == len(offsets)
    assert all(width <= vector for width in found)


def test_a_plane_is_read_in_vectors() -> None:
    """Of eight channels' two whole rows a thread takes runs of four, of seven one at a time."""
    for extent, run in ((14, 1), (16, 4)):
        op = conv2d(64, 128, extent, 1, batch=16)
        own = extent // 2
        program = RProgram(op, RTile((1, 4, 2, own, 1, 1, 1)), RTile((8, 128, 2, own, 8, 1, 1)))
        layout = staged_layout(op.reads[0], program, H200)
        assert layout.is_plain
        assert layout.loads == 8 * 2 * own / run


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_padding_never_exceeds_the_block(op: Operator) -> None:
    capacity = H200.memory(MemoryLevel.SHARED).capacity
    for plan in construct_contraction(op, H200, 20):
        layouts = staged_layouts(plan, plan.shared_bytes, H200)
        assert plan.shared_bytes + sum(layout.padding for layout in layouts) <= capacity
        full = staged_layouts(plan, capacity, H200)
        assert sum(layout.padding for layout in full) == 0
