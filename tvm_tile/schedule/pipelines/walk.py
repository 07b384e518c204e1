"""Which tiles of a product a block of a persistent kernel has, and which chunks of their sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as ib

from tvm_tile.build.leaving import leaving
from tvm_tile.graph.tile_graph import Axis
from tvm_tile.schedule.tensor_cores.limits import Limits, bound_limits, count_boxes, count_tiles
from tvm_tile.schedule.tensor_cores.place import Place, digits, raster_place
from tvm_tile.tile.coded_warpgroup import CodedWarpgroupTile
from tvm_tile.tile.product import Product
from tvm_tile.tile.warp_tile import chunk_counts
from tvm_tile.tile.warpgroup_tile import WarpgroupTile

PersistentTile = WarpgroupTile | CodedWarpgroupTile
Boxes = tuple[Sequence[Axis], Sequence[int]]
"""Axes, and the extent of a tile along each."""


@dataclass(frozen=True, slots=True)
class PersistentBlock:
    """A block that takes tiles until none is left, while the code of a thread of it is written.

    Attributes:
        product: that the tiles are of.
        boxes: along the rows and along the columns.
        tile: which block has which tiles.
        limits: how far axes go in a call.
        rank: the block's number among those that share its tiles.
        number: the block's among all.
        thread: its number in the block.
    """

    product: Product
    boxes: tuple[Boxes, Boxes]
    tile: PersistentTile
    limits: Limits
    rank: Any
    number: Any
    thread: Any = None

    def leave(self) -> None:
        """End the block here if a call needs none of its tiles: it needs the first ones."""
        needed = self._count(self._counts())
        if not isinstance(needed, int):
            splits = self.tile.splits
            number = self.number // splits if splits > 1 else self.number
            ib.evaluate(leaving(number < needed))

    def for_tiles(self, body: Callable[[Place], None], first: Any = 0, step: int = 1) -> None:
        """Run ``body`` for tiles of the block, given the first value of every axis in each.

        Args:
            body: what to do.
            first: of the block's tiles, the first one that is meant.
            step: from one that is meant to the next, by default all.
        """
        counts, grid = self._counts(), self.tile.grid
        if self.tile.splits > 1:
            body(self._origin(self.number // self.tile.splits, counts))
            return
        start = self.number + first * grid
        step *= grid
        with ib.serial((self._count(counts) - start + step - 1) // step) as turn:
            body(self._origin(ib.Bind(start + turn * step), counts))

    def own_chunks(self) -> tuple[Any, Any]:
        """The first of the block's chunks of a tile's sum, and how many there are."""
        total, splits = math.prod(chunk_counts(self.product, self.tile.depth)), self.tile.splits
        if splits == 1:
            return 0, total
        each = -(-total // splits)
        first = ib.Bind(self.rank * each)
        return first, each if total % splits == 0 else ib.Bind(ib.min(each, total - first))

    def _counts(self) -> list[list[Any]]:
        """Tiles along each axis in a call, of the rows and of the columns."""
        return [count_boxes(axes, box, self.limits) for axes, box in self.boxes]

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
        for (axes, box), count, position in zip(self.boxes, counts, positions, strict=True):
            sizes = zip(digits(position, axes, count), box, strict=True)
            origin |= {name: ib.Bind(value * size) for (name, value), size in sizes}
        return origin


def launch(
    product: Product, boxes: tuple[Boxes, Boxes], tile: PersistentTile, limits: Limits
) -> PersistentBlock:
    """Begin a kernel; what it takes is as :class:`PersistentBlock` has it."""
    ib.device_entry()
    # Its use makes clusters of neighbouring blocks.
    rank = ib.cta_id_in_cluster([tile.splits]) if tile.splits > 1 else tirx.const(0)
    numbers = ib.cta_id([tile.grid]), ib.thread_id([tile.block_size])
    return PersistentBlock(product, boxes, tile, bound_limits(limits), rank, *numbers)
