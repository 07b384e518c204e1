"""The windows' sums of a turn's channels: values in shared memory to registers, and on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.halo.block import SUMS, TAPS, VALUES, Block, join, put, split
from tvm_tile.schedule.halo.step import Step
from tvm_tile.schedule.tensor_cores.store import when
from tvm_tile.tile.slab import UNIT

_WIDE = 4  # neighbours that TVM has float32 vectors for


def sum_windows(block: Block, outer: Step, turn: Any) -> None:
    """Sum all windows of the tile, eight channels of a strip of windows a thread."""
    tile = block.tile
    octets, strips = tile.chunk // UNIT, tile.box[-1] // tile.strip
    count = octets * math.prod(tile.box) // tile.strip
    with ib.serial(-(-count // tile.block_size)) as round_:
        item = ib.Bind(block.thread + round_ * tile.block_size)
        with when([item < count] if count % tile.block_size else []):
            octet = ib.Bind(item % octets * UNIT)
            *rest, strip = split(item // octets, [*tile.box[:-1], strips])
            first = [*(ib.Bind(digit) for digit in rest), ib.Bind(strip * tile.strip)]
            _Strip(block, outer, turn, octet, first).write()


class _Strip:
    """Neighbouring windows of eight channels, while their code is written."""

    def __init__(
        self, block: Block, outer: Step, turn: Any, octet: Any, first: Sequence[Any]
    ) -> None:
        self._block, self._outer, self._turn = block, outer, turn
        self._octet, self._first = octet, first
        self._parts = len(block.found.halo.parts)
        size = self._parts * block.tile.strip * UNIT
        self._sums = ib.alloc_buffer((size,), "float32", scope="local")
        self._row = block.found.halo.rows[-1]
        self._weights = ib.alloc_buffer((self._row.taps * UNIT,), "float32", scope="local")

    def write(self) -> None:
        """Sum them, and store what becomes of them."""
        with ib.unroll(self._parts * self._block.tile.strip * UNIT) as i:
            ib.buffer_store(self._sums, tirx.const(0, "float32"), [i])
        outer_taps = [row.taps for row in self._block.found.halo.rows[:-1]]
        with ib.serial(math.prod(outer_taps)) as tap:
            taps = split(tap, outer_taps) if outer_taps else []
            for part in range(self._parts):
                self._add_line(part, tap, taps)
        for number in range(self._block.tile.strip):
            self._store(number)

    def _add_line(self, part: int, tap: Any, taps: Sequence[Any]) -> None:
        """Add what the windows have of one line of places."""
        block, tile, row = self._block, self._block.tile, self._row
        column = part * tile.chunk + self._octet
        before = (self._turn * (tile.taps // row.taps) + tap) * row.taps
        for number in range(row.taps):
            at = ib.Bind(tile.start(TAPS) + (before + number) * tile.kept + column)
            self._load(self._weights, number * UNIT, at)
        rows = block.found.halo.rows[:-1]
        line = [
            digit * own.step + t * own.spread
            for digit, own, t in zip(self._first[:-1], rows, taps, strict=True)
        ]
        place = ib.Bind(join([*line, self._first[-1] * row.step], tile.halo))
        start = ib.Bind(tile.start(VALUES) + place * tile.kept_pitch + column)
        value = ib.alloc_buffer((UNIT,), "float32", scope="local")
        for step in range(row.reach(tile.strip)):
            users = [
                (window, t)
                for window in range(tile.strip)
                for t in range(row.taps)
                if window * row.step + t * row.spread == step
            ]
            if not users:
                continue
            self._load(value, 0, start + step * tile.kept_pitch)
            for window, t in users:
                first = (part * tile.strip + window) * UNIT
                for i in range(UNIT):
                    total = self._sums[first + i] + value[i] * self._weights[t * UNIT + i]
                    ib.buffer_store(self._sums, total, [first + i])

    def _load(self, into: Any, first: int, at: Any) -> None:
        """Eight neighbours of shared memory as float32."""
        elements = self._block.elements
        held = ib.alloc_buffer((UNIT,), str(elements.ty.dtype), scope="local")
        with ib.vectorized(UNIT) as v:
            ib.buffer_store(held, elements[at + v], [v])
        for i in range(UNIT):
            ib.buffer_store(into, tirx.Cast("float32", held[i]), [first + i])

    def _store(self, number: int) -> None:
        """What becomes of one window's sums."""
        block, tile, outer = self._block, self._block.tile, self._outer
        digits = [*self._first[:-1], self._first[-1] + number]
        places, holds = block.window(digits)
        channel = ib.Bind(block.channel(self._turn) + self._octet)
        wide = _WIDE if outer.epilogue.is_vectorizable else 1

        def value(v: Any) -> Any:
            totals = [
                self._sums[(part * tile.strip + number) * UNIT + v] for part in range(self._parts)
            ]
            return outer.at([*places, channel + v], totals, block.buffers)

        with when(holds):
            if block.found.halo.second is None:
                output = block.buffers[str(outer.epilogue.buffer.name)]
                put(output, lambda v: [*places, channel + v], value, UNIT, wide)
            else:
                row = join(digits, tile.box) * tile.chunk_pitch
                at = ib.Bind(tile.start(SUMS) + row + self._octet)
                put(block.elements, lambda v: [at + v], value, UNIT, wide)
