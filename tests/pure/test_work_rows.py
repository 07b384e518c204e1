"""What kernels of rows and of copies say that their blocks do covers what has to be done."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from operators import access, axes, column_sum, depthwise, elementwise, index, row_sum

from tvm_tile.device import find_device
from tvm_tile.graph.rowwise import Combine, Rows, Scan, Sort
from tvm_tile.graph.tile_graph import Access, AffineIndex, Axis, Operator, Tensor
from tvm_tile.tile.moves.plain import construct_plain, together
from tvm_tile.tile.moves.transpose import Copy, Source, construct_transpose
from tvm_tile.tile.rows.held_rows import construct_held, find_held_rows
from tvm_tile.tile.rows.reduce import construct_reduction, construct_window
from tvm_tile.tile.rows.rows import construct_rows
from tvm_tile.tile.rows.scan import construct_scan
from tvm_tile.tile.rows.sort import construct_sort
from tvm_tile.tile.tile import Tile
from tvm_tile.tile.time import AMID, Work, seconds_of

H200 = find_device("nvidia/h200")


@dataclass(frozen=True)
class Case:
    """Tiles of a problem, bytes that it reads and writes, and operations, two of an element."""

    name: str
    tiles: Sequence[Tile]
    read: int
    written: int
    operations: int = 0

    def __str__(self) -> str:
        return self.name


def flat(order: str, extents: dict[str, int]) -> Access:
    terms, stride = [], 1
    for name in reversed(order):
        terms.append((name, stride))
        stride *= extents[name]
    return Access(Tensor(order, (stride,), "float16"), (AffineIndex(tuple(terms), 0),))


def norm(rows: int, length: int) -> tuple[Operator, Operator]:
    """``y[i, j] = f(x[i, j], s[i])`` and ``s[i] += x[i, k]``."""
    x, y = (access(name, (rows, length), index(i=1), index(j=1)) for name in "xy")
    reads = (x, access("s", (rows,), index(i=1)))
    read = access("x", (rows, length), index(i=1), index(k=1))
    total = Operator(
        "total", axes("k", i=rows, k=length), (read,), access("s", (rows,), index(i=1)), 1
    )
    return Operator("scaled", axes("", i=rows, j=length), reads, y, 2), total


def case(name: str, tiles: Iterable[Tile], op: Operator, operations: int) -> Case:
    written = op.write.tensor.size
    return Case(name, tuple(tiles), op.traffic - written, written, operations)


def cases() -> Iterator[Case]:
    for rows, length in ((7, 5), (64, 197), (512, 65536), (4, 1 << 20), (1 << 20, 64)):
        for op in (row_sum(rows, length), column_sum(length, rows)):
            yield case(f"sums {rows} x {length}", construct_reduction(op, H200), op, rows * length)
    for op in (row_sum(1 << 20, 4), depthwise(64, 14, 3)):
        yield case(f"window {op.outputs}", construct_window(op, H200), op, op.points)
    for rows, columns, dtype in ((17, 33, "float32"), (4096, 4096, "float16")):
        op = elementwise(rows, columns, dtype)
        yield case(f"map {rows} {dtype}", construct_plain(op, H200), op, op.points)
    for rows, length in ((64, 768), (32768, 1024), (2, 150_001), (3, 33)):
        output, total = norm(rows, length)
        again = construct_rows(output, [total], frozenset("i"), H200)
        own = find_held_rows(output, [total], frozenset("i"))
        assert own is not None
        held, size = construct_held(own, H200), 4 * rows * length
        yield Case(f"rows {rows} x {length}", (*again, *held), size, size, 3 * size // 4)
    for shape, axis in (((16, 300), 1), ((4096, 8192), 1), ((1, 1 << 20), 1), ((300, 5), 0)):
        scan = Scan(Combine.SUM, Rows(shape, axis), "float32", "float32")
        size = 4 * math.prod(shape)
        yield Case(f"scan {shape}", [construct_scan(scan, H200)], size, size, math.prod(shape))
    for shape, kept in (((16, 300), 300), ((4096, 8192), 8192), ((2, 8300), 3)):
        sort = Sort(Rows(shape, 1), kept, "float32", False, True, None)
        compared = shape[0] * shape[1] * math.log2(kept)
        sizes = 4 * math.prod(shape), 4 * shape[0] * kept
        yield Case(f"sort {shape}", [construct_sort(sort, H200)], *sizes, int(compared))
    for rows, columns in ((96, 197), (4096, 1024), (65536, 96)):
        extents = {"a": rows, "b": columns}
        source = Source((flat("ba", extents),), frozenset())
        copy = Copy(tuple(Axis(n, e) for n, e in extents.items()), (source,), flat("ab", extents))
        size = 2 * rows * columns
        yield Case(f"transpose {extents}", construct_transpose(copy, H200), size, size)


CASES = tuple(cases())


def work_of(tile: Tile) -> Work:
    assert tile.work is not None
    return tile.work


def total(work: Work, name: str) -> float:
    """A quantity of all blocks of a kernel."""
    return float(work.blocks * sum(part.repeats * getattr(part, name) for part in work.parts))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_blocks_do_all_that_has_to_be_done(case: Case) -> None:
    for tile in case.tiles:
        work = work_of(tile)
        last = [work, *work.then][-1]
        assert (work.blocks, work.warps) == (tile.grid, -(-tile.block_size // H200.warp_size))
        assert work.resident >= 1
        assert case.read <= work.read <= 1.01 * case.read + 64
        assert last.written == case.written
        assert total(work, "fills") >= 0.99 * case.read
        assert total(last, "stores") >= last.written
        done = sum(total(own, "operations") for own in (work, *work.then)) * H200.warp_size
        assert done >= case.operations
        # No instruction moves more than 16 bytes for each thread.
        assert total(work, "moves") * 512 >= work.read + (0 if work.then else work.written)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_predictions_are_finite_and_above_the_traffic(case: Case) -> None:
    works = [work_of(tile) for tile in case.tiles]
    seconds = seconds_of(works, H200)
    assert np.isfinite(seconds).all()
    assert (seconds >= (case.read + case.written) / H200.read_bandwidth).all()
    assert (seconds_of(works, H200, AMID) < seconds).all()


def test_threads_that_share_a_result_wait_for_one_another() -> None:
    own = {t.threads_per_output: t for t in construct_reduction(row_sum(512, 4096), H200)}
    trees = {n: work_of(tile).parts[1] for n, tile in own.items()}
    assert [trees[n].barriers for n in (32, 64)] == [0, 2]
    assert trees[64].exchanges > trees[32].exchanges


def test_one_kernel_of_several_outputs_does_the_work_of_all() -> None:
    works = [work_of(t) for t in construct_plain(elementwise(512, 512), H200)[:2]]
    joined = together(works[0], works)
    assert total(joined, "fills") == pytest.approx(sum(total(work, "fills") for work in works))
    assert joined.written == sum(work.written for work in works)


def test_rows_that_no_cache_keeps_are_read_from_memory_again() -> None:
    def again(rows: int) -> list[float]:
        output, total = norm(rows, 65536)
        works = [tile.work for tile in construct_rows(output, [total], frozenset("i"), H200)]
        return [float(work.again / work.read) for work in works if work]

    assert set(again(64)) == {0.0}
    assert all(0.9 < share < 1 for share in again(4096))
