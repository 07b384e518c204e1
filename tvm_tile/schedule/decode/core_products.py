"""Products of a decode kernel's worker on plain cores: a thread has one key, then some columns.

::

    score[row] = query[row] @ key[lane]
    for key in own: sums[row, own columns] += weight[row, key] * value[key, own columns]
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.decode.worker import Buffers, registers
from tvm_tile.schedule.tensor_cores.store import when
from tvm_tile.schedule.threads import steps
from tvm_tile.tile.attention.decode_tile import DecodeTile

_FOUR = 4  # float32 numbers that a thread loads at once


class CoreProducts:
    """One thread's part, while its code is written; as :class:`Products` says.

    Args:
        tile: how blocks compute attention.
        memory: shared memory.
        numbers: the worker's in the block, and the thread's in the worker.
    """

    def __init__(self, tile: DecodeTile, memory: Buffers, numbers: tuple[Any, Any]) -> None:
        self._tile, self._memory = tile, memory
        self._number, self._lane = numbers
        keys, values = tile.decode.keys, tile.decode.values
        self._rows, self._vector = tile.decode.rows, values.vector
        self.scores, self._others = registers(self._rows), registers(self._rows)
        self._sums = registers(self._rows * tile.runs * self._vector)
        self._key, self._query = registers(keys.vector, keys.dtype), registers(keys.vector)
        self._value = registers(values.vector, values.dtype)
        self._weights = registers(tile.row_pitch)
        # Threads with the same columns take turns at the keys; threads that are left over do what
        # others do, and store nothing.
        part, column = self._lane // values.vectors, self._lane % values.vectors
        if tile.runs > 1:
            part, column = tirx.const(0), self._lane
        elif values.vectors * tile.parts < tile.lanes:
            part = ib.min(part, tile.parts - 1)
        self._part, self._column = ib.Bind(part), ib.Bind(column)

    def begin(self) -> None:
        """Write what sets the sums to zero."""
        with ib.unroll(int(self._sums.ty.shape[0])) as i:
            ib.buffer_store(self._sums, tirx.const(0.0, "float32"), [i])

    def score(self, stage: Any) -> None:
        """Write the product of the thread's key with each query."""
        keys, rows = self._tile.decode.keys, self._rows
        vector, together = keys.vector, math.gcd(keys.vector, _FOUR)
        row = ib.Bind(stage + self._lane * keys.pitch)
        own, queries = self._key, self._query
        # Two sums a row, one of every other product: half as many additions wait for one another.
        sums = self.scores, self._others
        with ib.unroll(rows) as i:
            for own_sum in sums:
                ib.buffer_store(own_sum, tirx.const(0.0, "float32"), [i])
        with steps(keys.vectors) as step:
            with ib.vectorized(vector) as v:
                ib.buffer_store(own, self._memory.keys[row + step * vector + v], [v])
            with ib.unroll(rows) as i:
                at = i * self._tile.query_pitch + step * vector
                for part in range(0, vector, together):
                    with ib.vectorized(together) as v:
                        ib.buffer_store(queries, self._memory.queries[at + part + v], [part + v])
                for d in range(vector):
                    product = queries[d] * tirx.Cast("float32", own[d])
                    ib.buffer_store(sums[d % 2], sums[d % 2][i] + product, [i])
        with ib.unroll(rows) as i:
            ib.buffer_store(self.scores, self.scores[i] + self._others[i], [i])

    def weigh(self, scale: Any) -> None:
        """Write the hand-over of weights, which stand where scores did; sums are scaled by rows."""
        tile, rows = self._tile, self._rows
        first = ib.Bind((self._number * tile.lanes + self._lane) * tile.row_pitch)
        with ib.unroll(rows) as i:
            ib.buffer_store(self._memory.weights, self.scores[i], [first + i])
        each = tile.runs * self._vector
        with ib.unroll(rows) as i, ib.unroll(each) as j:
            ib.buffer_store(self._sums, self._sums[i * each + j] * scale[i], [i * each + j])

    def add(self, stage: Any) -> None:
        """Write the sums of what the thread's keys weigh of its columns."""
        tile, rows, vector = self._tile, self._rows, self._vector
        values, pitch = tile.decode.values, tile.row_pitch
        together = math.gcd(pitch, _FOUR)
        weights, own = self._weights, self._value
        first = ib.Bind(self._number * tile.lanes * pitch)
        with steps(tile.lanes // tile.parts) as step:
            key = ib.Bind(step * tile.parts + self._part)
            for part in range(0, pitch, together):
                with ib.vectorized(together) as v:
                    weight = self._memory.weights[first + key * pitch + part + v]
                    ib.buffer_store(weights, weight, [part + v])
            for run in range(tile.runs):
                column = self._column_of(run)
                with ib.vectorized(vector) as v:
                    value = self._memory.values[stage + key * values.pitch + column * vector + v]
                    ib.buffer_store(own, value, [v])
                with ib.unroll(rows) as i, ib.unroll(vector) as j:
                    at = (i * tile.runs + run) * vector + j
                    product = weights[i] * tirx.Cast("float32", own[j])
                    ib.buffer_store(self._sums, self._sums[at] + product, [at])

    def _column_of(self, run: int) -> Any:
        """The number of one of the thread's vectors of columns; of those that are none, another."""
        vectors, lanes = self._tile.decode.values.vectors, self._tile.lanes
        column = self._column + run * lanes
        return ib.min(column, vectors - 1) if (run + 1) * lanes > vectors > lanes else column

    def lay_down(self) -> None:
        """Write the stores of the thread's sums to shared memory."""
        tile, rows, columns = self._tile, self._rows, self._tile.decode.values.columns
        vectors = tile.decode.values.vectors
        for run in range(tile.runs):
            fits = [self._lane < vectors * tile.parts] if vectors * tile.parts < tile.lanes else []
            if tile.runs > 1:
                is_whole = (run + 1) * tile.lanes <= vectors
                fits = [] if is_whole else [self._column + run * tile.lanes < vectors]
            with when(fits), ib.unroll(rows) as i, ib.unroll(self._vector) as j:
                at = (self._number * tile.parts + self._part) * rows + i
                column = (self._column + run * tile.lanes) * self._vector + j
                own = self._sums[(i * tile.runs + run) * self._vector + j]
                ib.buffer_store(self._memory.sums, own, [at * columns + column])
