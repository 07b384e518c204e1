"""The frame of warp-specialised kernels: a warpgroup fills a ring of stages, others empty it.

What both roles are to do, with registers moved from the producer to the consumers::

    producer (a warpgroup)                      consumers (each a warpgroup)
    for tile, chunk:                            for tile:
        wait until stage is empty                   for chunk:
        stage.full expects the chunk's bytes            wait until stage is full
        copy the chunk's boxes to stage                 begin to multiply what is in stage
                                                        stage before this one is empty
                                                    store epilogue(sums)

Why this is free of races: a stage is written only after all consumers have said that it is empty,
each once a round, and read only after the copy engine has said that all of its bytes are there. A
consumer gives back a stage when it has waited for all products that read it. Both sides go round
the ring in the same order, so each knows the parity of the round that it waits for: a full
barrier's first round has parity 0, and the producer's first wait is for the round before the first,
which counts as done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.build.leaving import leaving
from tvm_tile.device.device import STATIC_SHARED_LIMIT
from tvm_tile.graph.expression import Place, digits
from tvm_tile.graph.tile_graph import Axis
from tvm_tile.schedule.pipelines.lists import Lists
from tvm_tile.schedule.tensor_cores.limits import (
    Limits,
    bound_limits,
    count_boxes,
    count_tiles,
    in_register,
)
from tvm_tile.schedule.tensor_cores.part import RowTable
from tvm_tile.schedule.tensor_cores.place import raster_place
from tvm_tile.schedule.threads import begin_kernel
from tvm_tile.tile.products.warpgroup_tile import BARRIER_BYTES, WARPGROUP, RingTile
from tvm_tile.tile.units.product import Product

_LEAST_BLOCKS = "tirx.launch_bounds_min_blocks_per_sm"
Boxes = tuple[Sequence[Axis], Sequence[int]]
"""Axes, and the extent of a tile along each."""


@dataclass(frozen=True, slots=True)
class PersistentBlock:
    """A block that takes tiles until none is left, while the code of a thread of it is written.

    Attributes:
        product: product that the tiles are of.
        boxes: boxes along the rows and along the columns.
        tile: order in which blocks take tiles.
        limits: how far axes go in a call.
        rank: the block's number among those that share its tiles.
        number: the block's among all.
        thread: its number in the block.
        lists: chunks that each tile walks, where not all.
        table: which rows make tiles; ``None`` where neighbours do.
    """

    product: Product
    boxes: tuple[Boxes, Boxes]
    tile: RingTile
    limits: Limits
    rank: Any
    number: Any
    thread: Any
    lists: Lists | None = None
    table: RowTable | None = None

    def stages(self) -> Any:
        """Shared memory for a tile's stages, and behind them for what its sums go out through.

        Launches ask for more than the static limit only where this exceeds it alone, whatever the
        barriers take besides.
        """
        tile = self.tile
        size = tile.stages * tile.stage_bytes + math.prod(tile.store_shape) * 4
        if STATIC_SHARED_LIMIT - BARRIER_BYTES < size <= STATIC_SHARED_LIMIT:
            size = STATIC_SHARED_LIMIT + 1
        return ib.alloc_buffer((size,), "uint8", scope="shared.dyn", align=1024)

    def sums_behind(self, data: Any, dtype: str) -> Any:
        """Shared memory behind the stages in :meth:`stages`, as sums of a type of four bytes."""
        start = self.tile.stages * self.tile.stage_bytes // 4
        own = {"data": data.data, "elem_offset": start, "scope": "shared.dyn"}
        return ib.decl_buffer(self.tile.store_shape, dtype, **own)

    def specialise(self, produce: Callable[[], None], consume: Callable[[], None]) -> None:
        """Write both roles of a block that shares its multiprocessor as its tile says."""
        with ib.attr({_LEAST_BLOCKS: self.tile.blocks}):
            specialise(self.thread, self.tile.division, produce, consume)

    def leave(self) -> None:
        """End the block here if a call needs none of its tiles: it needs the first ones."""
        needed = self._count(self._counts())
        if not isinstance(needed, int):
            ib.evaluate(leaving(self._first() < needed))

    def for_tiles(self, body: Callable[[Place], None], first: Any = 0, step: int = 1) -> None:
        """Run ``body`` for tiles of the block, given the first value of every axis in each.

        Args:
            body: function that writes the code for a tile.
            first: the first of the block's tiles that is meant.
            step: distance from one tile that is meant to the next, by default to the next of all.
        """
        counts, grid = self._counts(), self.tile.grid
        if self.tile.splits > 1:
            body(self._origin(self._first(), counts))
            return
        if self.lists is not None:
            self._there_and_back(body, counts)
            return
        start = self.number + first * grid
        step *= grid
        with ib.serial((self._count(counts) - start + step - 1) // step) as turn:
            index = ib.Bind(start + turn * step)
            body(self._origin(index, counts))

    def _there_and_back(self, body: Callable[[Place], None], counts: list[list[Any]]) -> None:
        """Run ``body`` for the block's tiles, of which every other one is counted from the last
        block: the first blocks get the longest lists of a round, then the shortest."""
        grid, total = self.tile.grid, self._count(counts)
        with ib.serial((total + grid - 1) // grid) as turn:
            back = grid - 1 - 2 * self.number
            index = ib.Bind(turn * grid + self.number + turn % 2 * back)
            with ib.If(index < total), ib.Then():
                body(self._origin(index, counts))

    def first_origin(self) -> Place:
        """First values of all axes in the block's first tile."""
        return self._origin(self._first(), self._counts())

    def for_chunks(self, origin: Place, body: Callable[[Any], None]) -> None:
        """Run ``body`` for the number of each of the block's chunks of a tile's sum.

        Args:
            origin: first values of the tile's axes.
            body: function that writes the code for a chunk.
        """
        first, count = self.own_chunks(origin)
        if self.lists is not None:
            self.lists.for_chunks(origin, body, None if self.tile.splits == 1 else (first, count))
            return
        with ib.serial(count) as chunk:
            body(first + chunk)

    def own_chunks(self, origin: Place) -> tuple[Any, Any]:
        """Number of the first of the block's chunks of a tile's sum, and how many there are.

        Args:
            origin: first values of the tile's axes.
        """
        tile, each = self.tile, self.tile.chunks_each
        if self.lists is not None:
            return self.lists.part(self.lists.count(origin), self.rank, tile.splits)
        if tile.splits == 1:
            return 0, each
        first = ib.Bind(self.rank * each)
        is_even = tile.chunks % tile.splits == 0
        return first, each if is_even else ib.Bind(ib.min(each, tile.chunks - first))

    def _first(self) -> Any:
        """The block's first tile, which blocks have in common that share its sums."""
        splits = self.tile.splits
        return self.number // splits if splits > 1 else self.number

    def _counts(self) -> list[list[Any]]:
        """Tiles along each axis in a call, of the rows and of the columns."""
        own = [count_boxes(axes, box, self.limits) for axes, box in self.boxes]
        return own if self.table is None else [[in_register(self.table.tiles[0])], own[1]]

    def _count(self, counts: Sequence[Sequence[Any]]) -> Any:
        """How many tiles a call needs."""
        rows, columns = counts
        return count_tiles(self.product, rows, columns, self.limits)

    def _origin(self, index: Any, counts: Sequence[Sequence[Any]]) -> Place:
        """The first value of every axis in a tile."""
        rows, columns = (math.prod(count) for count in counts)
        *positions, batch = raster_place(index, rows, columns, self.tile.raster)
        extents = [axis.extent for axis in self.product.batch]
        origin = dict(digits(batch, self.product.batch, extents))
        sides = list(zip(self.boxes, counts, positions, strict=True))
        if self.table is not None and self.product.groups is not None:
            origin = self.table.origin(self.product.groups, positions[0])
            del sides[0]
        for (axes, box), count, position in sides:
            sizes = zip(digits(position, axes, count), box, strict=True)
            origin |= {name: ib.Bind(value * size) for (name, value), size in sizes}
            if self.lists is not None and self.lists.axis in axes:  # which is the only one
                origin[self.lists.axis.name] = self.lists.first(position)
        return origin


