"""Chunks of an operand, from global memory through registers to a stage in shared memory.

All threads of a block load patches of a chunk, 16 bytes at a time where strides allow, and store
them as units along the depth. What lies outside of the tensor becomes zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.tensor_cores.chunks import Chunks, Run
from tvm_tile.schedule.tensor_cores.part import shares
from tvm_tile.schedule.tensor_cores.place import Place, linear
from tvm_tile.schedule.tensor_cores.store import when
from tvm_tile.tile.units.panel import WORD, Panel
from tvm_tile.tile.units.slab import UNIT_BYTES

_WORDS = UNIT_BYTES // WORD


@dataclass(frozen=True, slots=True)
class _Patch:
    """Patch that a thread loads at a time: runs of 16 bytes.

    Attributes:
        is_own: condition for the thread to have it.
        into: words into a stage of what each of its rows stores.
        runs: runs at neighbouring depths.
        offsets: elements from the start of the tensor to each, without the chunk's.
    """

    is_own: list[Any]
    into: list[Any]
    runs: list[Run]
    offsets: list[Any]


@dataclass(frozen=True, slots=True)
class PanelCopies:
    """Copies of one operand by one thread.

    Attributes:
        chunks: chunks that are copied.
        panel: how a chunk lies in a stage.
        source: the operand as a flat buffer of the numbers that are loaded.
        patches: patches of the thread.
        held: room for them in registers, numbers like the source's.
    """

    chunks: Chunks
    panel: Panel
    source: Any
    patches: tuple[_Patch, ...]
    held: Any

    @property
    def loads(self) -> int:
        """Loads with which a thread brings a chunk."""
        return len(self.patches) * self.panel.runs * (self.panel.unit // self.panel.width)

    def fetch(self, place: Place) -> None:
        """Ask for a chunk.

        Args:
            place: place of the chunk, as in :meth:`Chunks.moved`.
        """
        moved, far = self.chunks.moved(place)
        panel = self.panel
        for number, patch in enumerate(self.patches):
            for r, (run, offset) in enumerate(zip(patch.runs, patch.offsets, strict=True)):
                into = (number * panel.runs + r) * UNIT_BYTES
                for element in range(0, panel.unit, panel.width):
                    inside = self.chunks.is_inside(run, element, place, moved)
                    to = (into + element * panel.element) // panel.number
                    self._load([*patch.is_own, *inside], offset + far + element, to)

    def _load(self, conditions: list[Any], element: Any, into: int) -> None:
        """Neighbouring numbers, or zeros."""
        panel = self.panel
        count = panel.width * panel.element // panel.number
        with ib.vectorized(count) as v:
            value = self.source[element // panel.width * count + v]
            for condition in conditions:
                value = tirx.if_then_else(condition, value, tirx.const(0, _dtype(panel)))
            ib.buffer_store(self.held, value, [into + v])

    def settle(self, words: Any, first: Any) -> None:
        """Store what :meth:`fetch` asked for, once it is there.

        Args:
            words: all stages, 32-bit numbers.
            first: unit of the stage's.
        """
        panel = self.panel
        # Of a turned patch each row gets a part of a unit.
        count = panel.runs * panel.element // WORD if panel.is_turned else _WORDS
        packed = ib.alloc_buffer((count,), "uint32", scope="local")
        for number, patch in enumerate(self.patches):
            for line, into in enumerate(patch.into):
                for word in range(count):
                    ib.buffer_store(packed, self._word(number, line, word), [word])
                with when(patch.is_own), ib.vectorized(count) as v:
                    ib.buffer_store(words, packed[v], [first * _WORDS + into + v])

    def _word(self, patch: int, line: int, word: int) -> Any:
        """A 32-bit number of what a patch stores in a line."""
        panel = self.panel
        each = WORD // panel.element
        total: Any = tirx.const(0, "uint32")
        for i in range(each):
            deep = word * each + i
            run, element = (deep, line) if panel.is_turned else (0, deep)
            own = self._element(patch * panel.runs + run, element)
            total = total | (own << T.uint32(8 * panel.element * i))
        return total

    def _element(self, run: int, element: int) -> Any:
        """An element of a run, as the low bits of a 32-bit number."""
        panel = self.panel
        at = run * UNIT_BYTES + element * panel.element
        number = tirx.Cast("uint32", self.held[at // panel.number])
        return (number >> T.uint32(8 * (at % panel.number))) & T.uint32(
            (1 << 8 * panel.element) - 1
        )


def begin_copies(chunks: Chunks, panel: Panel, data: Any, thread: tuple[Any, int]) -> PanelCopies:
    """Find a thread's patches.

    Args:
        chunks: chunks that are copied.
        panel: how a chunk lies in a stage.
        data: pointer to the operand.
        thread: its number, and how many there are.
    """
    patches = []
    for own, is_own in shares(panel.patches, *thread):
        row, depth = (ib.Bind(value) for value in panel.position(own))
        runs = [chunks.run(row, depth + r) for r in range(panel.runs)]
        offsets = [ib.Bind(linear(chunks.operand, run.indices)) for run in runs]
        patches.append(_Patch(is_own, _into(panel, row, depth), runs, offsets))
    dtype = _dtype(panel)
    size = len(patches) * panel.runs * UNIT_BYTES // panel.number
    held = ib.alloc_buffer((size,), dtype, scope="local")
    source = ib.decl_buffer((chunks.operand.size // panel.number,), dtype, data=data)
    return PanelCopies(chunks, panel, source, tuple(patches), held)


def _into(panel: Panel, row: Any, depth: Any) -> list[Any]:
    """Words into a stage of what a patch's rows store."""
    unit = depth // panel.unit
    if not panel.is_turned:
        return [ib.Bind(panel.offset(panel.line(row), unit) * _WORDS)]
    each = panel.runs * panel.element // WORD
    part = depth % panel.unit // panel.runs * each
    lines = (panel.line(row + i) for i in range(panel.unit))
    return [ib.Bind(panel.offset(line, unit) * _WORDS + part) for line in lines]


def _dtype(panel: Panel) -> str:
    """Unsigned type of a panel's elements."""
    return f"uint{8 * panel.number}"
