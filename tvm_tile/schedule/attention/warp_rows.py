"""Scores as NVIDIA's tensor cores leave them: four lanes of a warp share a row.

A thread holds pairs of neighbouring keys, eight apart, of two rows of every 16 that its warp holds.
What it holds of a row for the first product's columns it needs for the second one's depth: packed
in pairs, weights are the left operand as the instructions want it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

_ROW_THREADS = 4
_WARP = 32
_WARP_ROWS = 16
_PACKED = {"float16": "f16x2", "bfloat16": "bf16x2"}


class WarpRows:
    """Registers of one thread, as :class:`~tvm_tile.schedule.attention.rows.HeldScores` asks.

    Args:
        thread: its number among those that multiply.
        block_rows: rows of a block.
        keys: keys of a tile of scores.
        columns: columns of the second product.
    """

    rows = 2
    span = _WARP_ROWS

    def __init__(self, thread: Any, block_rows: int, keys: int, columns: int) -> None:
        self.block_rows, self.keys, self._columns = block_rows, keys, columns
        self.sums = ib.alloc_buffer((columns // 2,), "float32", scope="local")
        self.packed = ib.alloc_buffer((keys // 4,), "uint32", scope="local")
        self.scores = ib.alloc_buffer((keys // 2,), "float32", scope="local")
        warp, lane = ib.Bind(thread // _WARP), ib.Bind(thread % _WARP)
        self.first = warp * _WARP_ROWS
        self._row = ib.Bind(warp * _WARP_ROWS + lane // _ROW_THREADS)
        self._key = ib.Bind(lane % _ROW_THREADS * 2)

    def row(self, number: int) -> Any:
        """Row in the tile of the thread's row ``number``, 0 or 1; its two rows are 8 apart."""
        return self._row + number * 8

    def elements(self) -> Iterator[tuple[Any, int, Any]]:
        """Register, row and key of each score: of eight keys the thread has two neighbours."""
        with ib.unroll(self.keys // 8) as octet:
            for row in range(2):
                for v in range(2):
                    yield octet * 4 + row * 2 + v, row, octet * 8 + self._key + v

    def totals(self) -> Iterator[tuple[Any, int]]:
        """Register and row of each sum: of eight columns the thread has two neighbours."""
        with ib.unroll(self._columns // 8) as octet:
            for row in range(2):
                for v in range(2):
                    yield octet * 4 + row * 2 + v, row

    def exchange(self, values: Any, op: str) -> Iterator[int]:
        """Combine one value a row by shuffles, which all threads of a warp take part in."""
        for row in range(2):
            value = T.cuda.warp_reduce(values[row], op, width=_ROW_THREADS)
            ib.buffer_store(values, value, [row])
            yield row

    def exponential(self, into: Any, place: Any, power: Any) -> None:
        """``into[place] = 2 ** power``, in two units of the last place."""
        ib.evaluate(T.ptx["ex2.approx.ftz.f32"](into[place], power))

    def pack(self, dtype: str) -> None:
        """Pack the weights as the second product's left operand, pairs of half precision."""
        with ib.unroll(self.keys // 4) as pair:
            low, high = self.scores[pair * 2], self.scores[pair * 2 + 1]
            ib.evaluate(T.ptx[f"cvt.rn.{_PACKED[dtype]}.f32"](self.packed[pair], high, low))
