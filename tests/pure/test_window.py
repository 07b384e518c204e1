"""Strips of sliding windows: they cover the output, and their rows meet every window once."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tile.device import find_device
from tvm_tile.graph.tile_graph import Access, AffineIndex, Axis, Operator, Tensor
from tvm_tile.tile.windows.strips import construct_strips
from tvm_tile.tile.windows.vectors import ONE_BY_ONE, vectors_of
from tvm_tile.tile.windows.window import WindowTile, window_of

H200 = find_device("nvidia/h200")


def index(**terms: int) -> AffineIndex:
    return AffineIndex(tuple(terms.items()))


def pool(
    n: int,
    c: int,
    size: int,
    window: int,
    stride: int = 1,
    dilation: int = 1,
    dtype: str = "float32",
) -> Operator:
    """Of n x c planes of size x size outputs, NCHW."""
    axes = (
        *(Axis(name, extent) for name, extent in zip("ncyx", (n, c, size, size), strict=True)),
        Axis("ry", window, True),
        Axis("rx", window, True),
    )
    extent = (size - 1) * stride + (window - 1) * dilation + 1
    data = Access(
        Tensor("data", (n, c, extent, extent), dtype),
        (index(n=1), index(c=1), index(y=stride, ry=dilation), index(x=stride, rx=dilation)),
        is_computed=True,
    )
    out = Access(
        Tensor("out", (n, c, size, size), dtype),
        (index(n=1), index(c=1), index(y=1), index(x=1)),
    )
    return Operator("pool", axes, (data,), out, 1)


def row_sum(rows: int, depth: int) -> Operator:
    data = Access(Tensor("data", (rows, depth), "float32"), (index(i=1), index(k=1)))
    out = Access(Tensor("out", (rows,), "float32"), (index(i=1),))
    return Operator("sum", (Axis("i", rows), Axis("k", depth, True)), (data,), out, 1)


def product(m: int, n: int, k: int) -> Operator:
    axes = (Axis("i", m), Axis("j", n), Axis("k", k, True))
    a = Access(Tensor("a", (m, k), "float32"), (index(i=1), index(k=1)))
    b = Access(Tensor("b", (k, n), "float32"), (index(k=1), index(j=1)))
    out = Access(Tensor("out", (m, n), "float32"), (index(i=1), index(j=1)))
    return Operator("mm", axes, (a, b), out, 2)


def tiles(operator: Operator) -> tuple[WindowTile, ...]:
    return construct_strips(operator, H200, operator.traffic)


@settings(deadline=None, max_examples=40)
@given(
    n=st.sampled_from([1, 3, 64]),
    c=st.sampled_from([1, 5, 100]),
    size=st.integers(2, 90),
    window=st.integers(2, 7),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
)
def test_every_window_meets_its_rows(
    n: int, c: int, size: int, window: int, stride: int, dilation: int
) -> None:
    operator = pool(n, c, size, window, stride, dilation)
    found = tiles(operator)
    if stride > (window - 1) * dilation:
        assert not found  # nothing is shared
        return
    near = [t for t in found if t.seconds <= 1.1 * min(t.seconds for t in found)]
    assert list(found[: len(near)]) == near
    assert [t.strip * t.columns for t in near] == sorted(t.strip * t.columns for t in near)
    rest = [t.seconds for t in found[len(near) :]]
    assert rest == sorted(rest)
    assert len(set(found)) == len(found)
    for tile in found[:: max(1, len(found) // 5)]:
        assert tile.window.axis == "y"  # not along the rows that a warp reads
        assert tile.grid * tile.block_size >= tile.workers
        assert tile.workers * tile.strip * tile.columns >= n * c * size * size
        meetings = sorted(
            ((row - tap) // tile.step, tap) for row in range(tile.rows) for tap in tile.taps(row)
        )
        assert meetings == [(y, tap) for y in range(tile.strip) for tap in range(window)]
        (line,) = tile.lines
        for row in range(tile.rows):
            for tap in tile.taps(row):
                y = (row - tap) // tile.step
                assert row * tile.spacing == y * stride + tap * dilation
        assert line.extents[line.dimension] == 1
        assert all(h200_fits(tile) for tile in found)


def h200_fits(tile: WindowTile) -> bool:
    warps = -(-tile.block_size // 32) * 32
    return warps * tile.registers <= H200.registers_per_multi_processor


@pytest.mark.parametrize(("size", "strip"), [(42, 14), (37, 13)])
def test_reads_are_guarded_just_where_a_strip_may_leave_the_tensor(size: int, strip: int) -> None:
    tile = next(t for t in tiles(pool(8, 8, size, 3)) if (t.strip, t.columns) == (strip, 1))
    (line,) = tile.lines
    last = (size - 1) // strip * strip
    expected = None if size % strip == 0 else size + 2 - last
    assert line.safe == (None, None, expected, None)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_windows_that_overlap_share_registers(dtype: str) -> None:
    best = tiles(pool(128, 42, 83, 7, dtype=dtype))[0]
    assert best.strip * best.columns >= 7


def test_few_outputs_are_spread_over_the_device() -> None:
    best = tiles(pool(1, 64, 28, 3))[0]
    assert best.grid >= H200.multi_processor_count // 2


@pytest.mark.parametrize(
    ("operator", "slides"),
    [
        (pool(2, 3, 9, 3), True),
        (pool(2, 3, 9, 2, stride=2), False),  # shares nothing
        (pool(2, 3, 9, 1), False),  # no window
        (pool(2, 3, 29, 13), False),  # too long for a thread
        (row_sum(5000, 49), False),
        (product(65536, 1024, 2), False),
    ],
)
def test_what_slides(operator: Operator, slides: bool) -> None:
    assert (window_of(operator) is not None) is slides
    assert bool(tiles(operator)) is slides


def test_the_contiguous_axis_is_taken_where_no_other_slides() -> None:
    axes = (Axis("c", 6), Axis("x", 31), Axis("r", 4, True))
    data = Access(Tensor("data", (6, 34), "float32"), (index(c=1), index(x=1, r=1)))
    out = Access(Tensor("out", (6, 31), "float32"), (index(c=1), index(x=1)))
    window = window_of(Operator("conv1d", axes, (data,), out, 1))
    assert window is not None
    assert (window.axis, window.tap, window.column) == ("x", "r", "")
    assert math.prod((window.size, window.stride, window.dilation)) == 4


def accesses(
    axes: str, data: tuple[int, ...], window: int, offset: int, dtype: str
) -> tuple[Operator, Access]:
    """A depthwise sum over channels last (``xc``) or first (``cx``), and what lies in memory."""
    extents = {"x": 64, "c": 16}
    spatial = tuple(Axis(name, extents[name]) for name in axes)
    at = {"x": index(x=1, r=1), "c": index(c=1)}
    padded = Tensor(
        "pad",
        tuple(e + window - 1 if n == "x" else e for n, e in zip(axes, data, strict=True)),
        "float16",
    )
    read = Access(padded, tuple(at[name] for name in axes), is_computed=True)
    write = Access(
        Tensor("out", tuple(extents[n] for n in axes), dtype), tuple(index(**{n: 1}) for n in axes)
    )
    operator = Operator("sum", (*spatial, Axis("r", window, True)), (read,), write, 2)
    moved = tuple(replace(at[n], offset=offset) if n == "x" else at[n] for n in axes)
    return operator, Access(Tensor("data", data, "float16"), moved)


@pytest.mark.parametrize(
    ("axes", "data", "offset", "dtype", "expected"),
    [
        ("cx", (16, 64), -15, "float16", [("x", 8, 1), ("x", 4, 1), ("x", 2, 1)]),
        ("cx", (16, 64), -3, "float32", [("x", 4, 1), ("x", 2, 1)]),
        ("cx", (16, 62), -2, "float16", [("x", 2, 0)]),  # rows begin at even places only
        ("cx", (16, 61), -2, "float16", []),
        ("xc", (64, 16), -3, "float16", [("c", 8, 0), ("c", 4, 0), ("c", 2, 0)]),
        ("xc", (64, 10), -3, "float16", [("c", 2, 0)]),
    ],
)
def test_vectors_lie_in_rows_as_a_whole(
    axes: str, data: tuple[int, ...], offset: int, dtype: str, expected: list[tuple[str, int, int]]
) -> None:
    operator, source = accesses(axes, data, 1 - 2 * offset, offset, dtype)
    first, *found = vectors_of(operator, "x", 1, (source,))
    assert first == ONE_BY_ONE
    assert [(v.axis, v.count, v.lead) for v in found] == expected
    assert list(vectors_of(operator, "x", 1, (None,))) == [ONE_BY_ONE]


def test_half_precision_is_moved_in_vectors() -> None:
    operator, source = accesses("cx", (16, 64), 31, -15, "float16")
    tiles = construct_strips(operator, H200, operator.traffic, sources=(source,))
    alone = construct_strips(operator, H200, operator.traffic)
    assert tiles[0].vectors.axis == "x"
    assert tiles[0].strip % tiles[0].vectors.count == 0
    assert tiles[0].seconds < alone[0].seconds
    # Rows of one vector are read together, whatever comes before the first.
    held = [tiles[0].place_in_vector(row) for row in range(tiles[0].rows)]
    assert held[0] == tiles[0].vectors.lead
    assert all((b - a) % tiles[0].vectors.count == 1 for a, b in itertools.pairwise(held))
