"""Scores as AMD's matrix cores leave them: a lane has one row of every 16 or 32, with others.

Keys are laid out such that a lane holds whole units of neighbours (``MatrixLayout.column``): packed
in halves, its weights are what the second product takes of its row, once lanes that need the same
have it from each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.tile.attention.warps import WarpAttentionTile
from tvm_tile.tile.units.slab import UNIT
from tvm_tile.tile.units.unit import WaveUnit

_COMBINE = {"max": ib.max, "sum": lambda a, b: a + b}
_ALL_LANES = 0xFFFFFFFF


class WaveRows:
    """Registers of one thread, as :class:`~tvm_tile.schedule.attention.rows.HeldScores` asks.

    Args:
        unit: the unit that multiplies.
        tile: how the block computes its rows.
        thread: its number in the block.
        dtype: type of the weights.
    """

    def __init__(self, unit: WaveUnit, tile: WarpAttentionTile, thread: Any, dtype: str) -> None:
        self._layout = layout = unit.layout
        self.keys, self.block_rows, self.span = tile.keys, tile.rows, tile.warp_rows
        self.rows = tile.warp_rows // layout.size
        # Registers of a row.
        self._scores, self._sums = (
            layout.size * size // layout.wave for size in (tile.keys, tile.columns)
        )
        self.scores = ib.alloc_buffer((self.rows * self._scores,), "float32", scope="local")
        self.sums = ib.alloc_buffer((self.rows * self._sums,), "float32", scope="local")
        size = self.rows * self._scores * layout.copies
        self._packed = ib.alloc_buffer((size,), dtype, scope="local")
        self.first = ib.Bind(thread // layout.wave * tile.warp_rows)
        self._lane = ib.Bind(thread % layout.wave)
        self._row = ib.Bind(self.first + self._lane % layout.size)

    @property
    def count(self) -> int:
        """Fragments of a step of the second product's left operand."""
        return self.rows

    def row(self, number: int) -> Any:
        """The place of one of the lane's rows, which are a matrix instruction's size apart."""
        return self._row + number * self._layout.size

    def elements(self) -> Iterator[tuple[Any, int, Any]]:
        """Register, row and key of each score: row by row for each key."""
        with ib.unroll(self._scores) as i:
            for row in range(self.rows):
                key = self._layout.neighbour(self._lane, i)
                yield row * self._scores + i, row, key

    def totals(self) -> Iterator[tuple[Any, int]]:
        """Register and row of each sum: row by row for each column."""
        with ib.unroll(self._sums) as i:
            for row in range(self.rows):
                yield row * self._sums + i, row

    def exchange(self, values: Any, op: str) -> Iterator[int]:
        """Combine one value a row by shuffles, which all lanes of a wave take part in."""
        combine, layout = _COMBINE[op], self._layout
        for row in range(self.rows):
            distance = layout.size
            while distance < layout.wave:
                given = [T.uint32(_ALL_LANES), values[row], distance, layout.wave]
                other = ib.Bind(T.call_extern("float32", "__shfl_xor_sync", *given))
                ib.buffer_store(values, combine(values[row], other), [row])
                distance *= 2
            yield row

    def exponential(self, into: Any, place: Any, power: Any) -> None:
        """``into[place] = 2 ** power``, where that is not a denormal number."""
        ib.buffer_store(into, T.call_extern("float32", "fast_exp2", power), [place])

    def pack(self) -> None:
        """Pack the weights as the second product's left operand, in half precision."""
        copies, dtype = self._layout.copies, str(self._packed.ty.dtype)
        for unit in range(self.rows * self._scores // UNIT):
            first = unit * copies * UNIT
            for start in range(0, UNIT, 4):
                with ib.vectorized(4) as v:
                    value = tirx.Cast(dtype, self.scores[unit * UNIT + start + v])
                    ib.buffer_store(self._packed, value, [first + start + v])
            if copies > 1:
                ib.evaluate(T.call_extern("void", "with_other_half", self._packed.ptr_to([first])))

    def of(self, step: int, number: int, instruction: int) -> Any:
        """Pointer to the packed weights that one of a step's instructions takes."""
        layout = self._layout
        units = number * self._scores * layout.copies // UNIT + step * layout.units
        return self._packed.ptr_to([units * UNIT + instruction * layout.held])
