"""In which order tiles, and a tile's chunks, are walked, and where that is in the tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as ib

from tvm_tile.graph.tile_graph import AffineIndex, Axis
from tvm_tile.tile.product import Operand, Product
from tvm_tile.tile.warpgroup import WarpgroupTile, chunk_counts, chunks_each, counts

Place = Mapping[str, Any]
"""Name of an axis -> its value."""


def for_tiles(
    product: Product, tile: WarpgroupTile, block: Any, body: Callable[[Place], None]
) -> None:
    """Run ``body`` for each of a block's tiles, given the first value of every axis in it."""
    if tile.splits > 1:
        body(_origin(product, tile, block // tile.splits))
        return
    with ib.serial((tile.tiles - block + tile.grid - 1) // tile.grid) as turn:
        body(_origin(product, tile, ib.Bind(block + turn * tile.grid)))


def _origin(product: Product, tile: WarpgroupTile, index: Any) -> Place:
    """The first value of every axis in a tile."""
    rows = counts(product.left.free, tile.rows)
    columns = counts(product.right.free, tile.columns)
    row, column, batch = _raster(index, math.prod(rows), math.prod(columns), tile.raster)
    origin = dict(digits(batch, product.batch, [axis.extent for axis in product.batch]))
    for axes, tiles, box, position in (
        (product.left.free, rows, tile.rows, row),
        (product.right.free, columns, tile.columns, column),
    ):
        sizes = zip(digits(position, axes, tiles), box, strict=True)
        origin |= {name: ib.Bind(value * size) for (name, value), size in sizes}
    return origin


def _raster(index: Any, rows: int, columns: int, group: int) -> tuple[Any, Any, Any]:
    """Tile of rows, of columns, and batch: ``group`` tiles of rows before the next of columns.

    Blocks that run together then share their columns, and their rows, in the second-level cache.
    """
    batch = ib.Bind(index // (rows * columns))
    within = ib.Bind(index % (rows * columns))
    first = ib.Bind(within // (group * columns) * group)
    rest = ib.Bind(within % (group * columns))
    size = group if rows % group == 0 else ib.Bind(ib.min(rows - first, group))
    return ib.Bind(first + rest % size), ib.Bind(rest // size), batch


def digits(value: Any, axes: Sequence[Axis], extents: Sequence[int]) -> list[tuple[str, Any]]:
    """``value`` as one digit an axis, the last one the fastest."""
    found: list[tuple[str, Any]] = []
    below = 1
    for axis, count in reversed(list(zip(axes, extents, strict=True))):
        digit = value if below == 1 else value // below
        is_first = len(found) == len(axes) - 1
        found.append((axis.name, digit if is_first else digit % count))
        below *= count
    return found[::-1]


def own_chunks(product: Product, tile: WarpgroupTile, rank: Any) -> tuple[Any, Any]:
    """The first of a block's chunks of a tile's sum, and how many there are.

    ``rank`` is the block's number among those that share the tile.
    """
    total = math.prod(chunk_counts(product))
    if tile.splits == 1:
        return 0, total
    each = chunks_each(product, tile.splits)
    first = ib.Bind(rank * each)
    return first, each if total % tile.splits == 0 else ib.Bind(ib.min(each, total - first))


def chunk_place(product: Product, tile: WarpgroupTile, chunk: Any) -> Place:
    """Value of every summed axis in a chunk; of the depth, the first."""
    axes = (*product.steps, product.depth)
    place = dict(digits(chunk, axes, chunk_counts(product)))
    place[product.depth.name] = place[product.depth.name] * tile.depth
    return place


def value_of(index: AffineIndex, place: Place) -> Any:
    """An index at a place."""
    total: Any = tirx.const(index.offset, "int32")
    for name, coefficient in index.terms:
        total = total + place[name] * coefficient
    return total


def place_in(
    operand: Operand,
    box: Sequence[int],
    size: int,
    position: Any,
    origin: Place,
) -> tuple[Place, list[Any]]:
    """Values of an operand's free axes at a position of its tile, and what must hold there.

    Args:
        operand: whose rows, or columns, they are.
        box: their extents in the tile.
        size: positions of the tile, of which the box may fill fewer.
        position: below ``size``.
        origin: the tile's first values.
    """
    place = {name: origin[name] + digit for name, digit in digits(position, operand.free, box)}
    fits = [
        place[axis.name] < axis.extent
        for axis, extent in zip(operand.free, box, strict=True)
        if axis.extent % extent
    ]
    if math.prod(box) < size:
        fits.append(position < math.prod(box))
    return place, fits
