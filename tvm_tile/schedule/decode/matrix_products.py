"""Products of a decode kernel's warp on its tensor core: keys by queries, columns by weights.

Instructions multiply 16 rows of their left operand by eight columns of the right one. Rows of
attention are few, so they are the columns, and what there is much of is on the left::

    scores[key, row]  += keys[key, depth] @ queries[row, depth]
    sums[column, row] += values[key, column] @ weights[row, key]

Columns of rows that there are not repeat the last row's, and are left out where results are stored.
Scores leave registers for shared memory, where each thread finds those of its key, and weights
return by rows, rounded to the type of the values.

Why this is free of races: a worker's scores and weights are its own. Scores are written behind a
``sync`` of the step before, behind which nobody reads them, and read behind one of their own;
weights are written behind that one and read behind the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.decode.worker import Buffers, registers
from tvm_tile.schedule.tensor_cores.instructions import load_matrices, multiply_add
from tvm_tile.schedule.tensor_cores.store import when
from tvm_tile.tile.attention.decode_tile import FRAGMENT, OCTET, DecodeTile

_REGISTERS = 4  # of a fragment, and of a product's sums
_HALVES = FRAGMENT // OCTET
_CHAINS = 2  # of products that wait for one another
_FOUR = 4  # float32 numbers that a thread loads at once


class MatrixProducts:
    """One thread's part, while its code is written; as :class:`Products` says.

    Args:
        tile: how blocks compute attention.
        memory: shared memory.
        numbers: the worker's in the block, and the thread's in the worker.
        sync: writes a wait for the worker's other threads.
    """

    def __init__(
        self,
        tile: DecodeTile,
        memory: Buffers,
        numbers: tuple[Any, Any],
        sync: Callable[[], None],
    ) -> None:
        self._tile, self._memory, self._sync = tile, memory, sync
        self._number, lane = numbers
        self._rows, self._octets = tile.decode.rows, tile.octets
        self._tall, self._wide = tile.lanes // FRAGMENT, tile.decode.values.columns // FRAGMENT
        self.scores, self._lane = registers(self._rows), lane
        self._products = registers(_CHAINS * self._tall * self._octets * _REGISTERS)
        self._sums = registers(self._wide * self._octets * _REGISTERS)
        left = registers(_REGISTERS, "uint32")
        self._left = [left[i] for i in range(_REGISTERS)]
        self._right = registers(self._octets * _REGISTERS, "uint32")
        # Sums of a thread are of two rows of the left operand, and of two columns.
        self._group, self._pair = ib.Bind(lane // 4), ib.Bind(lane % 4 * 2)
        # Of a fragment each thread points out the first elements of a line of eight.
        self._line, self._inner = ib.Bind(lane % OCTET), ib.Bind(lane // OCTET % 2)
        self._outer, self._fourth = ib.Bind(lane // FRAGMENT), ib.Bind(lane // OCTET)

    def begin(self) -> None:
        """Write what sets the sums to zero."""
        _set_to_zero(self._sums)

    def score(self, stage: Any) -> None:
        """Write the scores of a tile's keys; the thread has those of its own key in registers."""
        keys, depth = self._tile.decode.keys, self._tile.decode.keys.columns // FRAGMENT
        _set_to_zero(self._products)
        row = self._line + self._inner * OCTET
        first = ib.Bind(stage + row * keys.pitch + self._outer * OCTET)
        for step in range(depth):
            if step % 2 == 0:
                last = self._tile.decode.keys.columns - OCTET
                along = ib.min(step * FRAGMENT + self._fourth * OCTET, last)
                self._load_rows(self._memory.queries, along, self._tile.query_pitch)
            for tall in range(self._tall):
                at = first + tall * FRAGMENT * keys.pitch + step * FRAGMENT
                self._load(self._left, self._memory.keys, at)
                chain = step % _CHAINS * self._tall + tall
                self._multiply(keys.dtype, self._products, chain, step)
        self._hand_out()

    def _hand_out(self) -> None:
        """Put the products where the threads of their keys find them, and take this thread's."""
        pitch, memory, each = self._tile.row_pitch, self._memory.scores, self._octets * _REGISTERS
        own = self._number * self._tile.lanes
        for tall in range(self._tall):
            for octet, place in self._places():
                half, number = divmod(place, 2)
                key = own + tall * FRAGMENT + half * OCTET + self._group
                at = tall * each + octet * _REGISTERS + place
                total = self._products[at] + self._products[self._tall * each + at]
                with self._when_row(octet, number) as row:
                    ib.buffer_store(memory, total, [key * pitch + row])
        self._sync()
        first, together = ib.Bind((own + self._lane) * pitch), math.gcd(self._rows, _FOUR)
        for part in range(0, self._rows, together):
            with ib.vectorized(together) as v:
                ib.buffer_store(self.scores, memory[first + part + v], [part + v])

    def weigh(self, scale: Any) -> None:
        """Write the hand-over of weights, which stand where scores did; sums are scaled by rows."""
        pitch, dtype = self._tile.weight_pitch, self._tile.decode.values.dtype
        first = ib.Bind(self._number * self._rows * pitch + self._lane)
        with ib.unroll(self._rows) as i:
            weight = tirx.Cast(dtype, self.scores[i])
            ib.buffer_store(self._memory.weights, weight, [first + i * pitch])
        if self._tile.turns == 1:
            return  # there are no sums yet
        for octet in range(self._octets):
            for number in range(2):
                own = ib.Bind(self._of_row(scale, octet, number))
                for wide in range(self._wide):
                    for half in range(_HALVES):
                        at = (wide * self._octets + octet) * _REGISTERS + half * 2 + number
                        ib.buffer_store(self._sums, self._sums[at] * own, [at])

    def add(self, stage: Any) -> None:
        """Write the sums of what a tile's keys weigh of the columns."""
        values, pitch = self._tile.decode.values, self._tile.weight_pitch
        start = self._number * self._rows * pitch + self._fourth * OCTET
        self._load_rows(self._memory.weights, start, pitch)
        key = self._line + self._outer * OCTET
        first = ib.Bind(stage + key * values.pitch + self._inner * OCTET)
        for step in range(self._tall):
            for wide in range(self._wide):
                at = first + step * FRAGMENT * values.pitch + wide * FRAGMENT
                self._load(self._left, self._memory.values, at, turned=True)
                self._multiply(values.dtype, self._sums, wide, step)

    def lay_down(self) -> None:
        """Write the stores of the thread's sums to shared memory."""
        columns, rows = self._tile.decode.values.columns, self._rows
        for wide in range(self._wide):
            for octet, place in self._places():
                half, number = divmod(place, 2)
                column = wide * FRAGMENT + half * OCTET + self._group
                own = self._sums[(wide * self._octets + octet) * _REGISTERS + place]
                with self._when_row(octet, number) as row:
                    at = (self._number * rows + row) * columns + column
                    ib.buffer_store(self._memory.sums, own, [at])

    # -- instructions -------------------------------------------------------------------------

    def _load(self, into: Any, memory: Any, at: Any, *, turned: bool = False) -> None:
        """Load a fragment into four registers, of whose lines each thread points out one."""
        ib.evaluate(T.ptx[load_matrices(turned=turned)](*into, memory.ptr_to([at])))

    def _load_rows(self, memory: Any, start: Any, pitch: int) -> None:
        """Load the right operand of two depths: rows of queries, or of weights."""
        for octet in range(self._octets):
            row = ib.min(octet * OCTET + self._line, self._rows - 1)
            own = [self._right[octet * _REGISTERS + i] for i in range(_REGISTERS)]
            self._load(own, memory, start + row * pitch)

    def _multiply(self, dtype: str, sums: Any, number: int, step: int) -> None:
        """Add the left fragment's product with each octet of rows to sums of that number."""
        name = multiply_add(dtype, FRAGMENT)
        for octet in range(self._octets):
            first = (number * self._octets + octet) * _REGISTERS
            own = [sums[first + i] for i in range(_REGISTERS)]
            right = [self._right[octet * _REGISTERS + step % 2 * 2 + i] for i in range(2)]
            ib.evaluate(T.ptx[name](*own, *self._left, *right, *own))

    # -- rows ---------------------------------------------------------------------------------

    def _places(self) -> Sequence[tuple[int, int]]:
        """Octets, with the places of a thread's sums of each."""
        return [(octet, place) for octet in range(self._octets) for place in range(_REGISTERS)]

    @contextmanager
    def _when_row(self, octet: int, number: int) -> Iterator[Any]:
        """A frame for what is done with a thread's sum, if its row is one; with the row."""
        row = octet * OCTET + self._pair + number
        with when([row < self._rows] if (octet + 1) * OCTET > self._rows else []):
            yield row

    def _of_row(self, values: Any, octet: int, number: int) -> Any:
        """The value of the row of a thread's sum, of registers with those of all rows."""
        rows = range(octet * OCTET + number, min((octet + 1) * OCTET, self._rows), 2)
        found = values[min(octet * OCTET + number, self._rows - 1)]
        for row in rows[1:]:
            found = tirx.Select(self._pair == row - octet * OCTET - number, values[row], found)
        return found


def _set_to_zero(own: Any) -> None:
    """Write zeros to registers."""
    with ib.unroll(int(own.ty.shape[0])) as i:
        ib.buffer_store(own, tirx.const(0.0, "float32"), [i])
