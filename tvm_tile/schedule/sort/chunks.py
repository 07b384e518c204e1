"""Chunks of rows, each sorted by the threads of a block in shared memory.

::

    for row in blocks and threadIdx.y, chunk in blocks:
        for e: S[e] = key and place of x[row, chunk, e]
        for width in 1, 2, 4, ...:                   runs of S are sorted, of so many elements
            barrier
            for e: own[e] = S[run, i];  rank[e] = how many of the run beside come before own[e]
            barrier
            for e: S[both runs, i + rank[e]] = own[e]
        barrier
        for e: y[row, e] = x[row, place in S[e]]

Of each run only as many elements take part as are wanted in the end, or the next power of two. How
many of a run come before an element is found by a search in halves, all of a thread's at once. No
two elements are equal, so that each of two runs' elements has a rank of its own, and no place is
written twice. Between a read of ``S`` and a write of it there is always a barrier that all threads
of the block come to: loops are of one extent for all, and threads without an element take part
without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.loops.rows import number
from tvm_tile.loops.sorting import Ordering, Sorted
from tvm_tile.schedule.scan.states import Lane, States, barrier, lanes, otherwise, when
from tvm_tile.tile.rows.sort import SortTile


class ChunkKernel:
    """Writes the kernel; ``runs`` is where sorted chunks go that are still to be merged."""

    def __init__(
        self, tile: SortTile, ordering: Ordering, tensors: Sorted, runs: States | None
    ) -> None:
        self.tile, self.ordering, self.tensors, self.runs = tile, ordering, tensors, runs
        self.kept = min(tile.chunk, ordering.sort.kept)
        shape = (tile.rows_per_block, tile.chunk)
        self.shared = States.allocated("chunk", shape, ordering.dtypes, "shared")
        self.own = States.allocated("own", (tile.elements,), ordering.dtypes, "local")
        self.wanted_bits = (self.kept - 1).bit_length()
        rank = ib.sblock_alloc_buffer((number(tile.elements),), "int64", scope="local")
        self.rank = IRBuilder.name("rank", rank)

    def write(self) -> None:
        """Write blocks and threads, and what they do."""
        with lanes(self.tile) as at:
            self._load(at)
            with ib.serial(number(self.tile.chunk.bit_length() - 1)) as turn:
                self._merge(at, turn)
            barrier()
            self._store(at)

    def _load(self, at: Lane) -> None:
        """Bring the elements of a chunk to shared memory, as keys of the order."""
        tile, length = self.tile, self.ordering.sort.rows.length
        with ib.serial(number(tile.elements)) as turn:
            slot = ib.Bind(turn * number(tile.threads_per_row) + at.lane)
            place = ib.Bind(at.part * number(tile.chunk) + slot)
            is_whole = length == tile.chunk * tile.parts
            tests = [*at.is_row, *([] if is_whole else [place < number(length)])]

            def fetch() -> None:
                state = self.ordering.of(self.tensors.load(at.row, place), place)
                self.shared.store(state, [at.lane_row, slot])

            def fill() -> None:
                self.shared.store(self.ordering.behind_all(place), [at.lane_row, slot])

            otherwise(tests, fetch, fill)

    def _merge(self, at: Lane, turn: Any) -> None:
        """Merge pairs of runs of ``2**turn`` elements, of which so many as are wanted take part."""
        most = number(self.wanted_bits)
        bits, after = ib.Bind(tirx.min(turn, most)), ib.Bind(tirx.min(turn + number(1), most))
        wanted = ib.Bind(number(1) << bits)
        active = ib.Bind((number(self.tile.chunk) >> turn) << bits)
        barrier()
        with self._elements(at, active) as (e, element):
            run, place = element >> bits, element & (wanted - number(1))
            state = self.shared.load([at.lane_row, (run << turn) + place])
            self.own.store(state, [e])
            ib.buffer_store(self.rank, number(0), [e])
        with ib.serial(bits + number(1)) as step, self._elements(at, active) as (e, element):
            further = ib.Bind(self.rank[e] + (wanted >> step))
            with when([further <= wanted]):
                beside = ((element >> bits) ^ number(1)) << turn
                other = self.shared.load([at.lane_row, beside + further - number(1)])
                is_before = self.ordering.is_before(other, self.own.load([e]))
                ib.buffer_store(self.rank, tirx.Select(is_before, further, self.rank[e]), [e])
        barrier()
        with self._elements(at, active) as (e, element):
            rank = ib.Bind(self.rank[e] + (element & (wanted - number(1))))
            with when([rank < (number(1) << after)]):
                begin = (element >> (bits + number(1))) << (turn + number(1))
                self.shared.store(self.own.load([e]), [at.lane_row, begin + rank])

    @contextmanager
    def _elements(self, at: Lane, active: Any) -> Iterator[tuple[Any, Any]]:
        """A loop over a thread's elements: the number among its own, and among all."""
        tile = self.tile
        with ib.serial(number(tile.elements)) as e:
            element = ib.Bind(e * number(tile.threads_per_row) + at.lane)
            with when([element < active]):
                yield e, element

    def _store(self, at: Lane) -> None:
        """Store the sorted chunk: the result, or a run for the next merge."""
        threads = self.tile.threads_per_row
        with ib.serial(number(-(-self.kept // threads))) as turn:
            rank = ib.Bind(turn * number(threads) + at.lane)
            inside = [rank < number(self.kept)] if self.kept % threads else []
            with when([*at.is_row, *inside]):
                state = self.shared.load([at.lane_row, rank])
                if self.runs is None:
                    self.tensors.store(at.row, rank, self.ordering.place_in(state))
                else:
                    self.runs.store(state, [at.row, at.part * number(self.kept) + rank])
