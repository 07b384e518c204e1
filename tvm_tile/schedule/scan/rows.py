"""A scan whose rows' elements are neighbours in memory: the threads of a block share a row.

Before → after::

    for o:  for p:  y[o, p] = state = state ∘ x[o, p]

    for row, part in blocks:                                only where rows are in parts
        totals[row, part] = x[row, first of part] ∘ ... ∘ x[row, last of part]

    for row in blocks and threadIdx.y, part in blocks:
        before = totals[row, 0] ∘ ... ∘ totals[row, part - 1]
        for chunk of the part:
            for turn: for v in vectorized: own[turn, v] = x[row, ...]
            for turn: S[turn] = own[turn, 0] ∘ ... ∘ own[turn, vector - 1]
            share S with the row's other threads                    (:mod:`.sharing`)
            for turn:
                state = before ∘ S[turn] of all threads before
                for v: state = state ∘ own[turn, v];  out[v] = state
                for v in vectorized: y[row, ...] = out[v]
                before = before ∘ S[turn] of all threads

All threads of a block go through all barriers and shuffles: loops have as many iterations for each,
and what is behind the end of a row, or behind the last row, takes part as nothing.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.graph.rowwise import Scan
from tvm_tile.loops.combining import Combining, State
from tvm_tile.loops.rows import index_of, number
from tvm_tile.loops.scans import Outputs
from tvm_tile.schedule.scan.sharing import begin_sharing
from tvm_tile.schedule.scan.states import Lane, States, lanes, otherwise, when
from tvm_tile.tile.rows.scan import ScanTile


class RowKernel:
    """Writes one kernel."""

    def __init__(
        self,
        scan: Scan,
        tile: ScanTile,
        name: str,
        combining: Combining,
        tensors: Outputs,
        totals: States | None,
    ) -> None:
        self.name, self.scan, self.tile, self.combining = name, scan, tile, combining
        self.tensors, self.totals = tensors, totals
        self.sharing = begin_sharing(combining, tile, name)
        self.state = States.allocated(f"{name}_state", (1,), combining.dtypes, "local")
        self.before = States.allocated(f"{name}_before", (1,), combining.dtypes, "local")
        self.own = self._local("elements", tile.turns * tile.vector, scan.source)
        found = [self._local("results", tile.vector, scan.result)]
        if scan.has_places:
            found.append(self._local("found", tile.vector, "int64"))
        self.out = tuple(found)

    def write_totals(self) -> None:
        """Write the first kernel: blocks, threads and the total of each part."""
        with lanes(self.tile) as at:
            self.before.store(self.combining.identity(), [0])
            self._add_up(at)

    def write(self) -> None:
        """Write the last kernel: blocks, threads and chunks."""
        with lanes(self.tile) as at:
            self.before.store(self.combining.identity(), [0])
            if self.totals is not None:
                self._find_before(at)
            with ib.serial(number(self.tile.chunks)) as chunk:
                self._load(at, chunk)
                self._scan(at, chunk)

    def _local(self, name: str, size: int, dtype: str) -> Any:
        """Registers of a thread."""
        buffer = ib.sblock_alloc_buffer((number(size),), dtype, scope="local")
        return IRBuilder.name(f"{self.name}_{name}", buffer)

    def _first(self, at: Lane, chunk: Any, turn: Any) -> Any:
        """Place in its row of the first element of the vector that a thread takes in a turn."""
        tile = self.tile
        piece = (at.part * number(tile.chunks) + chunk) * number(tile.turns) + turn
        return (piece * number(tile.threads_per_row) + at.lane) * number(tile.vector)

    def _is_inside(self, at: Lane, first: Any) -> list[Any]:
        """The tests of whether there is such a vector."""
        whole = self.scan.rows.length == self.tile.parts * self.tile.chunks * self.tile.chunk
        return [*at.is_row, *([] if whole else [first < number(self.scan.rows.length)])]

    def _in_memory(self, first: Any) -> Any:
        """The place in its row at which a vector begins."""
        if not self.scan.is_reversed:
            return first
        return number(self.scan.rows.length - self.tile.vector) - first

    def _load(self, at: Lane, chunk: Any) -> None:
        """Fetch a thread's vectors; zeros where a row has none."""
        vector = number(self.tile.vector)
        with ib.serial(number(self.tile.turns)) as turn:
            first = ib.Bind(self._first(at, chunk, turn))
            begin = self._in_memory(first)

            def fetch() -> None:
                with ib.vectorized(vector) as v:
                    index = index_of(self.scan.rows, at.row, begin + v)
                    value = tirx.BufferLoad(self.tensors.x, index)
                    ib.buffer_store(self.own, value, [turn * vector + v])

            def clear() -> None:
                with ib.vectorized(vector) as v:
                    zero = tirx.const(0, self.scan.source)
                    ib.buffer_store(self.own, zero, [turn * vector + v])

            otherwise(self._is_inside(at, first), fetch, clear)

    def _element(self, turn: Any, v: int, first: Any) -> State:
        """The state of one of the thread's elements, the ``v``-th of a vector as scanned."""
        vector = self.tile.vector
        lane = number(vector - 1 - v if self.scan.is_reversed else v)
        value = tirx.BufferLoad(self.own, [turn * number(vector) + lane])
        return self.combining.of(value, self._in_memory(first) + lane)

    def _combine(self, target: States, given: State) -> None:
        """Combine a state with another one behind it."""
        target.store(self.combining.combined(target.load([0]), given), [0])

    def _add_vector(self, at: Lane, chunk: Any, turn: Any) -> None:
        """Combine a vector's elements into the thread's state, where there is one."""
        first = ib.Bind(self._first(at, chunk, turn))
        with when(self._is_inside(at, first)):
            for v in range(self.tile.vector):
                self._combine(self.state, self._element(turn, v, first))

    def _add_up(self, at: Lane) -> None:
        """Store the total of a part; each thread first combines its elements of all chunks."""
        assert self.totals is not None
        tile = self.tile
        self.state.store(self.combining.identity(), [0])
        with ib.serial(number(tile.chunks)) as chunk:
            self._load(at, chunk)
            with ib.serial(number(tile.turns)) as turn:
                self._add_vector(at, chunk, turn)
        self._add_threads(at)
        is_last = at.lane == number(tile.threads_per_row - 1)
        with when([*at.is_row, is_last]):
            self.totals.store(self.before.load([0]), [at.row, at.part])

    def _find_before(self, at: Lane) -> None:
        """Combine the totals of all parts before this one; threads share them out."""
        assert self.totals is not None
        tile = self.tile
        self.state.store(self.combining.identity(), [0])
        with ib.serial(number(-(-tile.parts // tile.threads_per_row))) as lap:
            other = ib.Bind(lap * number(tile.threads_per_row) + at.lane)
            with when([*at.is_row, other < at.part]):
                self._combine(self.state, self.totals.load([at.row, other]))
        self._add_threads(at)
        if self.sharing is not None:
            self.sharing.end()

    def _add_threads(self, at: Lane) -> None:
        """Combine the states of a row's threads into what is before them, for all to know."""
        if self.sharing is None:
            self.before.store(self.state.load([0]), [0])
            return
        self.sharing.tell(at, number(0), self.state.load([0]))
        self.sharing.share(at, 1)
        self.sharing.extend(at, number(0), self.state, self.before)

    def _scan(self, at: Lane, chunk: Any) -> None:
        """Scan what the threads have loaded."""
        turns = number(self.tile.turns)
        if self.sharing is not None:
            with ib.serial(turns) as turn:
                self.state.store(self.combining.identity(), [0])
                self._add_vector(at, chunk, turn)
                self.sharing.tell(at, turn, self.state.load([0]))
            self.sharing.share(at, self.tile.turns)
        with ib.serial(turns) as turn:
            self.state.store(self.before.load([0]), [0])
            if self.sharing is not None:
                self.sharing.extend(at, turn, self.state, self.before)
            self._store(at, chunk, turn)
            if self.sharing is None:
                self.before.store(self.state.load([0]), [0])
        if self.sharing is not None:
            self.sharing.end()

    def _store(self, at: Lane, chunk: Any, turn: Any) -> None:
        """Store the results of one vector."""
        vector = self.tile.vector
        first = ib.Bind(self._first(at, chunk, turn))
        with when(self._is_inside(at, first)):
            for v in range(vector):
                lane = vector - 1 - v if self.scan.is_reversed else v
                if self.scan.is_exclusive:
                    self._keep(at, lane)
                self._combine(self.state, self._element(turn, v, first))
                if not self.scan.is_exclusive:
                    self._keep(at, lane)
            begin = self._in_memory(first)
            for own, tensor in zip(self.out, (self.tensors.y, self.tensors.places), strict=False):
                with ib.vectorized(number(vector)) as v:
                    index = index_of(self.scan.rows, at.row, begin + v)
                    ib.buffer_store(tensor, tirx.BufferLoad(own, [v]), index)

    def _keep(self, at: Lane, lane: int) -> None:
        """Keep the results that the state means in registers."""
        results = self.tensors.results(self.state.load([0]), at.row)
        for own, value in zip(self.out, results, strict=True):
            ib.buffer_store(own, value, [lane])
