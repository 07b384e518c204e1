"""Chunks of an operand, from global memory to a stage in shared memory, by all threads of a block.

A thread copies the same units of 16 bytes of every chunk. Where these are does not change from
chunk to chunk but for a sum that all threads share: the chunk's depth, and its step in a window.
What lies outside of the tensor, or behind its end, becomes zero.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.graph.tile_graph import AffineIndex
from tvm_tile.schedule.tensor_cores.place import Place, Side, linear, value_of
from tvm_tile.schedule.tensor_cores.store import when
from tvm_tile.tile.product import Operand, Product
from tvm_tile.tile.slab import ELEMENT, UNIT, Slab, leaves

_WORD = 4 // ELEMENT  # elements of 32 bits
_WORDS = UNIT // _WORD


@dataclass(frozen=True, slots=True)
class _Unit:
    """A unit that a thread copies.

    Attributes:
        is_own: what must hold for the thread to have it.
        into: bytes into a stage.
        position: of its first element in the tile.
        depth: of its first element in the chunk.
        indices: of its first element, but for what changes from chunk to chunk.
        offset: the same as elements from the start of the tensor.
    """

    is_own: list[Any]
    into: Any
    position: Any
    depth: Any
    indices: list[Any]
    offset: Any


@dataclass(frozen=True, slots=True)
class Copies:
    """What one thread copies of one operand.

    Attributes:
        product: whose operand it is.
        operand: its left or its right one.
        slab: how a chunk lies in a stage.
        side: where its rows, or columns, are.
        origin: first values of the tile's axes.
        source: the operand as a flat buffer of 16-bit numbers.
        thread: its number.
        units: that it has.
        held: room for them in registers, 16-bit numbers; ``None`` where cp.async needs none.
    """

    product: Product
    operand: Operand
    slab: Slab
    side: Side
    origin: Place
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
        changing = _changing(self.product)
        indices = self.operand.indices
        moved = [ib.Bind(value_of(_part(index, changing), place)) for index in indices]
        far = ib.Bind(linear(self.operand, moved))
        for number, unit in enumerate(self.units):
            with ib.unroll(UNIT // self.slab.width) as copy:
                element = self.slab.element(self.thread, copy)
                inside = self._is_inside(unit, element, place, moved)
                at = unit.offset + far + element
                if self.held is None:
                    with when(unit.is_own):
                        self._copy(into(unit.into + element * ELEMENT), at, inside)
                else:
                    value = self.source[at]
                    for condition in (*inside, *unit.is_own):
                        value = tirx.if_then_else(condition, value, T.uint16(0))
                    ib.buffer_store(self.held, value, [number * UNIT + element])

    def _copy(self, into: Any, at: Any, inside: Sequence[Any]) -> None:
        size = self.slab.width * ELEMENT
        # Only whole units may pass by the first-level cache.
        copy = T.ptx[f"cp.async.{'cg' if size == UNIT * ELEMENT else 'ca'}.shared.global"]
        pointer = self.source.ptr_to([at])
        if not inside:
            ib.evaluate(copy(into, pointer, size))
            return
        holds = inside[0]
        for condition in inside[1:]:
            holds = tirx.And(holds, condition)
        ib.evaluate(copy(into, pointer, size, tirx.Select(holds, T.uint32(size), T.uint32(0))))

    def settle(self, ring: Any, first: Any) -> None:
        """Put what :meth:`fetch` left in registers where cp.async would have put it.

        Args:
            ring: all stages as a buffer of 32-bit numbers.
            first: of the stage's.
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

    def _is_inside(
        self, unit: _Unit, element: Any, place: Place, moved: Sequence[Any]
    ) -> list[Any]:
        """What must hold for an element of a unit, and its copy's others, to be in the tensor."""
        along_depth = self.operand.is_depth_major
        _, found = self.side.at(unit.position + (0 if along_depth else element), self.origin)
        depth = self.product.depth
        if depth.extent % self.slab.depth:
            own = unit.depth + (element if along_depth else 0)
            found.append(place[depth.name] + own < depth.extent)
        sides = leaves(self.product, self.operand)
        last = len(moved) - 1
        for d, (own, more, (below, above)) in enumerate(
            zip(unit.indices, moved, sides, strict=True)
        ):
            index = own + more + (element if d == last else 0)
            found += [index >= 0] if below else []
            found += [index < self.operand.tensor.shape[d]] if above else []
        return found


def begin_copies(
    product: Product,
    operand: Operand,
    slab: Slab,
    side: Side,
    origin: Place,
    source: Any,
    thread: tuple[Any, int],
) -> Copies:
    """Find a thread's units; ``thread`` is its number, and how many there are."""
    count = slab.lines * slab.units
    number, threads = thread
    turns = -(-count // threads)
    units = []
    for turn in range(turns):
        own = ib.Bind(number + turn * threads)
        line, unit = ib.Bind(own // slab.units), ib.Bind(own % slab.units)
        position, depth = slab.position(line, unit)
        place = {**origin, **side.at(position, origin)[0], product.depth.name: depth}
        fixed = {axis.name for axis in (*operand.free, *product.batch, product.depth)}
        indices = [
            ib.Bind(value_of(_part(index, fixed), place) + index.offset)
            for index in operand.indices
        ]
        is_own = [own < count] if (turn + 1) * threads > count else []
        into = ib.Bind(slab.offset(line, unit))
        offset = ib.Bind(linear(operand, indices))
        units.append(_Unit(is_own, into, position, depth, indices, offset))
    held = None
    if slab.is_by_element:
        held = ib.alloc_buffer((turns * UNIT,), "uint16", scope="local")
    return Copies(product, operand, slab, side, origin, source, number, tuple(units), held)


def _changing(product: Product) -> set[str]:
    """Axes whose values differ from chunk to chunk."""
    return {axis.name for axis in (*product.steps, product.depth)}


def _part(index: AffineIndex, names: Container[str]) -> AffineIndex:
    """The terms of some axes."""
    return AffineIndex(tuple(term for term in index.terms if term[0] in names))
