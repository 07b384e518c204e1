"""Rows that a decode kernel appends to keys or values, made in shared memory, before it reads them.

A row is in one tile of its group's keys, which is one worker's. All that a thread copies of the
row, whether old or new, it overwrites in its stage with the new one; no other thread has read it
there. To global memory the threads of that worker store the row when they have read all tiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.decode.appended import NEW, Appended
from tvm_tile.schedule.decode.copies import RowCopies
from tvm_tile.schedule.decode.find import Cache
from tvm_tile.schedule.decode.places import GroupPlaces
from tvm_tile.schedule.decode.worker import Workers, registers
from tvm_tile.schedule.made_rows import dimension
from tvm_tile.schedule.tensor_cores.store import when
from tvm_tile.tile.attention.decode_tile import DecodeTile


@dataclass(frozen=True, slots=True)
class Appending:
    """The code by which a worker's thread appends rows to the keys, or the values, of its group.

    Attributes:
        appended: the rows.
        copies: copies of the tensor's rows to the worker's stages.
        made: shared memory of the new rows, one behind the other.
        places: registers, the key that each row becomes; -1 for those that are not written.
        dimensions: values of the axes that are the tensor's dimensions.
        buffers: name of a parameter -> the buffer that stands for it.
    """

    appended: Appended
    copies: RowCopies
    made: Any
    places: Any
    dimensions: Mapping[str, Any]
    buffers: Mapping[str, Any]

    @classmethod
    def begin(
        cls,
        cache: Cache,
        copies: RowCopies,
        made: Any,
        places: GroupPlaces,
        buffers: Mapping[str, Any],
    ) -> Appending:
        """Load the places of the rows that are appended to a tensor."""
        appended = cache.appended
        assert appended is not None, "there is memory for them"
        first = places.at(tirx.const(0))
        dimensions = {
            dimension(number): ib.Bind(index.at(first, (), buffers))
            for number, index in enumerate(cache.index)
        }
        own = registers(appended.count, "int32")
        found = cls(appended, copies, made, own, dimensions, buffers)
        with ib.unroll(appended.count) as number:
            ib.buffer_store(own, found._place(number), [number])
        return found

    def _place(self, number: Any) -> Any:
        """The key that a row becomes; -1 if it is not written."""
        at = {NEW: number}
        place = tirx.Cast("int32", self.appended.place.at(at, (), self.buffers))
        is_written = self.appended.is_written.at(at, (), self.buffers)
        return tirx.Select(is_written, place, tirx.const(-1))

    def make(self, threads: Workers, tile: DecodeTile, worker: Any, rank: Any, after: int) -> None:
        """Make the rows in shared memory, each by a worker of the block that reads its tile.

        Args:
            threads: the threads.
            tile: the tile.
            worker: number of the worker.
            rank: number of the block in its cluster.
            after: number of rows that workers make otherwise.
        """
        width = self.copies.rows.columns
        with ib.serial(self.appended.count) as number:
            first = number * width
            mine = [(number + after) % tile.workers == worker] if tile.workers > 1 else []
            if tile.splits > 1:
                mine.append(self._place(number) // tile.lanes % tile.splits == rank)

            def store(at: Any, value: Any, first: Any = first) -> None:
                ib.buffer_store(self.made, value, [first + at])

            with when(mine):
                self.appended.row.write(
                    threads,
                    (tile.lanes, self.copies.lane),
                    {**self.dimensions, NEW: number},
                    (dimension(len(self.dimensions) - 1), width),
                    self.buffers,
                    store,
                )

    def patch(self, into: Any, key: Any) -> None:
        """Put the new rows of a tile over what this thread has copied to its stage.

        Args:
            into: the stage's first element.
            key: the tile's first key.
        """
        copies, rows = self.copies, self.copies.rows
        for number in range(self.appended.count):
            row = ib.Bind(self.places[number] - key)
            with when([row >= 0, row < copies.lanes]), ib.unroll(rows.vectors) as turn:
                vector = ib.Bind(turn * copies.lanes + copies.lane)
                with when([vector // rows.vectors == row]), ib.vectorized(rows.vector) as v:
                    column = vector % rows.vectors * rows.vector + v
                    value = self.made[number * rows.columns + column]
                    ib.buffer_store(copies.stages, value, [into + row * rows.pitch + column])

    def store(self, tile: DecodeTile, worker: Any, rank: Any) -> None:
        """Store the rows whose tiles are the worker's, in order, to global memory."""
        copies, rows = self.copies, self.copies.rows
        for number in range(self.appended.count):
            place = ib.Bind(self.places[number])
            own = place // tile.lanes
            mine = [place >= 0]
            if tile.splits > 1:
                mine.append(own % tile.splits == rank)
            if tile.workers > 1:
                mine.append(own // tile.splits % tile.workers == worker)
            with when(mine), ib.unroll(-(-rows.vectors // copies.lanes)) as turn:
                vector = ib.Bind(turn * copies.lanes + copies.lane)
                fits = [vector < rows.vectors] if rows.vectors % copies.lanes else []
                with when(fits), ib.vectorized(rows.vector) as v:
                    column = vector * rows.vector + v
                    at = copies.first + place * copies.stride + column
                    ib.buffer_store(copies.source, self.made[number * rows.columns + column], [at])
