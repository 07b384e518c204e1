"""How the threads that share a row know the states of those before them.

By a tree in shared memory::

    for distance in 1, 2, 4, ...:                   in turn from S to T and from T to S
        barrier
        for turn: T[turn, lane] = S[turn, lane - distance] ∘ S[turn, lane]
    barrier

Or, where lanes of a warp can read each other's registers, by shuffles, and between warps by the
states that these end with::

    for distance in 1, 2, 4, ...:
        for turn: own[turn] = that of the lane - distance ∘ own[turn]
    for turn: S[turn, warp] = own[turn] of the last lane
    barrier

Why no thread reads what is not there yet, or no longer: a step of the tree reads the buffer that
the one before has written, and the barrier at its head is between them; it writes the buffer that
the step before has read, and the same barrier is between these. Behind the reads of a chunk's
states there is a barrier, and behind that the next chunk's first write. Shuffles are in no branch.
"""

from __future__ import annotations

from typing import Any, Protocol

from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.loops.combining import Combining, State
from tvm_tile.loops.rows import number
from tvm_tile.schedule.scan.states import Lane, States, barrier, otherwise, when
from tvm_tile.tile.rows.scan import ScanTile

_ALL_LANES = 0xFFFFFFFF


class Sharing(Protocol):
    """States of the threads of a row, one for each turn."""

    def tell(self, at: Lane, turn: Any, state: State) -> None:
        """Let the others know a thread's state."""

    def share(self, at: Lane, turns: int) -> None:
        """Combine what threads have told."""

    def extend(self, at: Lane, turn: Any, state: States, total: States) -> None:
        """Combine ``state`` with those of the threads before, and ``total`` with those of all."""

    def end(self) -> None:
        """Wait until all have read what they were told."""


class Tree:
    """A tree in shared memory."""

    def __init__(self, combining: Combining, tile: ScanTile, name: str) -> None:
        self._combining = combining
        self._threads, self._steps = tile.threads_per_row, tile.threads_per_row.bit_length() - 1
        # Rows are neighbours: those that a warp has go to different banks.
        shape = (tile.turns, tile.rows_per_block, tile.threads_per_row)
        self._halves = tuple(
            States.allocated(f"{name}_shared_{half}", shape, combining.dtypes, "shared")
            for half in range(2)
        )

    def tell(self, at: Lane, turn: Any, state: State) -> None:
        """Store the state where the first step reads it."""
        self._halves[0].store(state, [turn, at.lane_row, at.lane])

    def share(self, at: Lane, turns: int) -> None:
        """Let each thread know the states of those before it; see above."""
        for step in range(self._steps):
            old, new = self._halves[step % 2], self._halves[1 - step % 2]
            barrier()
            with ib.serial(number(turns)) as turn:
                self._step(old, new, [turn, at.lane_row, at.lane], number(1 << step))
        barrier()

    def _step(self, old: States, new: States, own: list[Any], distance: Any) -> None:
        """Do one thread's part in a step; its state is at ``own``."""
        *before, lane = own

        def join() -> None:
            left = old.load([*before, lane - distance])
            new.store(self._combining.combined(left, old.load(own)), own)

        otherwise([lane >= distance], join, lambda: new.store(old.load(own), own))

    def extend(self, at: Lane, turn: Any, state: States, total: States) -> None:
        """Combine with what the last step has written."""
        found = self._halves[self._steps % 2]
        with when([at.lane > number(0)]):
            near = found.load([turn, at.lane_row, at.lane - number(1)])
            _combine(self._combining, state, near)
        last = found.load([turn, at.lane_row, number(self._threads - 1)])
        _combine(self._combining, total, last)

    def end(self) -> None:
        """Wait for all threads of the block."""
        barrier()


class Lanes:
    """Shuffles within a warp, and shared memory between warps."""

    def __init__(self, combining: Combining, tile: ScanTile, name: str) -> None:
        self._combining, self._lanes, self._warps = combining, tile.lanes, tile.warps_per_row
        dtypes = combining.dtypes
        self._own = States.allocated(f"{name}_shared", (tile.turns,), dtypes, "local")
        self._near = States.allocated(f"{name}_near", (1,), dtypes, "local")
        if self._warps > 1:
            shape = (tile.rows_per_block, tile.turns, self._warps)
            self._ends = States.allocated(f"{name}_ends", shape, dtypes, "shared")

    def tell(self, at: Lane, turn: Any, state: State) -> None:
        """Keep the state in a register."""
        self._own.store(state, [turn])

    def share(self, at: Lane, turns: int) -> None:
        """Let each lane know the states of those before it; see above."""
        lane, count = self._lane(at), number(turns)
        for step in range(self._lanes.bit_length() - 1):
            with ib.serial(count) as turn:
                self._fetch("__shfl_up_sync", turn, 1 << step)
                with when([lane >= number(1 << step)]):
                    joined = self._combining.combined(self._near.load([0]), self._own.load([turn]))
                    self._own.store(joined, [turn])
        if self._warps > 1:
            with when([lane == number(self._lanes - 1)]), ib.serial(count) as turn:
                self._ends.store(self._own.load([turn]), [at.lane_row, turn, self._number(at)])
            barrier()

    def extend(self, at: Lane, turn: Any, state: States, total: States) -> None:
        """Combine with the states of warps, and with that of the lane before."""
        if self._warps > 1:
            with ib.serial(number(self._warps)) as warp:
                end = [at.lane_row, turn, warp]
                with when([warp < self._number(at)]):
                    _combine(self._combining, state, self._ends.load(end))
                _combine(self._combining, total, self._ends.load(end))
        self._fetch("__shfl_up_sync", turn, 1)
        with when([self._lane(at) > number(0)]):
            _combine(self._combining, state, self._near.load([0]))
        if self._warps == 1:
            self._fetch("__shfl_sync", turn, self._lanes - 1)
            _combine(self._combining, total, self._near.load([0]))

    def end(self) -> None:
        """Wait for the other warps, if there are any."""
        if self._warps > 1:
            barrier()

    def _lane(self, at: Lane) -> Any:
        """Number of a thread among the lanes of its warp that share its row."""
        return at.lane & number(self._lanes - 1)

    def _number(self, at: Lane) -> Any:
        """Number of a thread's warp among those that share its row."""
        return at.lane // number(self._lanes)

    def _fetch(self, how: str, turn: Any, which: int) -> None:
        """Fetch another lane's state of a turn."""
        for near, value in zip(self._near.buffers, self._own.load([turn]), strict=True):
            call = T.uint32(_ALL_LANES), value, T.int32(which), self._lanes
            ib.buffer_store(near, T.call_extern(str(value.ty.dtype), how, *call), [0])


def begin_sharing(combining: Combining, tile: ScanTile, name: str) -> Sharing | None:
    """How the threads of a row share their states; ``None`` where each has a row of its own."""
    if tile.threads_per_row == 1:
        return None
    return Lanes(combining, tile, name) if tile.lanes > 1 else Tree(combining, tile, name)


def _combine(combining: Combining, target: States, given: State) -> None:
    """Combine a state with another one behind it."""
    target.store(combining.combined(target.load([0]), given), [0])
