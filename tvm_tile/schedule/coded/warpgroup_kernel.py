"""Write a product of many vectors with a matrix of codes for Hopper's tensor cores.

The matrix' rows are the instructions' rows, and their left operand is decoded in registers; the
vectors are the right operand. What :func:`write_coded_warpgroup` writes, ``tile`` running over a
block's share of the output::

    producer (a warpgroup)                      consumers (each a warpgroup, 64 rows of the matrix)
    for tile, chunk:                            for tile:
        load scales and zeros of the rows           for chunk, step of 32 elements:
        wait until stage is empty                       sums += left @ vectors[stage]   (async)
        copy boxes of codes, vectors to stage           load the next step's codes, scales
        lay scales and zeros down in it                 wait for the products of the step before
        stage is full when all is there                 other left = decoded codes of the next step
                                                    store epilogue(transposed sums)

So a step's codes are decoded while tensor cores multiply those of the step before. There are two
left operands, which take turns: a step's registers are written behind the wait for the products of
two steps ago, which read them.

Why this is free of races: the ring is that of ``pipelines/specialised.py``, with the same argument,
but that threads write into stages, too, and read codes from them. All four of the producer's warps
say that what they wrote is there, besides the copy engine, before a stage is full; and a stage is
empty when each warp of the consumers has said so, behind its last load from it and behind the wait
for its last product.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.device.device import Device
from tvm_tile.graph.tile_graph import AffineIndex, Axis, Tensor
from tvm_tile.schedule.coded.find import CodedMatch
from tvm_tile.schedule.coded.fragments import DecodedFragments
from tvm_tile.schedule.coded.warpgroup_consumer import consume
from tvm_tile.schedule.coded.warpgroup_producer import produce
from tvm_tile.schedule.coded.warpgroup_state import CodedWarpgroups
from tvm_tile.schedule.pipelines.specialised import launch
from tvm_tile.schedule.tensor_cores.grouping import sort_groups
from tvm_tile.schedule.tensor_cores.parameters import function, views
from tvm_tile.schedule.tensor_cores.place import Boxed, GroupRows, Side
from tvm_tile.schedule.tensor_cores.store import SumStore
from tvm_tile.schedule.units.bulk_copies import TmaChunks
from tvm_tile.schedule.units.ring import make_ring
from tvm_tile.tile.coded.warpgroup import LINE_DEPTH, CodedWarpgroupTile
from tvm_tile.tile.products.grouping import with_sorted_rows
from tvm_tile.tile.units.product import Operand
from tvm_tile.tile.units.sum_layout import turned_sums

_WARPS = 4  # of a warpgroup
_BYTE = 8  # bits


def write_coded_warpgroup(
    found: CodedMatch, fragments: DecodedFragments, tile: CodedWarpgroupTile, device: Device
) -> tirx.PrimFunc:
    """The function of a product with a matrix of codes, and of what follows it: a kernel, and where
    vectors are in groups three ahead of it, which list these and their tiles, and copy them side by
    side."""
    match, product = found.found, found.found.product
    groups = product.groups
    product = product if groups is None else with_sorted_rows(product)
    codes = _codes(found, tile)
    vectors = TmaChunks(product.left, (tile.width,), 0, product.depth, LINE_DEPTH, tile.lines)
    with function(found.params) as (builder, buffers):
        table, buffers = sort_groups(match, tile.width, buffers, device)
        maps = [side.tensor_map(buffers) for side in (codes, vectors)]
        boxes = (product.right.free, (tile.block_rows,)), (product.left.free, (tile.width,))
        boxes = boxes if table is None else boxes[::-1]
        block = launch(product, boxes, tile, match.limits, table=table)
        data = block.stages()
        speakers = tile.consumers * _WARPS, block.thread, 1 + _WARPS
        ring = make_ring(data, tile.stages, tile.stage_bytes, *speakers)
        constants = _constants(fragments, block.thread)
        ib.evaluate(T.cuda.cta_sync())
        group = None if groups is None else groups.axis.name
        parts = block, codes, vectors, maps, ring, constants, group
        kernel = CodedWarpgroups(found, fragments, tile, buffers, *parts)
        block.leave()
        memory = block.sums_behind(data, "float32")
        rows: Side = Boxed(product.left, (tile.width,), tile.width)
        if groups is not None and table is not None:
            rows = GroupRows(groups, table.order)
        columns = Boxed(product.right, (tile.block_rows,), tile.block_rows)
        seen = views(match.epilogue.tensors, match.shapes, buffers)
        layout = turned_sums(tile.together)
        store = SumStore(rows, columns, match.epilogue, seen, memory, layout)
        block.specialise(partial(produce, kernel), partial(consume, kernel, store))
    return builder.get()


def _constants(fragments: DecodedFragments, thread: Any) -> Any:
    """Shared memory with what fragments take, behind the block's next barrier."""
    words = fragments.constants
    memory = ib.alloc_buffer((len(words),), "uint32", scope="shared")
    with ib.If(thread == 0), ib.Then():
        for place, word in enumerate(words):
            ib.buffer_store(memory, tirx.const(word, "uint32"), [place])
    return memory


def _codes(found: CodedMatch, tile: CodedWarpgroupTile) -> TmaChunks:
    """Boxes of the matrix' codes: rows of bytes, as they lie; of a stack within one matrix."""
    sizes, product = found.sizes, found.found.product
    (row,), groups = product.right.free, product.groups
    width = sizes.depth * sizes.bits // _BYTE
    bytes_ = Axis("bytes", width, is_reduce=True)
    axes = (*((groups.axis,) if groups else ()), row, bytes_)
    tensor = Tensor(found.packed, tuple(axis.extent for axis in axes), "uint8")
    indices = tuple(AffineIndex(((axis.name, 1),)) for axis in axes)
    size = tensor.size
    operand = Operand(tensor, indices, (row,), True, tensor.strides, size, size)
    box = (tile.block_rows,)
    return TmaChunks(operand, box, tile.codes_start, bytes_, tile.row_bytes, is_swizzled=False)
