"""Tiles of staged windows: they fit, cover the output, and lie as the kernel wants them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tile.device import find_device
from tvm_tile.device.device import MemoryLevel
from tvm_tile.graph.tile_graph import Access, AffineIndex, Axis, Operator, Tensor
from tvm_tile.tile.window import construct_staged_window, is_staged_window

H200 = find_device("nvidia/h200")


def index(**terms: int) -> AffineIndex:
    return AffineIndex(tuple(terms.items()))


def pool(n: int, c: int, size: int, window: int, stride: int = 1) -> Operator:
    """Of n x c planes of size x size outputs, NCHW."""
    axes = (
        *(Axis(name, extent) for name, extent in zip("ncyx", (n, c, size, size), strict=True)),
        Axis("ry", window, True),
        Axis("rx", window, True),
    )
    extent = (size - 1) * stride + window
    data = Access(
        Tensor("data", (n, c, extent, extent), "float32"),
        (index(n=1), index(c=1), index(y=stride, ry=1), index(x=stride, rx=1)),
        is_computed=True,
    )
    out = Access(
        Tensor("out", (n, c, size, size), "float32"),
        (index(n=1), index(c=1), index(y=1), index(x=1)),
    )
    return Operator("pool", axes, (data,), out, 1)


def row_sum(rows: int, depth: int, *, contiguous: bool = True) -> Operator:
    places = (index(i=1), index(k=1))
    shape = (rows, depth)
    if not contiguous:
        places, shape = places[::-1], shape[::-1]
    data = Access(Tensor("data", shape, "float32"), places)
    out = Access(Tensor("out", (rows,), "float32"), (index(i=1),))
    return Operator("sum", (Axis("i", rows), Axis("k", depth, True)), (data,), out, 1)


@settings(deadline=None, max_examples=40)
@given(
    n=st.sampled_from([1, 3, 64]),
    c=st.sampled_from([1, 5, 32, 100]),
    size=st.integers(1, 90),
    window=st.integers(2, 7),
    stride=st.integers(1, 3),
)
def test_tiles_fit_and_cover(n: int, c: int, size: int, window: int, stride: int) -> None:
    operator = pool(n, c, size, window, stride)
    plans = construct_staged_window(operator, H200, 5)
    if size == 1 and n * c < 132 * 32:
        assert not plans  # nothing slides, and little to share out
        return
    assert plans
    assert [p.cost.seconds for p in plans] == sorted(p.cost.seconds for p in plans)
    for plan in plans:
        program = plan.program
        assert program.steps == 1
        assert plan.block_size <= H200.max_threads_per_block
        assert plan.cost.footprint <= H200.memory(MemoryLevel.SHARED).capacity
        region = [min(i.span(program.staged), e) for i, e in zip(
            operator.reads[0].indices, operator.reads[0].tensor.shape, strict=True)]  # fmt: skip
        assert plan.cost.footprint == math.prod(region) * 4
        for axis, (block, thread) in zip(operator.spatial_axes, program.spatial, strict=True):
            assert block % thread == 0
            assert -(-axis.extent // block) * block < 2 * max(axis.extent, block)
        # Threads store along the contiguous axis together, and go on along the other.
        assert program.spatial[3][1] == 1
        assert plan.cost.seconds > operator.traffic / H200.memory(MemoryLevel.GLOBAL).bandwidth


def test_windows_that_overlap_share_registers() -> None:
    best = construct_staged_window(pool(128, 42, 83, 7), H200, 1)[0]
    assert best.program.spatial[2][1] >= 7


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (pool(2, 3, 9, 3), True),
        (pool(2, 3, 9, 1), False),  # no window
        (row_sum(5000, 49), True),  # a thread's elements are neighbours
        (row_sum(5000, 49, contiguous=False), False),  # neighbouring threads read neighbours
        (row_sum(5000, 500), False),  # too long for a thread
    ],
)
def test_what_is_staged(operator: Operator, expected: bool) -> None:
    assert is_staged_window(operator) is expected


def test_few_sums_are_not_for_single_threads() -> None:
    assert construct_staged_window(row_sum(100, 49), H200, 1) == ()
    assert construct_staged_window(row_sum(50_000, 49), H200, 1)
