"""The part of a product that a thread works on: its block's tile, its warp's rows and columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from tvm.tirx.script import builder as ib

from tvm_tile.build.leaving import leaving
from tvm_tile.graph.expression import Place, digits
from tvm_tile.graph.positions import Grouped
from tvm_tile.schedule.tensor_cores.limits import Limits, count_rows, count_tiles, in_register
from tvm_tile.schedule.tensor_cores.place import Boxed, Flat, GroupRows, Side, raster_place
from tvm_tile.tile.units.product import Operand, Product


class TileOfWarps(Protocol):
    """A tile whose warps have rows and columns of their own."""

    @property
    def rows(self) -> int:
        """Rows of a block."""

    @property
    def columns(self) -> int:
        """Columns of a block."""

    @property
    def warp_rows(self) -> int:
        """Rows of a warp."""

    @property
    def warp_columns(self) -> int:
        """Columns of a warp."""

    @property
    def warps(self) -> tuple[int, int]:
        """Warps of a block along its rows and along its columns."""

    @property
    def raster(self) -> int:
        """Tiles of rows that are walked before the next tile of columns."""


@dataclass(frozen=True, slots=True)
class ThreadPart:
    """The part of a product that a thread helps to compute.

    Attributes:
        origin: first values of the axes of the block's tile.
        sides: the tile's rows and its columns.
        thread: its number in the block.
        lane: its number in the warp.
        rows: the warp's first in the tile.
        columns: the warp's first in the tile.
    """

    origin: Place
    sides: tuple[Side, Side]
    thread: Any
    lane: Any
    rows: Any
    columns: Any


@dataclass(frozen=True, slots=True)
class RowTable:
    """Which rows make the tiles of a product whose rows are in groups, as buffers.

    Attributes:
        order: numbers of all rows, those of a group side by side; int32.
        slots: group of each slot, the place in ``order`` of the tile's first row, and how many
            rows it has, none of an empty one; int32, (slots, 3).
        tiles: how many slots there are in front that are not empty; ``None`` where empty ones lie
            among them.
    """

    order: Any
    slots: Any
    tiles: Any = None

    def origin(self, groups: Grouped, slot: Any) -> dict[str, Any]:
        """The group of a slot, its first row's place in the list, and how many rows it has."""
        names = (groups.axis.name, groups.place.name, groups.held)
        return {name: in_register(self.slots[slot, part]) for part, name in enumerate(names)}


def find_part(
    product: Product,
    tile: TileOfWarps,
    warp_size: int,
    block: Any,
    thread: Any,
    limits: Limits,
) -> ThreadPart:
    """The part of thread ``thread`` of block ``block``, where each block has one tile.

    Blocks leave that have no tile within the ``limits`` of a call.
    """
    rows = count_rows(product.left, tile.rows, limits)
    columns = count_rows(product.right, tile.columns, limits)
    needed = count_tiles(product, rows, columns, limits)
    if not isinstance(needed, int):
        ib.evaluate(leaving(block < needed))
    row, column, batch = raster_place(block, math.prod(rows), math.prod(columns), tile.raster)
    origin = dict(digits(batch, product.batch, [axis.extent for axis in product.batch]))
    left = _side(product.left, tile.rows, rows, row, origin)
    right = _side(product.right, tile.columns, columns, column, origin)
    return _part(tile, warp_size, thread, origin, (left, right))


def find_part_of_group(
    product: Product, tile: TileOfWarps, warp_size: int, block: Any, thread: Any, table: RowTable
) -> ThreadPart:
    """The part of thread ``thread`` of block ``block``, where a table tells the blocks' rows.

    Blocks leave whose slot is empty.
    """
    assert product.groups is not None, "of which the table is"
    columns = count_rows(product.right, tile.columns, {})
    slots = product.groups.slots(tile.rows)
    slot, column, _ = raster_place(block, slots, math.prod(columns), tile.raster)
    origin = table.origin(product.groups, slot)
    ib.evaluate(leaving(origin[product.groups.held] > 0))
    left = GroupRows(product.groups, table.order)
    right = _side(product.right, tile.columns, columns, column, origin)
    return _part(tile, warp_size, thread, origin, (left, right))


def _part(
    tile: TileOfWarps, warp_size: int, thread: Any, origin: Place, sides: tuple[Side, Side]
) -> ThreadPart:
    """The part of a thread of a block, whose tile is known."""
    warp, lane = ib.Bind(thread // warp_size), ib.Bind(thread % warp_size)
    first_row = ib.Bind(warp // tile.warps[1] * tile.warp_rows)
    first_column = ib.Bind(warp % tile.warps[1] * tile.warp_columns)
    return ThreadPart(origin, sides, thread, lane, first_row, first_column)


def shares(count: int, thread: Any, threads: int) -> Iterator[tuple[Any, list[Any]]]:
    """A thread's share of ``count`` items: their numbers, and what must hold for each to be one.

    Args:
        count: items.
        thread: its number.
        threads: threads that share them, neighbours neighbouring ones.
    """
    for turn in range(-(-count // threads)):
        item = ib.Bind(thread + turn * threads)
        yield item, [item < count] if (turn + 1) * threads > count else []


def _side(
    operand: Operand, size: int, counts: list[Any], number: Any, origin: dict[str, Any]
) -> Side:
    """Rows, or columns, of tile ``number``; a box's first values go to ``origin``."""
    if operand.is_depth_major:
        return Flat(operand.free, size, ib.Bind(number * size))
    places = dict(digits(number, operand.free, counts))
    places[operand.free[-1].name] = places[operand.free[-1].name] * size
    origin |= {name: ib.Bind(value) for name, value in places.items()}
    return Boxed(operand, (*(1 for _ in operand.free[:-1]), size), size)
