"""Rows of scores in registers, as they become weights: a softmax that runs along.

A thread of a warpgroup holds pairs of neighbouring keys, eight apart, of two rows of every 16 that
its warp holds; four threads share a row.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.chain.weights import Weights
from tvm_tile.schedule.tensor_cores.place import Place
from tvm_tile.tile.chain import Chain, ChainTile

_ROW_THREADS = 4
_WARP_ROWS = 16
_LOG2_E = 1 / math.log(2)


class Rows:
    """The scores of one thread, while its code is written.

    A softmax keeps the maximum so far and the sum of what is weighed by it. When the maximum grows,
    what has been added up is scaled: ``exp(x - m) == exp(x - m') * exp(m' - m)``.
    """

    def __init__(
        self,
        chain: Chain,
        tile: ChainTile,
        weights: Weights,
        buffers: Mapping[str, Any],
        thread: Any,
    ) -> None:
        self._chain, self._tile, self._weights, self._buffers = chain, tile, weights, buffers
        self.scores = ib.alloc_buffer((tile.keys // 2,), "float32", scope="local")
        self._most, self._total, self._scale, self._next = (
            ib.alloc_buffer((2,), "float32", scope="local") for _ in range(4)
        )
        # With these scores the exponent is one multiplication and one addition.
        self._slope = weights.slope
        warp, lane = ib.Bind(thread // 32), ib.Bind(thread % 32)
        self._warp_row = warp * _WARP_ROWS
        self._row = ib.Bind(warp * _WARP_ROWS + lane // _ROW_THREADS)
        self._key = ib.Bind(lane % _ROW_THREADS * 2)

    def start(self) -> None:
        """No keys so far."""
        # The first tile may have no key for a row: its maximum, times the slope, is a number yet.
        lowest = self._weights.lowest / max(1.0, _LOG2_E * (self._slope or 0.0))
        for half in range(2):
            ib.buffer_store(self._most, tirx.const(lowest, "float32"), [half])
            ib.buffer_store(self._total, tirx.const(0.0, "float32"), [half])

    def weigh(self, origin: Place, first: Any) -> None:
        """Scores to weights, of the tile that begins with key ``first``."""
        self._evaluate(origin, first)
        slope = tirx.const(_LOG2_E * (self._slope or 1.0), "float32")
        for half in range(2):
            most = T.cuda.warp_reduce(self._next[half], "max", width=_ROW_THREADS)
            ib.buffer_store(self._next, most, [half])
            exponential(self._scale, half, (self._most[half] - self._next[half]) * slope)
            ib.buffer_store(self._most, self._next[half], [half])
            ib.buffer_store(self._total, self._total[half] * self._scale[half], [half])
            if self._slope is not None:
                ib.buffer_store(self._next, self._next[half] * slope, [half])
        for i, half, _ in self._elements():
            if self._slope is not None:
                power = self.scores[i] * slope - self._next[half]
            else:
                # A row may have nothing but the lowest number, times which overflows.
                power = (self.scores[i] - self._next[half]) * slope
            exponential(self.scores, i, power)
            ib.buffer_store(self._total, self._total[half] + self.scores[i], [half])

    def _evaluate(self, origin: Place, first: Any) -> None:
        """Elements in place of scores, and the largest of each row, with what was before."""
        if self._slope is None:
            for i, half, key in self._elements():
                place = self._place(origin, half, first + key)
                value = self._weights.at(place, self.scores[i], self._buffers)
                ib.buffer_store(self.scores, value, [i])
        self._hide(origin, first)
        for half in range(2):
            ib.buffer_store(self._next, self._most[half], [half])
        for i, half, _ in self._elements():
            ib.buffer_store(self._next, ib.max(self._next[half], self.scores[i]), [half])

    def _hide(self, origin: Place, first: Any) -> None:
        """No weight for keys behind the last one, and outside of the band.

        Most tiles have no such key for any of a warp's rows.
        """
        extent, keys, band = self._chain.keys.extent, self._tile.keys, self._chain.band
        (axis,) = self._chain.first.left.free
        diagonal = first - (origin[axis.name] + self._warp_row)  # of the warp's first row and key
        reached = [first > extent - keys] if extent % keys else []
        reached += band.crosses(diagonal, _WARP_ROWS, keys)
        if not reached:
            return
        # Less than the lowest number, which is all that a masked row may have.
        outside = tirx.const(-math.inf, "float32")
        with ib.If(functools.reduce(tirx.Or, reached)), ib.Then():
            for i, half, key in self._elements():
                own = diagonal + key - (self._row - self._warp_row + half * 8)
                kept = [first + key < extent] if extent % keys else []
                kept += band.holds(own)
                value = tirx.Select(functools.reduce(tirx.And, kept), self.scores[i], outside)
                ib.buffer_store(self.scores, value, [i])

    def _elements(self) -> Iterator[tuple[Any, int, Any]]:
        """Register, row and key of each of the thread's elements, within an unrolled loop."""
        with ib.unroll(self._tile.keys // 8) as octet:
            for half in range(2):
                for v in range(2):
                    yield octet * 4 + half * 2 + v, half, octet * 8 + self._key + v

    def _place(self, origin: Place, half: int, key: Any) -> Place:
        """Where a ragged tile ends, the last place that it may load from."""
        (rows,), keys = self._chain.first.left.free, self._chain.keys
        row = _within(origin[rows.name] + self._row + half * 8, rows.extent, self._tile.rows)
        return {**origin, rows.name: row, keys.name: _within(key, keys.extent, self._tile.keys)}

    def scale(self, sums: Any) -> None:
        """What was added up so far, as if weighed by the new maximum."""
        with ib.unroll(self._tile.columns // 8) as octet:
            for half in range(2):
                for v in range(2):
                    i = octet * 4 + half * 2 + v
                    ib.buffer_store(sums, sums[i] * self._scale[half], [i])

    def finish(self, sums: Any) -> None:
        """Divide by each row's sum of weights."""
        for half in range(2):
            # Bound: all threads of a warp exchange, whatever the choice behind is for their rows.
            total = ib.Bind(T.cuda.warp_reduce(self._total[half], "sum", width=_ROW_THREADS))
            scale = tirx.const(1.0, "float32") / total
            if self._weights.is_safe:
                scale = tirx.Select(total > 0, scale, tirx.const(0.0, "float32"))
            ib.buffer_store(self._scale, scale, [half])
        self.scale(sums)

    def pack(self, packed: Any) -> None:
        """Weights as the second product's left operand, pairs of half precision."""
        name = {"float16": "f16x2", "bfloat16": "bf16x2"}[self._chain.second.right.tensor.dtype]
        with ib.unroll(self._tile.keys // 4) as pair:
            low, high = self.scores[pair * 2], self.scores[pair * 2 + 1]
            ib.evaluate(T.ptx[f"cvt.rn.{name}.f32"](packed[pair], high, low))


def exponential(into: Any, place: Any, power: Any) -> None:
    """``into[place] = 2 ** power``, in two units of the last place."""
    ib.evaluate(T.ptx["ex2.approx.ftz.f32"](into[place], power))


def _within(value: Any, extent: int, size: int) -> Any:
    """A place at which the last, ragged tile may load."""
    return value if extent % size == 0 else ib.min(value, extent - 1)