def launch(
    product: Product,
    boxes: tuple[Boxes, Boxes],
    tile: RingTile,
    limits: Limits,
    lists: Lists | None = None,
    table: RowTable | None = None,
) -> PersistentBlock:
    """Begin a kernel; what it takes is as :class:`PersistentBlock` has it."""
    number, rank, thread = begin_kernel(tile.grid, tile.block_size, tile.splits)
    limits = {} if table else bound_limits(limits)
    return PersistentBlock(product, boxes, tile, limits, rank, number, thread, lists, table)


def specialise(
    thread: Any,
    division: tuple[int, int] | None,
    produce: Callable[[], None],
    consume: Callable[[], None],
) -> None:
    """Write both roles.

    Args:
        thread: its number in the block, whose first warpgroup produces.
        division: registers of a producer's and of a consumer's thread; ``None`` as launched.
        produce: function that writes the code of the producer's threads.
        consume: function that writes the code of all other threads.
    """
    with ib.If(thread < WARPGROUP):
        for role, frame in enumerate((ib.Then, ib.Else)):
            with frame():
                if division is not None:
                    name = f"setmaxnreg.{('dec', 'inc')[role]}.sync.aligned.u32"
                    ib.evaluate(T.ptx[name](division[role]))
                (produce, consume)[role]()
