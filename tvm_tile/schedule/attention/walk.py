"""The tiles of keys that a block walks through for an item's rows.

They are those with an element in the mask's band for any of the rows, or those that a table lists
(``tile/attention/key_tiles.py``), which nothing writes while the kernel runs. Where numbers in
memory, the rows' positions, say what rows see, the block's threads look for it before they walk:
for each of the block's items some of them, the seekers, have some rows each::

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
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as ib

from tvm_tile.graph.expression import Place
from tvm_tile.schedule.attention.find import AttentionMatch
from tvm_tile.schedule.tensor_cores.store import when
from tvm_tile.tile.attention.key_tiles import HEAD
from tvm_tile.tile.attention.rounds import WalkingTile


@dataclass(frozen=True, slots=True)
class Steps:
    """The tiles of keys of an item, one after the other.

    Attributes:
        count: how many there are, one at least.
        at: function of a step, that gives the first key of its tile, and whether all rows see all
            keys there: ``None`` where that is not known, but for what rows' places tell.
    """

    count: Any
    at: Callable[[Any], tuple[Any, Any]]


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
        self._found, self._tile = found, tile
        (rows,) = found.chain.first.left.free
        self._row, turns = rows.name, tile.rounds.most_turns
        self._table = buffers[found.table] if found.table else None
        if found.reach is None:
            return
        count = turns * tile.seekers
        self._seen, self._ends = (
            ib.alloc_buffer((2 * own,), "int32", scope="shared") for own in (count, turns)
        )
        self._best = ib.alloc_buffer((2,), "int32", scope="local")

        def of_row(place: Place, step: Any) -> tuple[Any, Any]:
            """The keys of a seeker's row: of another one where there are not as many."""
            own = ib.min(step * tile.seekers + thread % tile.seekers, tile.rows - 1)
            own = ib.Bind(ib.min(place[rows.name] + own, rows.extent - 1))
            return found.sees({**place, rows.name: own}, buffers)

        with when([thread < count]):
            place = origin(ib.Bind(thread // tile.seekers))
            self._gather(self._seen, thread, -(-tile.rows // tile.seekers), partial(of_row, place))
        meet()
        with when([thread < turns]):
            self._gather(self._ends, thread, tile.seekers, partial(self._of_seeker, thread))
        meet()

    def rows(self, place: Any) -> Any:
        """The tile of rows that has a place among those of a batch, as they are taken."""
        return place if self._table is None else ib.Bind(self._table[place, 0])

    def steps(self, origin: Place, turn: Any, place: Any) -> Steps:
        """The tiles of keys of an item.

        Args:
            origin: the place of the item's first row.
            turn: the turn in which the block takes it.
            place: place of its tile of rows, as of :meth:`rows`.
        """
        keys, table = self._tile.keys, self._table
        if table is None:
            first, count = self.tiles(origin, turn)
            return Steps(count, lambda step: ((step + first) * keys, None))

        listed = self._found.chain.listed
        assert listed is not None

        def at(step: Any) -> tuple[Any, Any]:
            entry = ib.Bind(table[place, step + HEAD])
            is_whole = tirx.bitwise_and(entry, 1) == 1 if listed.parts else True
            return ib.Bind(tirx.shift_right(entry, 1) * keys), is_whole

        return Steps(ib.Bind(table[place, 1]), at)

    def tiles(self, origin: Place, turn: Any) -> tuple[Any, Any]:
        """The first tile of keys for an item's rows, and how many from there on, one at least.

        Args:
            origin: the place of the item's first row.
            turn: the turn in which the block takes it.
        """
        tile = self._tile
        size = tile.rows, self._found.key_count, tile.keys
        first, end = self._found.chain.band.tiles(origin[self._row], *size, ib.min, ib.max)
        if self._found.reach is not None:
            end = ib.min(end, ib.max(self._ends[turn * 2 + 1], 0) // tile.keys + 1)
            first = ib.min(ib.max(first, self._ends[turn * 2] // tile.keys), end - 1)
        return bound(first), bound(end - first)

    def _of_seeker(self, turn: Any, seeker: Any) -> tuple[Any, Any]:
        """The keys of all rows of a seeker of a turn's item."""
        place = (turn * self._tile.seekers + seeker) * 2
        return self._seen[place], self._seen[place + 1]

    def _gather(
        self, into: Any, number: Any, count: int, ends: Callable[[Any], tuple[Any, Any]]
    ) -> None:
        """Write the least first and the largest last key of so many to shared memory."""
        for place, value in enumerate((self._found.chain.keys.extent, -1)):
            ib.buffer_store(self._best, tirx.const(value, "int32"), [place])
        with ib.serial(count) as step:
            first, last = ends(step)
            ib.buffer_store(self._best, ib.min(self._best[0], first), [0])
            ib.buffer_store(self._best, ib.max(self._best[1], last), [1])
        for place in range(2):
            ib.buffer_store(into, self._best[place], [number * 2 + place])


def bound(value: Any) -> Any:
    """The variable that an expression is bound to; a number as it is."""
    return value if isinstance(value, int) else ib.Bind(value)
