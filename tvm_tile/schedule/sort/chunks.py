"""Chunks of rows, each sorted by the threads of a block in their registers.

::

    for row in blocks and threadIdx.y, chunk in blocks:
        for e: own[e] = key and place of x[row, chunk, e]
        for turn, for bit in turn, ..., 1, 0:          sort runs, as many long as are wanted
            for e: other = own[e ^ bit], that of the lane ^ bit, or of the warp ^ bit
                   own[e] = the first or the last of own[e] and other
        for bit of a run's number:                     halve the runs
            for e: own[e] = the first of own[e] and other
            for bit in ..., 1, 0: as above
        for e: y[row, e] = x[row, place in own[e]]

What is compared with what is :mod:`tvm_tile.tile.rows.network`'s to say. Elements of another lane
come by shuffles, which all threads of a block take part in: there are no branches around them.
Those of another warp come through shared memory, with a barrier between the writes and the reads,
and one between the reads and the next step's writes; each thread writes at places of its own. Loops
are of one extent for all threads, so that all come to each barrier.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.loops.rows import number
from tvm_tile.loops.sorting import Ordering, Sorted, State
from tvm_tile.schedule.scan.states import Lane, States, barrier, lanes, when
from tvm_tile.tile.rows.network import SortTurn
from tvm_tile.tile.rows.sort import SortTile

_ALL_LANES = 0xFFFFFFFF
Side = Callable[[int], Any]
"""Of a thread's register, whether its run falls: 1, or 0."""


