"""The windows' sums of a turn's channels, by products with diagonal matrices.

Of eight channels at sixteen places, a tap adds ``values[place + tap, channel] * weight[channel]``:
the product of sixteen rows of eight values with a matrix that has the weights on its diagonal. The
tensor cores do that with a ninth of the instructions that lanes would need, and to the same sums:
what they add besides is zero. (But an infinite value makes its seven neighbours NaN, not only
itself infinite.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.graph.expression import split
from tvm_tile.schedule.halo.block import SUMS, TAPS, VALUES, Block, behind, join, put
from tvm_tile.schedule.halo.step import SpatialStage
from tvm_tile.schedule.tensor_cores.instructions import load_matrices, multiply_add
from tvm_tile.schedule.tensor_cores.store import when
from tvm_tile.tile.products.halo_tile import WARP
from tvm_tile.tile.units.slab import FRAGMENT, UNIT

_OCTETS = 2  # of channels, that a warp has
_HELD = 4  # sums of a thread, of 16 places by eight channels
_PAIR = 2  # neighbours among them


class WarpWindows:
    """A warp's windows: sixteen channels of some fragments of places."""

    def __init__(self, block: Block, outer: SpatialStage) -> None:
        """Compute all places that do not change from turn to turn."""
        tile = block.tile
        self._block, self._outer = block, outer
        self._parts = len(block.found.halo.parts)
        self._row = block.found.halo.rows[-1]
        warp, lane = ib.Bind(block.warp), ib.Bind(block.lane)
        self._channel = ib.Bind(warp % tile.channel_warps * FRAGMENT)
        self._first = ib.Bind(warp // tile.channel_warps * tile.fragments)
        self._lane = lane
        self._starts = [ib.Bind(self._start(number)) for number in range(tile.fragments)]
        size = self._parts * tile.fragments * _OCTETS * _HELD
        self._sums = ib.alloc_buffer((size,), "float32", scope="local")
        self._values = ib.alloc_buffer((_OCTETS * _PAIR,), "uint32", scope="local")
        self._diagonals = ib.alloc_buffer((self._row.taps * _OCTETS,), "uint32", scope="local")

    def is_busy(self) -> list[Any]:
        """The condition for this warp to have windows at all."""
        tile = self._block.tile
        sharing = tile.block_size // WARP // tile.channel_warps
        is_idle = sharing * tile.channel_warps * WARP < tile.block_size
        return [self._block.warp < sharing * tile.channel_warps] if is_idle else []

    def sum_up(self, turn: Any) -> None:
        """Sum a turn's windows, and put what becomes of them into shared memory."""
        block, tile = self._block, self._block.tile
        with ib.unroll(self._parts * tile.fragments * _OCTETS * _HELD) as i:
            ib.buffer_store(self._sums, T.float32(0), [i])
        lines = [row.taps for row in block.found.halo.rows[:-1]]
        with ib.serial(math.prod(lines)) as line:
            taps = [
                ib.Bind(tap % row.taps)
                for tap, row in zip(split(line, lines), block.found.halo.rows, strict=False)
            ]
            for part in range(self._parts):
                self._load_diagonals(part, ib.Bind(turn * (tile.taps // self._row.taps) + line))
                self._add_line(part, taps)
        channel = ib.Bind(block.channel(turn))
        for number in range(tile.fragments):
            for half in range(_PAIR):
                self._put(number, half, channel)

    def _start(self, number: int) -> Any:
        """The element of the values that this thread points out at a fragment's first tap."""
        tile, rows = self._block.tile, self._block.found.halo.rows
        window = self._window(number, self._lane % FRAGMENT)
        digits = split(window, tile.box)
        place = join([d * row.step for d, row in zip(digits, rows, strict=True)], tile.halo)
        unit = self._lane // FRAGMENT * UNIT
        return tile.start(VALUES) + place * tile.kept_pitch + self._channel + unit

    def _window(self, number: int, row: Any) -> Any:
        """The number of the window in a fragment's row, or that of the last window."""
        last = math.prod(self._block.tile.box) - 1
        return ib.min((self._first + number) * FRAGMENT + row, last)

    def _load_diagonals(self, part: int, line: Any) -> None:
        """Load the weights of a line of taps; a thread gets those on the diagonal, and zeros."""
        tile = self._block.tile
        # Of a matrix, the thread has two neighbouring rows of column lane / 4.
        is_own = ib.Bind(self._lane // UNIT == self._lane % 4)
        column = ib.Bind(part * tile.chunk + self._channel + self._lane // 4)
        for tap in range(self._row.taps):
            first = (line * self._row.taps + tap) * tile.kept + column
            for octet in range(_OCTETS):
                at = tile.start(TAPS) // 2 + first + octet * UNIT
                word = tirx.Select(is_own, self._block.words[at], T.uint32(0))
                ib.buffer_store(self._diagonals, word, [tap * _OCTETS + octet])

    def _add_line(self, part: int, taps: Sequence[Any]) -> None:
        """Add what the windows have of one line of places."""
        tile, rows = self._block.tile, self._block.found.halo.rows[:-1]
        line = [tap * row.spread for tap, row in zip(taps, rows, strict=True)]
        moved = join([*line, tirx.const(0)], tile.halo) * tile.kept_pitch + part * tile.chunk
        moved = ib.Bind(moved)
        name = multiply_add(self._block.dtype, UNIT)
        values = [self._values[i] for i in range(_OCTETS * _PAIR)]
        for number, start in enumerate(self._starts):
            for tap in range(self._row.taps):
                at = start + moved + tap * self._row.spread * tile.kept_pitch
                ib.evaluate(T.ptx[load_matrices()](*values, self._block.pointer(at)))
                for octet in range(_OCTETS):
                    first = self._held(part, number, octet)
                    own = [self._sums[first + i] for i in range(_HELD)]
                    left = values[octet * _PAIR :][:_PAIR]
                    diagonal = self._diagonals[tap * _OCTETS + octet]
                    ib.evaluate(T.ptx[name](*own, *left, diagonal, *own))

    def _held(self, part: int, number: int, octet: int) -> int:
        """The first register of a part's sums of a fragment."""
        return ((part * self._block.tile.fragments + number) * _OCTETS + octet) * _HELD

    def _put(self, number: int, half: int, channel: Any) -> None:
        """Store what becomes of one row's sums."""
        block, tile = self._block, self._block.tile
        row = self._lane // 4 + half * UNIT
        places, _ = block.window(split(ib.Bind(self._window(number, row)), tile.box), clamp=True)
        pair = ib.Bind(self._channel + self._lane % 4 * _PAIR)
        together = self._outer.element.is_vectorizable
        within = ib.Bind((self._first + number) * FRAGMENT + row)
        for octet in range(_OCTETS):
            own = [self._held(p, number, octet) + half * _PAIR for p in range(self._parts)]

            def value(v: Any, own: Sequence[int] = own, octet: int = octet) -> Any:
                totals = [self._sums[first + v] for first in own]
                place = [*places, channel + pair + octet * UNIT + v]
                return self._outer.at(place, totals, block.buffers)

            at = ib.Bind(tile.start(SUMS) + within * tile.chunk_pitch + pair + octet * UNIT)
            # Warps have whole numbers of fragments, which may be more than there are.
            with when([within < tile.windows] if tile.has_spare_fragments else []):
                put(block.elements, partial(behind, at), value, _PAIR, together=together)


def store_windows(block: Block, outer: SpatialStage, turn: Any) -> None:
    """Have all threads store a turn's window sums, from shared memory to the output."""
    tile = block.tile
    units = tile.chunk // UNIT
    count = math.prod(tile.box) * units
    channel = ib.Bind(block.channel(turn))
    output = block.buffers[str(outer.buffer.name)]
    with ib.serial(-(-count // tile.block_size)) as round_:
        item = ib.Bind(block.thread + round_ * tile.block_size)
        with when([item < count] if count % tile.block_size else []):
            window, unit = ib.Bind(item // units), ib.Bind(item % units * UNIT)
            places, holds = block.window(split(window, tile.box))
            at = ib.Bind(tile.start(SUMS) + window * tile.chunk_pitch + unit)
            with when(holds), ib.vectorized(UNIT) as v:
                ib.buffer_store(output, block.elements[at + v], [*places, channel + unit + v])
