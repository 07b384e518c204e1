"""Products with few vectors: what belongs to the rule, and tiles that cover each output once."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operators import access, axes, conv2d, depthwise, index, matmul, row_sum

from tvm_tile.device import Device, devices, find_device
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.tile.few_rows.few_vectors import Matvec, find_matvec, vector_along
from tvm_tile.tile.few_rows.matvec import construct_matvec
from tvm_tile.tile.few_rows.matvec_tile import MatvecTile

H200 = find_device("nvidia/h200")


def product(
    m: int, n: int, k: int, dtype: str = "float16", *, layout: str = "nk", batch: int = 1
) -> Operator:
    """``y[b, m, n] += x[b, m, k] * w[b, n, k]``, ``w`` laid out as its letters say."""
    sizes = {"n": n, "k": k}
    x = access("x", (batch, m, k), index(b=1), index(m=1), index(k=1), dtype=dtype)
    shape = (batch, *(sizes[letter] for letter in layout))
    letters = (index(**{letter: 1}) for letter in layout)
    w = access("w", shape, index(b=1), *letters, dtype=dtype)
    y = access("y", (batch, m, n), index(b=1), index(m=1), index(n=1))
    return Operator("product", axes("k", b=batch, m=m, n=n, k=k), (x, w), y, 2)


def tiles_of(operator: Operator, device: Device = H200) -> tuple[MatvecTile, ...]:
    found = find_matvec(operator, device)
    assert found is not None
    return construct_matvec(operator, found, device)


def test_the_parts_of_the_axes() -> None:
    operator = product(3, 128, 256, batch=4)
    found = find_matvec(operator, H200)
    assert found == Matvec(operator.reads[1], operator.reads[0], (0,), (2,), (1,), 3)
    # An axis of one element is as good as a vector's.
    assert find_matvec(product(3, 128, 256), H200) == replace(
        found,
        streamed=product(3, 128, 256).reads[1],
        reused=product(3, 128, 256).reads[0],
        batch=(),
        vectors=(0, 1),
    )


@pytest.mark.parametrize(
    "operator",
    [
        matmul(16, 512, 512),  # many vectors
        matmul(512, 512, 512),
        matmul(1, 512, 16),  # a short sum
        matmul(1, 3, 4096),  # few rows
        row_sum(512, 512),
        depthwise(64, 14, 3),
        conv2d(64, 64, 14, 3),
    ],
    ids=lambda operator: operator.name,
)
def test_what_does_not_belong(operator: Operator) -> None:
    assert find_matvec(operator, H200) is None


def test_arithmetic_must_take_less_time_than_reading() -> None:
    slow = replace(H200, peak_flops=(("float32", 1e12),))
    assert find_matvec(product(1, 512, 512, "float32"), H200) is not None
    assert find_matvec(product(8, 512, 512, "float16"), H200) is not None
    assert find_matvec(product(8, 512, 512, "float16"), slow) is None


def test_one_operand_alone_is_not_the_longer_one() -> None:
    x = access("x", (5, 64), index(i=1), index(k=1))
    other = access("x", (5, 64), index(j=1), index(k=1))
    y = access("y", (5, 5), index(i=1), index(j=1))
    operator = Operator("gram", axes("k", i=5, j=5, k=64), (x, other), y, 2)
    assert find_matvec(operator, H200) is None


@pytest.mark.parametrize("offset", [0, 1])
def test_a_cut_out_is_not_read_in_vectors(offset: int) -> None:
    operator = product(1, 512, 512)
    x, w = operator.reads
    shifted = replace(w, indices=(*w.indices[:2], index(offset, k=1)))
    found = find_matvec(replace(operator, reads=(x, shifted)), H200)
    assert (found is None) == bool(offset)


@pytest.mark.parametrize(
    ("operator", "vector"),
    [
        (product(1, 512, 1024), 8),
        (product(1, 512, 1024, "float32"), 4),
        (product(1, 512, 1024, "int8"), 4),
        (product(1, 512, 1028), 4),
        (product(1, 512, 1031), 1),
        (product(1, 512, 1024, layout="kn"), 1),
    ],
)
def test_vectors_are_aligned(operator: Operator, vector: int) -> None:
    assert vector_along(operator.reads[1], operator.axes[3], operator) == vector


EXTENTS = st.sampled_from([4, 5, 31, 64, 100, 197, 1000, 1001, 2053, 8192, 50_257])


@settings(deadline=None, max_examples=60)
@given(
    m=st.integers(1, 8),
    n=EXTENTS,
    k=EXTENTS.filter(lambda k: k >= 64),
    batch=st.sampled_from([1, 3]),
    layout=st.sampled_from(["nk", "kn"]),
    dtype=st.sampled_from(["float16", "bfloat16", "float32"]),
    device=st.sampled_from(devices()),
)
def test_every_output_is_covered_once_and_every_tile_fits(
    m: int, n: int, k: int, batch: int, layout: str, dtype: str, device: Device
) -> None:
    operator = product(m, n, k, dtype, layout=layout, batch=batch)
    found = find_matvec(operator, device)
    if found is None:
        return
    tiles = construct_matvec(operator, found, device)
    assert tiles
    for tile in tiles:
        check(tile, operator, found, device)
    assert all(a.seconds <= b.seconds for a, b in itertools.pairwise(tiles))
    assert len(set(tiles)) == len(tiles)


def check(tile: MatvecTile, operator: Operator, found: Matvec, device: Device) -> None:
    rows = math.prod(operator.axes[place].extent for place in (*found.rows, *found.batch))
    length, depth = operator.axes[tile.axis].extent, operator.axes[found.summed].extent
    if tile.form == "row":
        assert length % tile.run == 0
        own = tile.groups * tile.run
        assert (tile.grid - 1) * own < rows <= tile.grid * own
        chunk = tile.lanes * tile.vector * tile.unroll
    else:
        assert length % tile.vector == 0
        width = tile.lanes * tile.vector
        across, rest = divmod(tile.grid, rows // length)
        assert rest == 0
        assert (across - 1) * width < length <= across * width
        chunk = tile.groups * tile.unroll
    assert (tile.steps - 1) * chunk < depth <= tile.steps * chunk
    assert tile.overhangs == (depth % chunk > 0)
    assert tile.vector * operator.reads[1].tensor.element_size <= 16
    assert tile.block_size <= device.max_threads_per_block
    assert tile.block_size % device.warp_size == 0
    assert tile.registers * tile.block_size <= device.registers_per_multi_processor
    assert tile.shared_bytes <= device.shared_memory_per_multi_processor
    assert device.launch_latency < tile.seconds < math.inf


def test_long_operands_are_read_in_wide_vectors_at_nearly_the_speed_of_memory() -> None:
    for layout, dtype in itertools.product(("nk", "kn"), ("float16", "bfloat16", "float32")):
        operator = product(1, 16384, 16384, dtype, layout=layout)
        best = tiles_of(operator)[0]
        assert best.vector * operator.reads[1].tensor.element_size in (8, 16)
        assert best.seconds < 1.6 * operator.reads[1].tensor.size / H200.read_bandwidth


def test_few_rows_share_more_threads_each() -> None:
    few, many = (tiles_of(product(1, n, 8192))[0] for n in (16, 1 << 16))
    assert few.lanes > many.lanes or few.unroll > many.unroll


def test_neither_rows_nor_the_sum_contiguous_has_no_tile() -> None:
    # w[n, k, b]: what lies side by side belongs to different products.
    operator = product(1, 64, 64, batch=8)
    w = access("w", (64, 64, 8), index(n=1), index(k=1), index(b=1), dtype="float16")
    operator = replace(operator, reads=(operator.reads[0], w))
    assert tiles_of(operator) == ()


def test_a_tile_describes_itself() -> None:
    row = MatvecTile("row", 1, 32, 4, 2, 8, 2, 7, False, 100)
    assert row.describe() == "32 lanes a row, 4 groups, 2 rows a thread, 4 loads of 8"
    column = replace(row, form="column", lanes=8, groups=16, run=8)
    assert column.describe() == (
        "8 lanes of columns, 16 parts of the sum, 8 rows a thread, 2 loads of 8"
    )
