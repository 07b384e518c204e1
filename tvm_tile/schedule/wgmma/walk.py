"""In which order tiles, and a tile's chunks, are walked."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm.tirx.script import builder as ib

from tvm_tile.schedule.tensor_cores.limits import Limits, count_boxes, count_tiles
from tvm_tile.schedule.tensor_cores.place import Place, digits, raster_place
from tvm_tile.tile.product import Product
from tvm_tile.tile.warpgroup import line_chunks
from tvm_tile.tile.warpgroup_tile import WarpgroupTile


def for_tiles(
    product: Product,
    tile: WarpgroupTile,
    block: Any,
    body: Callable[[Place], None],
    *,
    limits: Limits,
    first: Any = 0,
    step: int = 1,
) -> None:
    """Run ``body`` for tiles of a block, given the first value of every axis in each.

    Args:
        product: that the tiles are of.
        tile: which block has which.
        block: its number.
        body: what to do.
        limits: how far axes go in a call.
        first: of the block's tiles, the first one that is meant.
        step: from one that is meant to the next, by default all.
    """
    if tile.splits > 1:
        body(_origin(product, tile, block // tile.splits, limits))
        return
    start = block + first * tile.grid
    step *= tile.grid
    tiles = needed_tiles(product, tile, limits)
    with ib.serial((tiles - start + step - 1) // step) as turn:
        body(_origin(product, tile, ib.Bind(start + turn * step), limits))


def needed_tiles(product: Product, tile: WarpgroupTile, limits: Limits) -> Any:
    """How many tiles a call needs: the first ones, as they are walked."""
    rows = count_boxes(product.left.free, tile.rows, limits)
    columns = count_boxes(product.right.free, tile.columns, limits)
    return count_tiles(product, rows, columns, limits) if limits else tile.tiles


def _origin(product: Product, tile: WarpgroupTile, index: Any, limits: Limits) -> Place:
    """The first value of every axis in a tile."""
    rows = count_boxes(product.left.free, tile.rows, limits)
    columns = count_boxes(product.right.free, tile.columns, limits)
    row, column, batch = raster_place(index, math.prod(rows), math.prod(columns), tile.raster)
    origin = dict(digits(batch, product.batch, [axis.extent for axis in product.batch]))
    for axes, tiles, box, position in (
        (product.left.free, rows, tile.rows, row),
        (product.right.free, columns, tile.columns, column),
    ):
        sizes = zip(digits(position, axes, tiles), box, strict=True)
        origin |= {name: ib.Bind(value * size) for (name, value), size in sizes}
    return origin


def own_chunks(product: Product, tile: WarpgroupTile, rank: Any) -> tuple[Any, Any]:
    """The first of a block's chunks of a tile's sum, and how many there are.

    ``rank`` is the block's number among those that share the tile.
    """
    total = math.prod(line_chunks(product))
    if tile.splits == 1:
        return 0, total
    each = tile.chunks_each
    first = ib.Bind(rank * each)
    return first, each if total % tile.splits == 0 else ib.Bind(ib.min(each, total - first))


def chunk_place(product: Product, tile: WarpgroupTile, chunk: Any) -> Place:
    """Value of every summed axis in a chunk; of the depth, the first."""
    axes = (*product.steps, product.depth)
    place = dict(digits(chunk, axes, line_chunks(product)))
    place[product.depth.name] = place[product.depth.name] * tile.depth
    return place
