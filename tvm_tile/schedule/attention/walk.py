"""The tiles of keys that a block walks through for an item's rows.

They are those with an element in the mask's band for any of the rows. Where numbers in memory, the
rows' positions, say what rows see, the block's threads look for it before they walk: for each of
the block's items some of them, the seekers, have some rows each::

    seen[item, seeker] = least first key, largest last key of its rows    a thread a seeker
    ends[item] = the same of all seekers of the item                      a thread an item

Positions may stand in any order: the least and the largest of them are looked for.

Why all threads of a block walk as far, whatever the positions are: none looks at them for itself.
What an item's rows see is in shared memory when all threads have met for the second time, nothing
writes there behind that, and whoever asks, a producer of copies, say, reads the same numbers. Each
place is written by one thread, and what it is made of is there when all have met for the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as ib

from tvm_tile.graph.expression import Place
from tvm_tile.schedule.attention.find import AttentionMatch
from tvm_tile.schedule.tensor_cores.store import when
from tvm_tile.tile.attention.rounds import WalkingTile


class KeyWalk:
    """The tiles of keys of each of a block's items.

    Args:
        found: the two products, and what rows see.
        tile: how blocks walk.
        thread: the thread's number in the block.
        buffers: name of a parameter -> the buffer that stands for it.
        origin: function that gives the place of the first row of the item of a turn.
        meet: function that has all threads of the block wait for one another.
    """

    def __init__(
        self,
        found: AttentionMatch,
        tile: WalkingTile,
        thread: Any,
        buffers: Mapping[str, Any],
        origin: Callable[[Any], Place],
        meet: Callable[[], None],
    ) -> None:
        self._found, self._tile, self._buffers = found, tile, buffers
        (self._rows,) = found.chain.first.left.free
        if found.reach is None:
            return
        turns = tile.rounds.most_turns
        count = turns * tile.seekers
        self._seen, self._ends = (
            ib.alloc_buffer((2 * own,), "int32", scope="shared") for own in (count, turns)
        )
        self._best = ib.alloc_buffer((2,), "int32", scope="local")
        self._share_out(thread, count, lambda number: self._look(number, origin))
        meet()
        self._share_out(thread, turns, self._combine)
        meet()

    def tiles(self, origin: Place, turn: Any) -> tuple[Any, Any]:
        """The first tile of keys for an item's rows, and how many from there on, one at least.

        Args:
            origin: the place of the item's first row.
            turn: the turn in which the block takes it.
        """
        tile, reach = self._tile, self._found.reach
        size = tile.rows, self._found.key_count, tile.keys
        first, end = self._found.chain.band.tiles(origin[self._rows.name], *size, ib.min, ib.max)
        if reach is not None:
            if reach.last is not None:
                end = ib.min(end, ib.max(self._ends[turn * 2 + 1], 0) // tile.keys + 1)
            if reach.first is not None:
                first = ib.max(first, self._ends[turn * 2] // tile.keys)
            first = ib.min(first, end - 1)
        return bound(first), bound(end - first)

    def _share_out(self, thread: Any, count: int, body: Callable[[Any], None]) -> None:
        """Share out numbers among the block's threads."""
        size = self._tile.block_size
        if count <= size:
            with when([thread < count] if count < size else []):
                body(thread)
            return
        with ib.serial(-(-count // size)) as trip:
            number = ib.Bind(trip * size + thread)
            with when([number < count] if count % size else []):
                body(number)

    def _look(self, number: Any, origin: Callable[[Any], Place]) -> None:
        """Look for the keys that a seeker's rows see."""
        tile, rows = self._tile, self._rows
        place, seeker = origin(ib.Bind(number // tile.seekers)), number % tile.seekers
        self._begin()
        with ib.serial(-(-tile.rows // tile.seekers)) as step:
            # In place of rows that there are not, others count once more.
            own = ib.min(step * tile.seekers + seeker, tile.rows - 1)
            own = ib.Bind(ib.min(place[rows.name] + own, rows.extent - 1))
            self._widen(*self._found.sees({**place, rows.name: own}, self._buffers))
        self._tell(self._seen, number)

    def _combine(self, turn: Any) -> None:
        """Combine what an item's seekers have found."""
        seekers = self._tile.seekers
        self._begin()
        with ib.serial(seekers) as seeker:
            own = (turn * seekers + seeker) * 2
            self._widen(self._seen[own], self._seen[own + 1])
        self._tell(self._ends, turn)

    def _begin(self) -> None:
        """Begin with no keys."""
        for place, value in enumerate((self._found.chain.keys.extent, -1)):
            ib.buffer_store(self._best, tirx.const(value, "int32"), [place])

    def _widen(self, first: Any, last: Any) -> None:
        """Take in the keys from a first to a last one."""
        ib.buffer_store(self._best, ib.min(self._best[0], first), [0])
        ib.buffer_store(self._best, ib.max(self._best[1], last), [1])

    def _tell(self, into: Any, number: Any) -> None:
        """Write what was found to shared memory."""
        for place in range(2):
            ib.buffer_store(into, self._best[place], [number * 2 + place])


def bound(value: Any) -> Any:
    """The variable that an expression is bound to; a number as it is."""
    return value if isinstance(value, int) else ib.Bind(value)
