"""From sums in registers to the output: through a corner of shared memory, a warp at a time.

A thread holds sums of a few neighbours, of NVIDIA's instructions pairs of eight columns apart, of
two rows of every 16 that its warp holds. Stored from there, a warp would write 16 bytes of each of
eight rows. So each warp lays some columns of its rows down in shared memory of its own and takes
them up by rows: four neighbours a thread, for which the epilogue is computed with loads and stores
as wide; where so many do not lie aligned, two or one, so that threads store side by side.

No other warp touches a warp's corner, so waiting for the warp's own threads is enough: once between
laying down and taking up, once before the next columns are laid down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.tensor_cores.epilogue import Epilogue
from tvm_tile.schedule.tensor_cores.place import Place, Side
from tvm_tile.tile.units.sum_layout import CORNER_COLUMNS, MMA_SUMS, QUAD, SumLayout


@dataclass(frozen=True, slots=True)
class Guard:
    """Rows of a tile that may be none of the output.

    Attributes:
        fits: condition for the rows to be any of the output.
        inside: values of the axes but the columns': theirs, or other ones of the output.
    """

    fits: tuple[Any, ...]
    inside: Place


@dataclass(frozen=True, slots=True)
class SumStore:
    """Everything that a warp needs to store its sums.

    Attributes:
        rows: rows of the tile that the sums are of.
        columns: columns of the tile, among them neighbours in the output.
        epilogue: arithmetic on a sum, and its store.
        buffers: the epilogue's parameters by name.
        memory: shared, of the sums' dtype: a corner (``layout.rows``, ``layout.pitch``) a warp, or
            whatever else :meth:`lay_down` is to fill.
        layout: layout of the sums in registers.
        sums: how many neighbouring sums of a row make an element, of which ``columns`` are.
    """

    rows: Side
    columns: Side
    epilogue: Epilogue
    buffers: Mapping[str, Any]
    memory: Any
    layout: SumLayout = MMA_SUMS
    sums: int = 1

    def write(
        self,
        sums: Any,
        held: int,
        row: Any,
        columns: tuple[Any, int],
        thread: Any,
        origin: Place,
    ) -> None:
        """Store what a thread has of the rows of a block of sums.

        Args:
            sums: the thread's registers.
            held: number of the first register of these rows.
            row: the first of the rows in the tile.
            columns: the first in the tile, and how many.
            thread: the thread's number among all that store; the first warp's first thread is 0.
            origin: first values of the tile's axes.
        """
        layout = self.layout
        warp, lane = ib.Bind(thread // layout.warp), ib.Bind(thread % layout.warp)
        first, count = columns
        each = math.gcd(count, CORNER_COLUMNS)
        with ib.unroll(count // each) as part:
            registers = held + part * (each // layout.columns * layout.registers)
            self.lay_down(sums, registers, each, lane, lambda row, column: [warp, row, column])
            ib.evaluate(T.cuda.warp_sync())
            start = (first + part * each) // self.sums
            self._take_up((row, start), each // self.sums, warp, lane, origin)
            ib.evaluate(T.cuda.warp_sync())

    def lay_down(
        self,
        sums: Any,
        first: Any,
        columns: int,
        lane: Any,
        at: Callable[[Any, Any], list[Any]],
    ) -> None:
        """Put a thread's sums of ``columns`` columns into memory.

        Args:
            sums: its registers.
            first: number of the first register of the sums.
            columns: a multiple of the layout's.
            lane: its number in its warp.
            at: row of the block's, and column -> indices in memory.
        """
        layout = self.layout
        with ib.unroll(columns // layout.columns) as block:
            for held in range(0, layout.registers, layout.run):
                row, column = layout.place(lane, held)
                with ib.vectorized(layout.run) as v:
                    value = sums[first + block * layout.registers + held + v]
                    place = at(row, block * layout.columns + column + v)
                    ib.buffer_store(self.memory, value, place)

    def _take_up(
        self, first: tuple[Any, Any], columns: int, warp: Any, lane: Any, origin: Place
    ) -> None:
        """Store neighbours, as many rows at a time as a warp's threads reach."""
        width = next((width for width in (QUAD, 2) if self._is_aligned(width)), 1)
        threads, layout = columns // width, self.layout
        per_pass = min(layout.rows, layout.warp // threads)
        with ib.unroll(layout.rows // per_pass) as turn:
            row = ib.Bind(turn * per_pass + lane // threads)
            column = ib.Bind(lane % threads * width)
            rows, fits = self.rows.at(first[0] + row, origin)
            place = {**origin, **rows}
            inside = {**origin, **self.rows.inside(first[0] + row, origin)} if fits else place
            with when([lane < threads * per_pass] if threads * per_pass < layout.warp else []):
                total = self._laid_down([warp, row], column, width)
                guard = Guard(tuple(fits), inside)
                self.neighbours(width, total, first[1] + column, place, guard)

    def _laid_down(self, row: list[Any], column: Any, count: int) -> Callable[[Any], Any]:
        """The sums of neighbouring elements in a row of memory, by number; of elements that are
        made of several a tuple of these, which are loaded here."""
        if self.sums == 1:
            return lambda v: self._held([*row, column + v])
        held = ib.alloc_buffer((count * self.sums,), str(self.memory.ty.dtype), scope="local")
        wide = math.gcd(count * self.sums, QUAD)
        for first in range(0, count * self.sums, wide):
            with ib.vectorized(wide) as v:
                own = self._held([*row, column * self.sums + first + v])
                ib.buffer_store(held, own, [first + v])
        return lambda v: tuple(held[v * self.sums + own] for own in range(self.sums))

    def _held(self, indices: list[Any]) -> Any:
        """A sum in memory."""
        return self.memory[tuple(indices)]

    def quad(
        self, total: Callable[[Any], Any], column: Any, place: Place, guard: Guard | None = None
    ) -> None:
        """Store four neighbours, as :meth:`neighbours` does."""
        self.neighbours(QUAD, total, column, place, guard)

    def neighbours(
        self,
        count: int,
        total: Callable[[Any], Any],
        column: Any,
        place: Place,
        guard: Guard | None = None,
    ) -> None:
        """Store ``count`` neighbours: four, two or one.

        Args:
            count: their number.
            total: 0 up to the last -> the sum.
            column: column of the first one, in the tile.
            place: values of the axes but the columns', of which it has the tile's first.
            guard: condition for them to be any of the output, if that is not known.
        """
        guard = guard or Guard((), place)
        if self._is_aligned(count):
            self._store_aligned(count, total, column, place, guard)
            return
        for v in range(count):
            _, fits = self.columns.at(column + v, place)
            with when([*guard.fits, *fits]):
                value, indices = self._value(total(v), column + v, place)
                ib.buffer_store(self._output, value, indices)

    def _store_aligned(
        self, count: int, total: Callable[[Any], Any], column: Any, place: Place, guard: Guard
    ) -> None:
        """Store by wide stores; compute with wide loads, too, where TVM writes them.

        What a branch stores is computed ahead of it, from elements that are there: the compiler
        then loads, and computes, for several stores at a time.
        """
        together = min(count, self.epilogue.together)
        _, column_fits = self.columns.at(column, place)
        fits = [*guard.fits, *column_fits]
        is_vector = self.epilogue.element.is_vectorizable and self.sums == 1
        if not fits and is_vector:
            for first in range(0, count, together):
                with ib.vectorized(together) as v:
                    value, indices = self._value(total(first + v), column + first + v, place)
                    ib.buffer_store(self._output, value, indices)
            return
        values = ib.alloc_buffer((count,), str(self._output.ty.dtype), scope="local")

        def compute(v: Any) -> None:
            if column_fits:
                columns = self.columns.inside(column, place, count, v)
            else:
                columns, _ = self.columns.at(column + v, place)
            value, _ = self.epilogue.at({**guard.inside, **columns}, total(v), self.buffers)
            ib.buffer_store(values, value, [v])

        if is_vector:
            for first in range(0, count, together):
                with ib.vectorized(together) as v:
                    compute(first + v)
        else:
            for v in range(count):
                compute(v)
        with when(fits):
            for first in range(0, count, together):
                with ib.vectorized(together) as v:
                    _, indices = self._value(total(first + v), column + first + v, place)
                    ib.buffer_store(self._output, values[first + v], indices)

    @property
    def _output(self) -> Any:
        """The buffer of the output."""
        return self.buffers[str(self.epilogue.buffer.name)]

    def _value(self, total: Any, column: Any, place: Place) -> tuple[Any, list[Any]]:
        """The value that a sum becomes, and the indices where it goes."""
        columns, _ = self.columns.at(column, place)
        return self.epilogue.at({**place, **columns}, total, self.buffers)

    def _is_aligned(self, count: int) -> bool:
        """Whether ``count`` neighbours are all in the output or all out of it, and lie aligned."""
        is_bool = str(self._output.ty.dtype) == "bool"  # of which TVM writes two bytes an element
        return not is_bool and self.columns.keeps_together(count)


def when(conditions: Sequence[Any]) -> ExitStack:
    """A frame for what is done only where all conditions hold."""
    stack = ExitStack()
    for condition in conditions:
        stack.enter_context(ib.If(condition))
        stack.enter_context(ib.Then())
    return stack
