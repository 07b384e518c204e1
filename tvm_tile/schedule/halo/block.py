"""State of a kernel's thread: the place of its block's tile, and the layout of shared memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as ib

from tvm_tile.graph.expression import Place, split
from tvm_tile.schedule.halo.find import HaloMatch
from tvm_tile.tile.products.halo_tile import WARP, HaloTile

VALUES, SUMS, FIRST_WEIGHTS, SECOND_WEIGHTS, TAPS = range(1, 6)  # parts of shared memory, behind X


@dataclass(frozen=True, slots=True)
class Block:
    """State of one thread of a block, while its code is written.

    Attributes:
        found: the function that is computed.
        tile: how.
        buffers: the function's parameters by name.
        memory: shared memory, bytes.
        elements: the same memory as elements of the products.
        words: the same memory as 32-bit numbers.
        thread: its number.
        group: number of the block's channels.
        origin: the tile's first window along each of the places' dimensions.
    """

    found: HaloMatch
    tile: HaloTile
    buffers: Mapping[str, Any]
    memory: Any
    elements: Any
    words: Any
    thread: Any
    group: Any
    origin: tuple[Any, ...]

    @property
    def warp(self) -> Any:
        """The warp's number in the block."""
        return self.thread // WARP

    @property
    def lane(self) -> Any:
        """The thread's number in its warp."""
        return self.thread % WARP

    @property
    def dtype(self) -> str:
        """Element type of the products' operands."""
        return self.found.halo.first.left.tensor.dtype

    def pointer(self, element: Any) -> Any:
        """A pointer to an element of shared memory."""
        return self.memory.ptr_to([element * 2])

    def channel(self, turn: Any) -> Any:
        """The first channel of a turn."""
        return (self.group * self.tile.turns + turn) * self.tile.chunk

    def reached(self, position: Any) -> list[Any]:
        """The place of one of the halo's positions, in what windows are summed of.

        Positions behind the halo's last, and places behind the last that there is, are those.
        """
        tile, rows = self.tile, self.found.halo.rows
        if math.prod(tile.halo) < tile.places:
            position = ib.min(position, math.prod(tile.halo) - 1)
        found = []
        ends = self.found.inner.shape
        for row, own, digit, size, end in zip(
            rows, self.origin, split(position, tile.halo), tile.box, ends, strict=False
        ):
            place = ib.Bind(own * row.step + digit)
            is_ragged = row.extent % size != 0
            found.append(ib.Bind(ib.min(place, end - 1)) if is_ragged else place)
        return found

    def source(self, position: Any) -> tuple[Place, list[Any]]:
        """The first product's row for a position, and the conditions for it to be one."""
        tile, found = self.tile, self.found
        place: dict[str, Any] = {}
        holds = []
        if math.prod(tile.halo) < tile.places:
            holds.append(position < math.prod(tile.halo))
        extents = {axis.name: axis.extent for axis in found.halo.first.left.free}
        parts = zip(
            found.halo.rows,
            self.origin,
            split(position, tile.halo),
            found.inner.shifts,
            found.sources,
            tile.box,
            strict=True,
        )
        for row, own, digit, shift, name, size in parts:
            if name is None:
                continue
            place[name] = ib.Bind(own * row.step + digit + shift)
            last = (-(-row.extent // size) - 1) * size * row.step + row.reach(size) - 1 + shift
            holds += [place[name] >= 0] if shift < 0 else []
            holds += [place[name] < extents[name]] if last >= extents[name] else []
        return place, holds

    def window(self, digits: Sequence[Any], *, clamp: bool = False) -> tuple[list[Any], list[Any]]:
        """The place of one of the box's windows, and the conditions for it to be one.

        With ``clamp``, places behind the last one are that.
        """
        places: list[Any] = []
        holds = []
        for row, own, digit, size in zip(
            self.found.halo.rows, self.origin, digits, self.tile.box, strict=True
        ):
            place = own + digit
            if row.extent % size:
                holds.append(place < row.extent)
                place = ib.min(place, row.extent - 1) if clamp else place
            places.append(ib.Bind(place))
        return places, holds


def join(digits: Sequence[Any], extents: Sequence[int]) -> Any:
    """The number whose digits these are."""
    total: Any = tirx.const(0, "int32")
    for digit, extent in zip(digits, extents, strict=True):
        total = total * extent + digit
    return total


def behind(first: Any, number: Any) -> list[Any]:
    """The index of a neighbour in a buffer of one dimension."""
    return [first + number]


def put(
    target: Any,
    at: Callable[[Any], list[Any]],
    value: Callable[[Any], Any],
    width: int,
    *,
    together: bool,
) -> None:
    """Store neighbours at once.

    Args:
        target: a buffer.
        at: number of a neighbour -> indices.
        value: number of a neighbour -> what to store.
        width: neighbours.
        together: whether they are computed at once, too: what TVM has vectors for.
    """
    if together:
        with ib.vectorized(width) as v:
            ib.buffer_store(target, value(v), at(v))
        return
    held = ib.alloc_buffer((width,), str(target.ty.dtype), scope="local")
    for number in range(width):
        ib.buffer_store(held, value(number), [number])
    with ib.vectorized(width) as v:
        ib.buffer_store(target, held[v], at(v))