class ChunkKernel:
    """Writes the kernel; ``runs`` is where sorted chunks go that are still to be merged."""

    def __init__(
        self, tile: SortTile, ordering: Ordering, tensors: Sorted, runs: States | None, warp: int
    ) -> None:
        self.tile, self.ordering, self.tensors, self.runs = tile, ordering, tensors, runs
        self.kept = min(tile.chunk, ordering.sort.kept)
        self.network, self.warp = tile.network, warp
        self.own = States.allocated("own", (tile.elements,), ordering.dtypes, "local")
        self.other = States.allocated("other", (1,), ordering.dtypes, "local")
        shape = (tile.rows_per_block, tile.exchanged)
        if tile.exchanged:
            self.shared = States.allocated("chunk", shape, ordering.dtypes, "shared")

    def write(self) -> None:
        """Write blocks and threads, and what they do."""
        with lanes(self.tile) as at:
            self._load(at)
            self._sort(at)
            self._halve(at)
            self._store(at)

    def _position(self, at: Lane, element: int) -> Any:
        """Position in the chunk of a thread's element."""
        network = self.network
        low, high = element & ((1 << network.low) - 1), element >> network.low
        own = number((high << network.low + network.lanes) + low)
        return (
            own + (self._lane(at.lane) << number(network.low)) + self._warp(at.lane, network.near)
        )

    def _lane(self, thread: Any) -> Any:
        """Number of a thread's lane."""
        return thread & number((1 << self.network.lanes) - 1)

    def _warp(self, thread: Any, bits: int) -> Any:
        """Number of a thread's warp, with so many zeros behind."""
        return (thread >> number(self.network.lanes)) << number(bits)

    def _load(self, at: Lane) -> None:
        """Bring the elements of a chunk to registers, as keys of the order.

        Neighbouring lanes load neighbours, wherever in the order these begin. What is behind the
        end is loaded from the last place there is: no load waits for a test.
        """
        tile, rows, lanes = self.tile, self.ordering.sort.rows, self.network.lanes
        row = tirx.min(at.row, number(rows.count - 1)) if at.is_row else at.row
        is_whole = rows.length == tile.chunk * tile.parts
        first = at.part * number(tile.chunk) + self._warp(at.lane, self.network.near)
        first = ib.Bind(first + self._lane(at.lane))
        for e in range(tile.elements):
            place = ib.Bind(first + number(e << lanes))
            inside = place if is_whole else tirx.min(place, number(rows.length - 1))
            state = self.ordering.of(self.tensors.load(row, inside), place)
            if not is_whole:
                behind = self.ordering.behind_all(place)
                state = _chosen(place < number(rows.length), state, behind)
            _put(self.own, state, e)

    def _sort(self, at: Lane) -> None:
        """Sort runs, of which some fall, so that each two may be halved."""
        network, turns = self.network, self.network.sorting
        # Turns whose first step and whose runs' sides are lanes' are a loop, and so are warps'.
        begin = min(network.run, network.low)
        end = max(begin, min(network.run, network.low + network.lanes) - 1)
        for own in turns[:begin]:
            self._steps(at, own, self._side(at, own.side))
        if end > begin:
            with ib.serial(number(end - begin)) as turn:
                side = ib.Bind(_bit(at.lane, turn + number(1)))
                self._lane_steps(at, turn + number(1), lambda _: side, turns[0].live)
                self._register_steps(range(begin), lambda _: side, turns[0].live)
        for own in turns[end : network.near]:
            self._steps(at, own, self._side(at, own.side))
        if network.run > network.near:
            with ib.serial(number(network.run - network.near)) as more:
                side = ib.Bind(_bit(at.lane, more + number(network.lanes + 1)))
                self._warp_steps(at, more + number(1), lambda _: side, turns[0].live)
                self._near_steps(at, turns[-1], lambda _: side)

    def _halve(self, at: Lane) -> None:
        """Halve the number of runs until one is left."""
        network, turns = self.network, self.network.halving
        far = [(bit, turn) for bit, turn in turns if bit >= network.near]
        for halved, turn in turns[: len(turns) - len(far)]:
            is_register, place = network.place(halved)
            for e in turn.live:
                if is_register:
                    _put(self.other, self.own.load([e | 1 << place]), 0)
                else:
                    self._from_lane(e, number(1 << place))
                self._keep_first(e)
            self._steps(at, turn, self._side(at, turn.side))
        if not far:
            return
        first, turn = far[0]
        with ib.serial(number(len(far))) as more:
            bit = ib.Bind(more + number(network.place(first)[1]))
            side = ib.Bind(_bit(at.lane, bit + number(1)))
            self._exchange(at, bit, turn.live, self._keep_first)
            self._steps(at, turn, lambda _: side)

    def _side(self, at: Lane, bit: int | None) -> Side:
        """Whether the runs that a bit of the position tells apart fall."""
        if bit is None:
            return lambda _: number(0)
        is_register, place = self.network.place(bit)
        if is_register:
            return lambda e: number(e >> place & 1)
        found = ib.Bind(_bit(at.lane, number(place)))
        return lambda _: found

    def _steps(self, at: Lane, turn: SortTurn, side: Side) -> None:
        """The steps of one turn, from its first one."""
        warps, _, _ = self.network.steps(turn.first)
        if warps:
            self._warp_steps(at, number(warps), side, turn.live)
        self._near_steps(at, turn, side)

    def _near_steps(self, at: Lane, turn: SortTurn, side: Side) -> None:
        """Write those steps of a turn that need no shared memory."""
        network = self.network
        _, lanes, _ = network.steps(turn.first)
        highest = min(turn.first + 1, network.near)
        self._register_steps(range(network.low + network.lanes, highest), side, turn.live)
        if lanes:
            self._lane_steps(at, number(lanes), side, turn.live)
        self._register_steps(range(min(turn.first + 1, network.low)), side, turn.live)

    def _register_steps(self, bits: range, side: Side, live: tuple[int, ...]) -> None:
        """Steps between a thread's registers, for bits of the position, the highest first."""
        for bit in reversed(bits):
            _, place = self.network.place(bit)
            for e in live:
                other = e | 1 << place
                if other != e:
                    self._in_order(e, other, side(e))

    def _in_order(self, low: int, high: int, side: Any) -> None:
        """Put two of a thread's elements in order, or the other way round where ``side`` is 1."""
        first, last = self.own.load([low]), self.own.load([high])
        swaps = ib.Bind(self._is_after(first, last, side))
        _put(self.other, first, 0)
        _put(self.own, _chosen(swaps, last, first), low)
        _put(self.own, _chosen(swaps, self.other.load([0]), last), high)

    def _is_after(self, a: State, b: State, side: Any) -> Any:
        """Whether ``b`` comes before ``a``, or behind it where ``side`` is 1."""
        if isinstance(side, tirx.IntImm):
            return self.ordering.is_before(*((a, b) if int(side) else (b, a)))
        return self.ordering.is_before(b, a) == (side == number(0))

    def _lane_steps(self, at: Lane, count: Any, side: Side, live: tuple[int, ...]) -> None:
        """Steps between lanes, for so many bits below and the lowest one."""
        with ib.serial(count) as step:
            bit = ib.Bind(count - number(1) - step)
            distance = ib.Bind(number(1) << bit)
            own = ib.Bind(_bit(at.lane, bit))
            for e in live:
                self._from_lane(e, distance)
                self._keep_one(e, own == side(e))

    def _warp_steps(self, at: Lane, count: Any, side: Side, live: tuple[int, ...]) -> None:
        """Steps between warps, for so many bits down to the lowest one that tells warps apart."""
        with ib.serial(count) as step:
            bit = ib.Bind(count + number(self.network.lanes - 1) - step)
            own = ib.Bind(_bit(at.lane, bit))
            self._exchange(at, bit, live, lambda e: self._keep_one(e, own == side(e)))

    def _exchange(
        self, at: Lane, bit: Any, live: tuple[int, ...], take: Callable[[int], None]
    ) -> None:
        """Show each thread the elements of the one whose number differs in this bit."""
        for place, e in enumerate(live):
            self.shared.store(self.own.load([e]), self._slot(at, at.lane, place, len(live)))
        barrier()
        beside = ib.Bind(at.lane ^ (number(1) << bit))
        for place, e in enumerate(live):
            _put(self.other, self.shared.load(self._slot(at, beside, place, len(live))), 0)
            take(e)
        barrier()

    def _slot(self, at: Lane, thread: Any, place: int, count: int) -> list[Any]:
        """Where in shared memory a thread's element is: those of a warp's lanes are neighbours."""
        lanes = self.network.lanes
        first = (thread >> number(lanes)) * number(count << lanes)
        return [at.lane_row, first + self._lane(thread) + number(place << lanes)]

    def _from_lane(self, element: int, distance: Any) -> None:
        """Fetch an element of the lane so far away."""
        given = tirx.Cast("int32", distance), self.warp
        for buffer, value in zip(self.other.buffers, self.own.load([element]), strict=True):
            call = T.uint32(_ALL_LANES), value, *given
            found = T.call_extern(str(value.ty.dtype), "__shfl_xor_sync", *call)
            ib.buffer_store(buffer, found, [0])

    def _keep_first(self, element: int) -> None:
        """Keep the first one of a thread's element and the one that was fetched."""
        own, other = self.own.load([element]), self.other.load([0])
        taken = ib.Bind(self.ordering.is_before(other, own))
        _put(self.own, _chosen(taken, other, own), element)

    def _keep_one(self, element: int, keeps_first: Any) -> None:
        """Keep the first one of a thread's element and the one that was fetched, or the last."""
        own, other = self.own.load([element]), self.other.load([0])
        taken = ib.Bind(self.ordering.is_before(other, own) == keeps_first)
        _put(self.own, _chosen(taken, other, own), element)

    def _store(self, at: Lane) -> None:
        """Store the sorted chunk: the result, or a run for the next merge."""
        for e in self.network.left:
            rank = ib.Bind(self._position(at, e))
            inside = [] if self.kept == self.tile.chunk else [rank < number(self.kept)]
            with when([*at.is_row, *inside]):
                state = self.own.load([e])
                if self.runs is None:
                    self.tensors.store(at.row, rank, self.ordering.place_in(state))
                else:
                    self.runs.store(state, [at.row, at.part * number(self.kept) + rank])


def _put(states: States, state: State, at: int) -> None:
    """Store a state none of whose numbers is made of what is overwritten by those before it.

    Names for them would cost TVM minutes, which asks of each integer that has one how large it is.
    """
    for buffer, value in zip(states.buffers, state, strict=True):
        ib.buffer_store(buffer, value, [at])


def _bit(number_of: Any, place: Any) -> Any:
    """A bit of a number: 1, or 0."""
    return (number_of >> place) & number(1)


def _chosen(test: Any, a: State, b: State) -> State:
    """One state where a test holds, else another one."""
    return tuple(tirx.Select(test, x, y) for x, y in zip(a, b, strict=True))
