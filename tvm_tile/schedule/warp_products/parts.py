"""A tile's sum split over blocks, each with some of its chunks, and a kernel that adds the parts.

Before → after::

    for tile in blockIdx:                        for tile, part in blockIdx:
        for chunk: sums += left @ right              for chunk in part: sums += left @ right
        store epilogue(sums)                         partial[part, line, column] = sums

                                                 for line, quad in blockIdx, threadIdx:
                                                     total = 0
                                                     for part: total += partial[part, line, quad]
                                                     store epilogue(total)

``partial`` lies in global memory: a line is a row of a batch, its columns are those of the product,
up to a multiple of four. The second kernel starts when the first has ended. Nothing is atomic: the
order of the sum is the same in every run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.graph.expression import Expression
from tvm_tile.graph.tile_graph import AffineIndex, Axis
from tvm_tile.schedule.tensor_cores.epilogue import Epilogue
from tvm_tile.schedule.tensor_cores.found import ProductMatch
from tvm_tile.schedule.tensor_cores.parameters import views
from tvm_tile.schedule.tensor_cores.place import Flat
from tvm_tile.schedule.tensor_cores.store import SumStore, when
from tvm_tile.tile.products.matrix_cores import ADDING_THREADS
from tvm_tile.tile.products.warp_tile import WarpTile
from tvm_tile.tile.units.product import Product
from tvm_tile.tile.units.sum_layout import QUAD

_NAME = "partial"


def declare_parts(product: Product, tile: WarpTile[Any]) -> Any:
    """Memory for all parts, on the host's side of a function: parts by lines by columns."""
    lines, columns = _shape(product)
    shape = (tile.parts, lines, columns)
    return IRBuilder.name(_NAME, ib.alloc_buffer(shape, tile.unit.acc_dtype))


def own_chunks(chunks: int, parts: int, part: Any) -> tuple[Any, Any]:
    """First chunk of a part, and how many it has: the first parts have one more than the others."""
    if parts == 1:
        return tirx.const(0), tirx.const(chunks)
    each, more = divmod(chunks, parts)
    if not more:
        return ib.Bind(part * each), tirx.const(each)
    first = ib.Bind(part * each + ib.min(part, more))
    return first, ib.Bind(each + tirx.Cast("int32", part < more))


def store_of_part(
    product: Product, tile: WarpTile[Any], partial: Any, part: Any
) -> tuple[Epilogue, dict[str, Any]]:
    """Store of a part's sums as they are, and the buffer for them."""
    dtype = tile.unit.acc_dtype
    lines, columns = _shape(product)
    start = part * (lines * columns)
    own = ib.decl_buffer((lines, columns), dtype, data=partial.data, elem_offset=start)
    IRBuilder.name(f"own_{_NAME}", own)
    sums = tirx.decl_buffer((1,), dtype)
    line, column = tirx.Var("line", "int32"), tirx.Var("column", "int32")
    axes = {
        line: _number((*product.batch, *product.left.free)),
        column: _number(product.right.free),
    }
    element = Expression(tirx.BufferLoad(sums, [0]), axes, (sums,))
    epilogue = Epilogue(own, (line, column), element)
    return epilogue, {str(own.name): own}


def add_parts(
    found: ProductMatch, tile: WarpTile[Any], buffers: Mapping[str, Any], partial: Any
) -> None:
    """The kernel that adds the parts, four neighbours a thread.

    Args:
        found: the product and what follows it.
        tile: tile, which says how many parts there are.
        buffers: the function's parameters by name.
        partial: buffer from :func:`declare_parts`.
    """
    product, epilogue = found.product, found.epilogue
    lines, columns = _shape(product)
    quads = columns // QUAD
    block = ib.cta_id([-(-lines * quads // ADDING_THREADS)])
    thread = ib.thread_id([ADDING_THREADS])
    seen = views(epilogue.tensors, found.shapes, buffers)
    number = ib.Bind(block * ADDING_THREADS + thread)
    line, column = ib.Bind(number // quads), ib.Bind(number % quads * QUAD)
    rows = Flat((*product.batch, *product.left.free), 1, tirx.const(0))
    totals = ib.alloc_buffer((QUAD,), tile.unit.acc_dtype, scope="local")
    store = SumStore(rows, Flat(product.right.free, QUAD, tirx.const(0)), epilogue, seen, totals)
    with when([number < lines * quads] if lines * quads % ADDING_THREADS else []):
        for part in range(tile.parts):
            with ib.vectorized(QUAD) as v:
                value = partial[part, line, column + v]
                ib.buffer_store(totals, totals[v] + value if part else value, [v])
        place, _ = rows.at(line, {})
        store.quad(lambda v: totals[v], column, place)


def _shape(product: Product) -> tuple[int, int]:
    """Lines, and columns of a line."""
    lines = product.batches * product.left.extent
    return lines, -(-product.right.extent // QUAD) * QUAD


def _number(axes: Sequence[Axis]) -> AffineIndex:
    """All axes as one, the last the fastest."""
    extents = [axis.extent for axis in axes]
    below = [math.prod(extents[place + 1 :]) for place in range(len(axes))]
    return AffineIndex(tuple(zip((axis.name for axis in axes), below, strict=True)))
