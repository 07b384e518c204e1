"""Products of operands in shared memory, a warp at a time, with the depth contiguous in both."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.halo.block import (
    FIRST_WEIGHTS,
    SECOND_WEIGHTS,
    SUMS,
    VALUES,
    Block,
    behind,
    put,
)
from tvm_tile.schedule.tensor_cores.instructions import load_matrices
from tvm_tile.schedule.units.mma import add_fragments
from tvm_tile.tile.products.halo_tile import WARPS
from tvm_tile.tile.units.slab import FRAGMENT, UNIT

_REGISTERS = 4  # of a fragment, and of two products' sums of 16 rows each
_COLUMNS = 8  # of a product
_PAIR = 2  # neighbours that a thread has


class Sums:
    """A warp's sums of rows by columns, and the fragments that they are made of."""

    def __init__(self, block: Block, rows: int, columns: int) -> None:
        """Allocate registers for sums of ``16 * rows`` rows by ``16 * columns`` columns."""
        self._block, self._rows, self._columns = block, rows, columns
        self.count = rows * columns * 2 * _REGISTERS
        self.registers = ib.alloc_buffer((self.count,), "float32", scope="local")
        self._left = ib.alloc_buffer((rows * _REGISTERS,), "uint32", scope="local")
        self._right = ib.alloc_buffer((columns * _REGISTERS,), "uint32", scope="local")

    def clear(self) -> None:
        """Begin with sums of zero."""
        with ib.unroll(self.count) as i:
            ib.buffer_store(self.registers, T.float32(0), [i])

    def add(self, left: tuple[Any, int], right: tuple[Any, int], depth: int) -> None:
        """Add the products of a depth.

        Args:
            left: the warp's first row's first element, and elements from one row to the next.
            right: the same of its first column, from one column to the next.
            depth: depth that is summed, a multiple of 16.
        """
        lane = self._block.lane
        (first, pitch), (second, other) = left, right
        # The matrices of a left fragment: upper rows, lower rows, both eight deeper; of a right
        # one: upper, these eight deeper, and the same of the lower ones.
        rows = ib.Bind(first + lane % FRAGMENT * pitch + lane // FRAGMENT * UNIT)
        across = lane % UNIT + lane // FRAGMENT * UNIT
        columns = ib.Bind(second + across * other + lane // UNIT % 2 * UNIT)
        load = load_matrices()
        for step in range(0, depth, FRAGMENT):
            for row in range(self._rows):
                at = rows + (row * FRAGMENT * pitch + step)
                ib.evaluate(T.ptx[load](*self._of(self._left, row), self._block.pointer(at)))
            for column in range(self._columns):
                at = columns + (column * FRAGMENT * other + step)
                ib.evaluate(T.ptx[load](*self._of(self._right, column), self._block.pointer(at)))
            fragments = (
                [self._of(registers, number) for number in range(count)]
                for registers, count in ((self._left, self._rows), (self._right, self._columns))
            )
            add_fragments(self._block.dtype, self.registers, *fragments)

    def _of(self, registers: Any, number: int) -> list[Any]:
        """Four registers of fragment ``number``."""
        return [registers[number * _REGISTERS + i] for i in range(_REGISTERS)]


def make_values(block: Block, sums: Sums, turn: Any) -> None:
    """Store in shared memory what becomes of the first product of a turn's channels."""
    tile = block.tile
    tiles = tile.places // FRAGMENT
    channel = ib.Bind(block.channel(turn))
    stage = tile.start(FIRST_WEIGHTS) + turn % tile.stages * (tile.columns * tile.depth_pitch)
    stage = ib.Bind(stage)
    warp, lane = ib.Bind(block.warp), ib.Bind(block.lane)
    with ib.serial(-(-tiles // WARPS)) as round_:
        number = ib.Bind(warp + round_ * WARPS)
        with ib.If(number < tiles), ib.Then():
            sums.clear()
            left = (number * (FRAGMENT * tile.depth_pitch), tile.depth_pitch)
            sums.add(left, (stage, tile.depth_pitch), tile.depth)
            for half in range(2):
                position = ib.Bind(number * FRAGMENT + lane // 4 + half * UNIT)
                place = block.reached(position)
                _keep(block, sums, half, position, place, channel)


def _keep(
    block: Block, sums: Sums, half: int, position: Any, place: Sequence[Any], channel: Any
) -> None:
    """Store a thread's values of one row."""
    found, tile = block.found, block.tile
    inner, halo = found.inner, found.halo
    octets = tile.chunk // _COLUMNS
    together = inner.element.is_vectorizable
    pair = ib.Bind(block.lane % 4 * _PAIR)
    for octet in range(tile.kept // _COLUMNS):
        # Windows read all parts; else a value is made of all of them, and this thread has them.
        part = halo.parts[octet // octets] if halo.has_window else 0
        others = range(1 if halo.has_window else len(halo.parts))
        at = [(octet + other * octets) * _REGISTERS + half * _PAIR for other in others]
        own = ib.Bind(channel + (part + octet % octets * _COLUMNS) + pair)

        def value(v: Any, at: Sequence[int] = at, own: Any = own) -> Any:
            totals = [sums.registers[first + v] for first in at]
            return inner.at([*place, own + v], totals, block.buffers)

        first = tile.start(VALUES) + octet * _COLUMNS
        row = ib.Bind(position * tile.kept_pitch + first + pair)
        put(block.elements, partial(behind, row), value, _PAIR, together=together)


def add_products(block: Block, sums: Sums, turn: Any) -> None:
    """Add the products of a turn's channels to the second product's sums."""
    tile = block.tile
    rows, columns = second_part(block)
    stage = tile.start(SECOND_WEIGHTS) + turn % tile.stages * (tile.width * tile.chunk_pitch)
    part = SUMS if tile.taps else VALUES
    left = (tile.start(part) + rows * tile.chunk_pitch, tile.chunk_pitch)
    sums.add(left, (stage + columns * tile.chunk_pitch, tile.chunk_pitch), tile.chunk)


def second_part(block: Block) -> tuple[Any, Any]:
    """The first row and the first column that a warp has of the second product."""
    tile = block.tile
    along_rows, along_columns = tile.warps
    row = block.warp // along_columns * (tile.windows // along_rows)
    return ib.Bind(row), ib.Bind(block.warp % along_columns * (tile.width // along_columns))
