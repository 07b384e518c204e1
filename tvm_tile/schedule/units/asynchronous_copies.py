"""Chunks of an operand, from global memory to a stage in shared memory, by all threads of a block.

A thread copies the same units of 16 bytes of every chunk; what lies outside of the tensor becomes
zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.cp_async import asked
from tvm_tile.schedule.tensor_cores.chunks import Chunks, Run
from tvm_tile.schedule.tensor_cores.part import shares
from tvm_tile.schedule.tensor_cores.place import Place, linear
from tvm_tile.schedule.tensor_cores.store import when
from tvm_tile.tile.units.slab import ELEMENT, UNIT, Slab

_WORD = 4 // ELEMENT  # elements of 32 bits
_WORDS = UNIT // _WORD


def ask(into: Any, pointer: Any, size: int, inside: Sequence[Any] = ()) -> None:
    """Ask for a copy to shared memory; see :func:`~tvm_tile.schedule.cp_async.asked`."""
    ib.evaluate(asked(into, pointer, size, inside))


@dataclass(frozen=True, slots=True)
class _Unit:
    """A unit that a thread copies.

    Attributes:
        is_own: condition for the thread to have it.
        into: bytes into a stage.
        run: its elements.
        offset: elements from the start of the tensor to the first of them, without the chunk's.
    """

    is_own: list[Any]
    into: Any
    run: Run
    offset: Any


@dataclass(frozen=True, slots=True)
class AsyncCopies:
    """Copies of one operand by one thread.

    Attributes:
        chunks: chunks that are copied.
        slab: how a chunk lies in a stage.
        source: the operand as a flat buffer of 16-bit numbers.
        thread: its number.
        units: units that the thread has.
        held: room for them in registers, 16-bit numbers; ``None`` where cp.async needs none.
    """

    chunks: Chunks
    slab: Slab
    source: Any
    thread: Any
    units: tuple[_Unit, ...]
    held: Any

    def fetch(self, into: Callable[[Any], Any], place: Place) -> None:
        """Ask for a chunk; what cp.async is too wide for is loaded to registers.

        Args:
            into: bytes into the stage -> a pointer.
            place: the chunk's first values of the summed axes.
        """
        moved, far = self.chunks.moved(place)
        for number, unit in enumerate(self.units):
            with ib.unroll(UNIT // self.slab.width) as copy:
                element = self.slab.element(self.thread, copy)
                inside = self.chunks.is_inside(unit.run, element, place, moved)
                at = unit.offset + far + element
                if self.held is None:
                    with when(unit.is_own):
                        target = into(unit.into + element * ELEMENT)
                        ask(target, self.source.ptr_to([at]), self.slab.width * ELEMENT, inside)
                else:
                    value = self.source[at]
                    for condition in (*inside, *unit.is_own):
                        value = tirx.if_then_else(condition, value, T.uint16(0))
                    ib.buffer_store(self.held, value, [number * UNIT + element])

    def settle(self, ring: Any, first: Any) -> None:
        """Put what :meth:`fetch` left in registers where cp.async would have put it.

        Args:
            ring: all stages as a buffer of 32-bit numbers.
            first: number of the stage's first one.
        """
        if self.held is None:
            return
        words = ib.alloc_buffer((_WORDS,), "uint32", scope="local")
        for number, unit in enumerate(self.units):
            with ib.unroll(_WORDS) as word:
                low = number * UNIT + word * _WORD
                pair = [tirx.Cast("uint32", self.held[low + i]) for i in range(_WORD)]
                ib.buffer_store(words, pair[0] | (pair[1] << T.uint32(16)), [word])
            with when(unit.is_own), ib.vectorized(_WORDS) as v:
                ib.buffer_store(ring, words[v], [first + unit.into // 4 + v])


def begin_copies(chunks: Chunks, slab: Slab, source: Any, thread: tuple[Any, int]) -> AsyncCopies:
    """Find a thread's units; ``thread`` is its number, and how many there are."""
    count = slab.lines * slab.units
    units = []
    for own, is_own in shares(count, *thread):
        line, unit = ib.Bind(own // slab.units), ib.Bind(own % slab.units)
        run = chunks.run(*slab.position(line, unit))
        into = ib.Bind(slab.offset(line, unit))
        units.append(_Unit(is_own, into, run, ib.Bind(linear(chunks.operand, run.indices))))
    held = None
    if slab.is_by_element:
        held = ib.alloc_buffer((len(units) * UNIT,), "uint16", scope="local")
    return AsyncCopies(chunks, slab, source, thread[0], tuple(units), held)
