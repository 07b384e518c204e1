"""Chunks of an operand, from global memory to a stage in shared memory, by all threads of a block.

A thread copies the same units of 16 bytes of every chunk; what lies outside of the tensor becomes
zero.

Elements of 2 bytes whose rows begin anywhere are too narrow for cp.async. A thread then loads the
two aligned lines of 16 bytes that a unit lies across, and shifts them into place on their way to
shared memory::

    first, place = unit // 8, unit % 8                  (in elements)
    held = lines[first], lines[first + 1]               (within the tensor's, whatever the unit)
    stage = held[place : place + 8], zeros outside of the tensor

The tensor's last line may go on behind its end, by less than 16 bytes. These are loaded and never
used; a line lies in one page of memory, as tensors begin aligned.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.cp_async import asked
from tvm_tile.schedule.tensor_cores.chunks import Chunks, Run
from tvm_tile.schedule.tensor_cores.part import shares
from tvm_tile.schedule.tensor_cores.place import Place, linear
from tvm_tile.schedule.tensor_cores.store import when
from tvm_tile.tile.units.product import Operand
from tvm_tile.tile.units.slab import ELEMENT, UNIT, UNIT_BYTES, Slab

_WORD = 4 // ELEMENT  # elements of 32 bits
_WORDS = UNIT // _WORD
_ELEMENT_BITS = (1 << 8 * ELEMENT) - 1


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
class _HeldUnits:
    """Registers of a thread for units that are on their way, with numbers of 32 bits.

    Attributes:
        lines: the operand in lines of 16 bytes, a flat buffer.
        words: two lines of each unit.
        places: place of each unit in its first line, in elements.
        masks: bits of each unit's words that are of elements in the tensor.
    """

    lines: Any
    words: Any
    places: Any
    masks: Any

    @classmethod
    def of(cls, operand: Operand, data: Any, units: int) -> _HeldUnits:
        """Room for some units of an operand, which ``data`` points to."""
        lines = -(-operand.size // UNIT_BYTES)
        names = ("words", "places", "masks")
        sizes = (units * 2 * _WORDS, units, units * _WORDS)
        held = (
            IRBuilder.name(name, ib.alloc_buffer((size,), "uint32", scope="local"))
            for name, size in zip(names, sizes, strict=True)
        )
        return cls(ib.decl_buffer((lines * _WORDS,), "uint32", data=data), *held)

    def fetch(self, number: int, at: Any, inside: Sequence[Sequence[Any]]) -> None:
        """Load the lines of a unit.

        Args:
            number: its number among the thread's.
            at: elements from the start of the operand to its first.
            inside: conditions for each of its elements to be in the tensor.
        """
        at = ib.Bind(at)
        last = int(self.lines.shape[0]) // _WORDS - 1
        for line in range(2):
            place = ib.Bind(ib.max(ib.min((at >> 3) + line, last), 0) * _WORDS)
            with ib.vectorized(_WORDS) as v:
                own = (number * 2 + line) * _WORDS + v
                ib.buffer_store(self.words, self.lines[place + v], [own])
        ib.buffer_store(self.places, tirx.Cast("uint32", at & (UNIT - 1)), [number])
        for word in range(_WORDS):
            mask: Any = tirx.const(0, "uint32")
            for element in range(_WORD):
                own = tirx.const(_ELEMENT_BITS << 8 * ELEMENT * element, "uint32")
                for condition in inside[word * _WORD + element]:
                    own = tirx.Select(condition, own, T.uint32(0))
                mask = mask | own
            ib.buffer_store(self.masks, mask, [number * _WORDS + word])

    def unit(self, number: int) -> list[Any]:
        """The words of a unit, shifted to its first element; zeros outside of the tensor."""
        place = ib.Bind(self.places[number])
        words = [self.words[number * 2 * _WORDS + word] for word in range(2 * _WORDS)]
        for step in (2, 1):
            is_further = ib.Bind((place & T.uint32(step * _WORD)) != T.uint32(0))
            pairs = zip(words[step:], words, strict=False)
            words = [ib.Bind(tirx.Select(is_further, far, near)) for far, near in pairs]
        # In one shift of two words, which is an instruction: a choice would be a branch.
        shift = ib.Bind(tirx.Cast("uint64", (place & T.uint32(1)) * T.uint32(8 * ELEMENT)))
        found = []
        for word, (low, high) in enumerate(itertools.pairwise(words)):
            both = (tirx.Cast("uint64", high) << T.uint64(32)) | tirx.Cast("uint64", low)
            mask = self.masks[number * _WORDS + word]
            found.append(tirx.Cast("uint32", both >> shift) & mask)
        return found


@dataclass(frozen=True, slots=True)
class AsyncCopies:
    """Copies of one operand by one thread.

    Attributes:
        chunks: chunks that are copied.
        slab: how a chunk lies in a stage.
        source: the operand as a flat buffer of 16-bit numbers.
        thread: its number.
        units: units that the thread has.
        held: room for them in registers; ``None`` where cp.async needs none.
    """

    chunks: Chunks
    slab: Slab
    source: Any
    thread: Any
    units: tuple[_Unit, ...]
    held: _HeldUnits | None

    def fetch(self, into: Callable[[Any], Any], place: Place) -> None:
        """Ask for a chunk; what cp.async is too wide for is loaded to registers.

        Args:
            into: bytes into the stage -> a pointer.
            place: the chunk's first values of the summed axes.
        """
        moved, far = self.chunks.moved(place)
        for number, unit in enumerate(self.units):
            if self.held is not None:
                inside = [
                    [*self.chunks.is_inside(unit.run, element, place, moved), *unit.is_own]
                    for element in range(UNIT)
                ]
                self.held.fetch(number, unit.offset + far, inside)
                continue
            with ib.unroll(UNIT // self.slab.width) as copy, when(unit.is_own):
                element = self.slab.element(self.thread, copy)
                inside = self.chunks.is_inside(unit.run, element, place, moved)
                target = into(unit.into + element * ELEMENT)
                pointer = self.source.ptr_to([unit.offset + far + element])
                ask(target, pointer, self.slab.width * ELEMENT, inside)

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
            for word, value in enumerate(self.held.unit(number)):
                ib.buffer_store(words, value, [word])
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
        held = _HeldUnits.of(chunks.operand, source.data, len(units))
    return AsyncCopies(chunks, slab, source, thread[0], tuple(units), held)
