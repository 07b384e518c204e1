"""A scan whose rows' elements are neighbours in memory: the threads of a block share a row.

Before → after::

    for o:  for p:  y[o, p] = state = state ∘ x[o, p]

    for row, part in blocks:                                only where rows are in parts
        totals[row, part] = x[row, first of part] ∘ ... ∘ x[row, last of part]

    for row in blocks and threadIdx.y, part in blocks:
        before = totals[row, 0] ∘ ... ∘ totals[row, part - 1]
        for chunk of the part:
            for turn: for v in vectorized: own[turn, v] = x[row, ...]
            for turn: S[turn, lane] = own[turn, 0] ∘ ... ∘ own[turn, vector - 1]
            for distance in 1, 2, 4, ...:                   in turn from S to T and from T to S
                barrier
                for turn: T[turn, lane] = S[turn, lane - distance] ∘ S[turn, lane]
            barrier
            for turn:
                state = before ∘ T[turn, lane - 1]
                for v: state = state ∘ own[turn, v];  out[v] = state
                for v in vectorized: y[row, ...] = out[v]
                before = before ∘ T[turn, last lane]
            barrier

Why no thread reads what is not there yet, or no longer: a step reads the buffer that the one before
has written, and the barrier at its head is between them; it writes the buffer that the step before
has read, and the same barrier is between these. The last barrier is between the reads behind the
steps and the next chunk's first write. All threads of a block go through all barriers: loops have
as many iterations for each, and what is behind the end of a row, or behind the last row, takes part
as nothing.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.graph.rowwise import Scan
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.loops.combining import Combining, State
from tvm_tile.loops.rows import index_of, number
from tvm_tile.loops.scans import Outputs
from tvm_tile.schedule.scan.states import Lane, States, barrier, lanes, otherwise, when
from tvm_tile.tile.rows.scan import ScanTile


def shared_bytes(scan: Scan, tile: ScanTile) -> int:
    """Bytes of shared memory that a block takes."""
    each = sum(map(element_size, Combining(scan).dtypes))
    return 2 * tile.block_size * tile.turns * each if tile.threads_per_row > 1 else 0


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
        shape = (tile.rows_per_block, tile.turns, tile.threads_per_row)
        self.shared = tuple(
            States.allocated(f"{name}_shared_{half}", shape, combining.dtypes, "shared")
            for half in range(2 if tile.threads_per_row > 1 else 0)
        )
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
        total = self._total_of_threads(at)
        is_last = at.lane == number(tile.threads_per_row - 1)
        with when([*at.is_row, is_last]):
            self.totals.store(total, [at.row, at.part])

    def _find_before(self, at: Lane) -> None:
        """Combine the totals of all parts before this one; threads share them out."""
        assert self.totals is not None
        tile = self.tile
        self.state.store(self.combining.identity(), [0])
        with ib.serial(number(-(-tile.parts // tile.threads_per_row))) as lap:
            other = ib.Bind(lap * number(tile.threads_per_row) + at.lane)
            with when([*at.is_row, other < at.part]):
                self._combine(self.state, self.totals.load([at.row, other]))
        self.before.store(self._total_of_threads(at), [0])
        if self.shared:
            barrier()

    def _total_of_threads(self, at: Lane) -> State:
        """The states of a row's threads combined into one, which all know then."""
        if not self.shared:
            return self.state.load([0])
        first = number(0)
        self.shared[0].store(self.state.load([0]), [at.lane_row, first, at.lane])
        self._share(at, 1)
        return self._shared_state(at, first, number(self.tile.threads_per_row - 1))

    def _shared_state(self, at: Lane, turn: Any, lane: Any) -> State:
        """The state of all threads up to one, after the last step."""
        return self.shared[self._steps % 2].load([at.lane_row, turn, lane])

    @property
    def _steps(self) -> int:
        """Steps of a tree over the threads that share a row."""
        return self.tile.threads_per_row.bit_length() - 1

    def _share(self, at: Lane, turns: int) -> None:
        """Let each thread know the states of those before it; see above."""
        for step in range(self._steps):
            old, new = self.shared[step % 2], self.shared[1 - step % 2]
            distance = number(1 << step)
            barrier()
            with ib.serial(number(turns)) as turn:
                self._step(old, new, [at.lane_row, turn, at.lane], distance)
        barrier()

    def _step(self, old: States, new: States, own: list[Any], distance: Any) -> None:
        """Do one thread's part in a step; its state is at ``own``."""
        *before, lane = own

        def join() -> None:
            left = old.load([*before, lane - distance])
            new.store(self.combining.combined(left, old.load(own)), own)

        otherwise([lane >= distance], join, lambda: new.store(old.load(own), own))

    def _scan(self, at: Lane, chunk: Any) -> None:
        """Scan what the threads have loaded."""
        turns = number(self.tile.turns)
        if self.shared:
            with ib.serial(turns) as turn:
                self.state.store(self.combining.identity(), [0])
                self._add_vector(at, chunk, turn)
                self.shared[0].store(self.state.load([0]), [at.lane_row, turn, at.lane])
            self._share(at, self.tile.turns)
        with ib.serial(turns) as turn:
            self.state.store(self.before.load([0]), [0])
            if self.shared:
                with when([at.lane > number(0)]):
                    near = self._shared_state(at, turn, at.lane - number(1))
                    self._combine(self.state, near)
            self._store(at, chunk, turn)
            if self.shared:
                last = number(self.tile.threads_per_row - 1)
                self._combine(self.before, self._shared_state(at, turn, last))
            else:
                self.before.store(self.state.load([0]), [0])
        if self.shared:
            barrier()

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
