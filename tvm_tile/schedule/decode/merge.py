"""Add up what the workers of a decode kernel have summed, and its blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.graph.expression import Place
from tvm_tile.schedule.attention.weights import Weights
from tvm_tile.schedule.decode.find import DecodeMatch
from tvm_tile.schedule.decode.places import GroupPlaces
from tvm_tile.schedule.decode.worker import Buffers, registers
from tvm_tile.schedule.tensor_cores.store import when
from tvm_tile.schedule.threads import ClusterLetters
from tvm_tile.tile.attention.decode_tile import DecodeTile

_LOG2_E = 1 / math.log(2)


class Merging:
    """One thread's part, while its code is written.

    Args:
        found: the attention that is computed.
        tile: how.
        memory: shared memory that holds all workers' sums, and their marks.
        places: places of the group.
        buffers: name of a parameter -> the buffer that stands for it.
        numbers: number of the block in its cluster, and of the thread in the block.
    """

    def __init__(
        self,
        found: DecodeMatch,
        tile: DecodeTile,
        memory: Buffers,
        places: GroupPlaces,
        buffers: Mapping[str, Any],
        numbers: tuple[Any, Any],
    ) -> None:
        self._found, self._tile, self._memory = found, tile, memory
        self._places, self._buffers = places, buffers
        self._rank, self._thread = numbers
        self._rows = tile.decode.rows
        self._merged = registers(3)
        self._letters = ClusterLetters(*memory.handed) if memory.handed else None

    def begin(self) -> None:
        """Tell the cluster that this block has begun; all threads run this, before :meth:`run`."""
        tile, count = self._tile, self._rows * self._found.column.extent
        if self._letters:
            share: Any = tile.share
            if count % tile.splits:
                left = count - self._rank * tile.share
                share = ib.max(ib.min(left, tile.share), 0)
            self._letters.begin(tile.splits * (share + 2 * self._rows), self._thread)

    def run(self) -> None:
        """Add up the workers' sums, and the blocks'."""
        tile, columns = self._tile, self._found.column.extent
        count = self._rows * columns
        if self._letters:
            self._letters.wait_for_begin()
        with ib.serial(-(-count // tile.block_size)) as turn:
            number = ib.Bind(turn * tile.block_size + self._thread)
            with when([number < count] if count % tile.block_size else []):
                row, column = ib.Bind(number // columns), ib.Bind(number % columns)
                merged = self._merged_workers(row, column)
                if self._letters:
                    self._hand_over(self._letters, number, (row, column), merged)
                else:
                    self._store(row, column, merged)
        if self._letters:
            self._letters.wait()
            self._merge_blocks()

    def _merged_workers(self, row: Any, column: Any) -> Any:
        """The sum, the maximum, and the sum of weights, of all workers of the block: registers."""
        tile, columns = self._tile, self._found.column.extent
        marks, sums = self._memory.marks, self._memory.sums
        parts = []
        for worker in range(tile.workers):
            mark = (worker * self._rows + row) * 2
            at = [
                ((worker * tile.parts + part) * self._rows + row) * columns + column
                for part in range(tile.parts)
            ]
            loads = [sums[own] for own in at]
            total = loads[0]
            for other in loads[1:]:
                total = total + other
            parts.append((total, marks[mark], marks[mark + 1]))
        return _merged(self._merged, parts)

    def _hand_over(
        self, letters: ClusterLetters, number: Any, place: tuple[Any, Any], merged: Any
    ) -> None:
        """Put a sum of the block where the block finds it whose share it is, and its row's maximum
        and sum of weights where all find it."""
        tile, (row, column) = self._tile, place
        at = self._rank * tile.share + number % tile.share
        letters.send(number // tile.share, at, merged[0])
        with when([column < tile.splits]):
            for mark, value in zip(self._marks(self._rank, row), (1, 2), strict=True):
                letters.send(column, mark, merged[value])

    def _marks(self, block: Any, row: Any) -> tuple[Any, Any]:
        """Where a block's maximum and sum of weights of a row are in what it hands over."""
        tile = self._tile
        place = tile.splits * tile.share + (block * self._rows + row) * 2
        return place, place + 1

    def _merge_blocks(self) -> None:
        """Store this block's share of the sums of its cluster."""
        tile, columns = self._tile, self._found.column.extent
        count, share, own = self._rows * columns, tile.share, self._memory.handed[1]
        with ib.serial(-(-share // tile.block_size)) as turn:
            place = ib.Bind(turn * tile.block_size + self._thread)
            number = ib.Bind(self._rank * share + place)
            fits = [place < share] if share % tile.block_size else []
            fits += [number < count] if count % tile.splits else []
            with when(fits):
                row, column = ib.Bind(number // columns), ib.Bind(number % columns)
                parts = [
                    (own[block * share + place], *(own[at] for at in self._marks(block, row)))
                    for block in range(tile.splits)
                ]
                self._store(row, column, _merged(self._merged, parts))

    def _store(self, row: Any, column: Any, merged: Any) -> None:
        """Store what the epilogue makes of a sum, divided by the sum of its weights."""
        found, total = self._found, merged[2]
        scale = tirx.const(1.0, "float32") / total
        if found.weights.is_safe:
            scale = tirx.Select(total > 0, scale, tirx.const(0.0, "float32"))
        result = ib.Bind(merged[0] * scale)
        place = self._places.at(row, column=column)
        value, indices = found.epilogue.at(place, result, self._buffers)
        output = self._buffers[str(found.epilogue.buffer.name)]
        ib.buffer_store(output, value, indices)


def begin_row(
    weights: Weights, place: Place, buffers: Mapping[str, Any], is_first: Any
) -> tuple[Any, Any]:
    """The maximum and the sum of weights that a thread begins a row with, which sees no key yet.

    A sink is below all threads' maxima; its weight is in the sum of the one that ``is_first``.
    """
    lowest, nothing = (tirx.const(number, "float32") for number in (weights.lowest, 0.0))
    if weights.sink is None:
        return lowest, nothing
    sink = ib.Bind(weights.sink.at(place, (), buffers))
    most = ib.Bind(ib.max(lowest, sink))
    return most, tirx.Select(is_first, power(sink - most), nothing)


def power(exponent: Any) -> Any:
    """``e ** exponent``."""
    return T.exp2(exponent * tirx.const(_LOG2_E, "float32"))


def _merged(merged: Any, parts: list[tuple[Any, Any, Any]]) -> Any:
    """Registers of the sum, the maximum, and the sum of weights of several such, of which
    each was weighed by its own maximum."""
    values = [[ib.Bind(value) for value in part] for part in parts]
    most = values[0][1]
    for _, other, _ in values[1:]:
        most = ib.max(most, other)
    ib.buffer_store(merged, most, [1])
    for number, (total, own, weight) in enumerate(values):
        scale = ib.Bind(power(own - merged[1]))
        for place, value in ((0, total), (2, weight)):
            before = tirx.const(0.0, "float32") if number == 0 else merged[place]
            ib.buffer_store(merged, before + value * scale, [place])
    return merged
