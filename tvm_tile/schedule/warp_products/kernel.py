"""Write a product as a kernel around a pipeline that sums up its chunks, any epilogue behind.

What :func:`write_kernel` writes, for the one tile of a block, over all chunks or those of one part
of the sum (see ``parts.py``)::

    sums = what the pipeline makes of the chunks       (``ahead.py``, ``through_registers.py``)
    wait for one another
    store epilogue(sums)

Sums go out through the pipeline's memory, when nothing is on its way there and all threads have met
once more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.device.device import Device
from tvm_tile.schedule.pipelines.ahead import Ahead
from tvm_tile.schedule.pipelines.through_registers import ThroughRegisters
from tvm_tile.schedule.tensor_cores.found import ProductMatch
from tvm_tile.schedule.tensor_cores.grouping import ON_DEVICE, list_groups
from tvm_tile.schedule.tensor_cores.limits import bound_limits
from tvm_tile.schedule.tensor_cores.parameters import function, views
from tvm_tile.schedule.tensor_cores.part import RowTable, find_part, find_part_of_group
from tvm_tile.schedule.tensor_cores.place import Flat, Place
from tvm_tile.schedule.tensor_cores.store import SumStore
from tvm_tile.schedule.warp_products.parts import (
    add_parts,
    declare_parts,
    own_chunks,
    store_of_part,
)
from tvm_tile.tile.products.matrix_cores import MatrixTile
from tvm_tile.tile.products.mma import MmaTile
from tvm_tile.tile.products.warp_tile import chunk_counts
from tvm_tile.tile.units.unit import WaveUnit

AnyTile = MmaTile | MatrixTile


def write_kernel(found: ProductMatch, tile: AnyTile, device: Device) -> tirx.PrimFunc:
    """The function of a product and what follows it: a kernel, one ahead of it that lists rows by
    their groups, if they are in any, and another to add sums in parts."""
    with function(found.params) as (builder, buffers):
        partial = declare_parts(found.product, tile) if tile.parts > 1 else None
        table = list_groups(found, tile.rows, buffers, device)
        with ib.attr(ON_DEVICE):
            ahead = found.constants if found.asks_ahead(device) else frozenset()
            _write_tiles(found, tile, buffers, partial, table, ahead)
        if partial is not None:
            with ib.attr(ON_DEVICE):
                add_parts(found, tile, buffers, partial)
    return builder.get()


def _write_tiles(
    found: ProductMatch,
    tile: AnyTile,
    buffers: Mapping[str, Any],
    partial: Any,
    table: RowTable | None,
    ahead: frozenset[str],
) -> None:
    """The kernel that multiplies.

    Args:
        found: the product and what follows it.
        tile: how to compute it.
        buffers: the function's parameters by name.
        partial: buffer for sums in parts, as they are; ``None`` where they are whole.
        table: which rows make tiles; ``None`` where neighbours do.
        ahead: names of the operands that may be asked for before the kernel before has ended.
    """
    product, layout = found.product, tile.sum_layout
    block = ib.cta_id([tile.grid])
    thread = ib.thread_id([tile.block_size])
    if partial is None:
        number, part = block, tirx.const(0)
        epilogue, seen = found.epilogue, views(found.epilogue.tensors, found.shapes, buffers)
    else:
        # Blocks are dealt out to the caches in turn: those of one part, which share operands, are
        # to come to the same, as far as that goes.
        number, part = ib.Bind(block // tile.parts), ib.Bind(block % tile.parts)
        epilogue, seen = store_of_part(product, tile, partial, part)
    kind = ThroughRegisters if isinstance(tile.unit, WaveUnit) else Ahead
    shared = ib.alloc_buffer((tile.shared_bytes,), "uint8", scope=kind.scope, align=128)
    if table is None:
        own = find_part(product, tile, tile.unit.warp, number, thread, bound_limits(found.limits))
    else:
        own = find_part_of_group(product, tile, tile.unit.warp, number, thread, table)
    chunks = own_chunks(math.prod(chunk_counts(product, tile.depth)), tile.parts, part)
    pipeline = kind(product, tile, own, buffers, shared, chunks)
    pipeline.sum_up(ahead)
    ib.evaluate(T.cuda.cta_sync())
    dtype = tile.unit.acc_dtype
    memory = ib.decl_buffer(tile.store_shape, dtype, data=shared.data, scope=kind.scope)
    rows, columns = own.sides
    assert product.sums == 1 or isinstance(columns, Flat), "columns of what is contiguous in depth"
    columns = columns.of_elements(product.sums) if isinstance(columns, Flat) else columns
    store = SumStore(rows, columns, epilogue, seen, memory, layout, product.sums)
    store_strips(store, tile, pipeline.sums, (own.rows, own.columns), thread, own.origin)


def store_strips(
    store: SumStore, tile: AnyTile, sums: Any, first: tuple[Any, Any], thread: Any, origin: Place
) -> None:
    """Store all sums of a thread, as many of its warp's rows at a time as a corner has.

    Args:
        store: arithmetic on the sums, and their store.
        tile: tile that the sums are of.
        sums: the thread's registers.
        first: the warp's first row and its first column in the tile.
        thread: the thread's number.
        origin: first values of the tile's axes.
    """
    row, column = first
    for strip in range(tile.warp_rows // store.layout.rows):
        held = strip * store.layout.rows * tile.warp_columns // tile.unit.warp
        own = ib.Bind(row + strip * store.layout.rows)
        store.write(sums, held, own, (column, tile.warp_columns), thread, origin)
