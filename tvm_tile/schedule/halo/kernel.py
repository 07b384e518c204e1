"""Write a product, windows over its values and a second product as one kernel.

The loops that :func:`write_halo` writes, for the one tile of a block::

    ask for all places that the tile's windows reach, and for the first channels' weights
    for turn (some channels each):
        wait for this turn's weights, and for all threads
        ask for the next turn's weights
        values = inner(places @ weights)            to shared memory, tile and halo
        wait for all threads
        sums = outer(windows over values)           to shared memory
        wait for all threads
        totals += sums @ second weights             in registers; or sums to the output
    store epilogue(totals)

Without windows, values take the sums' place.

Why this is free of races: what a phase writes, the next one reads behind a meeting of all threads.
Values are written again behind the meeting at the top of the next turn, when nobody sums windows
(or multiplies them) any more; sums behind the one after that. Weights have two stages: the next
turn's go where those before this turn's were, which all have read when they meet at its top. Totals
go out through shared memory when all have met once more.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.graph.expression import split
from tvm_tile.schedule.halo.block import Block
from tvm_tile.schedule.halo.copies import copy_places, copy_taps, copy_weights
from tvm_tile.schedule.halo.find import HaloMatch
from tvm_tile.schedule.halo.multiply import Sums, add_products, make_values, second_part
from tvm_tile.schedule.halo.windows import WarpWindows, store_windows
from tvm_tile.schedule.tensor_cores.parameters import function
from tvm_tile.schedule.tensor_cores.place import Boxed
from tvm_tile.schedule.tensor_cores.store import SumStore, when
from tvm_tile.schedule.threads import begin_kernel
from tvm_tile.tile.products.halo_tile import WARP, HaloTile
from tvm_tile.tile.units.slab import FRAGMENT


def write_halo(found: HaloMatch, tile: HaloTile) -> tirx.PrimFunc:
    """The function of what was found, as ``tile`` says."""
    with function(found.params) as (builder, buffers):
        number, _, thread = begin_kernel(tile.grid, tile.block_size)
        size = tile.shared_bytes
        memory = ib.alloc_buffer((size,), "uint8", scope="shared.dyn", align=128)
        dtype = found.halo.first.left.tensor.dtype
        elements = ib.decl_buffer((size // 2,), dtype, data=memory.data, scope="shared.dyn")
        words = ib.decl_buffer((size // 4,), "uint32", data=memory.data, scope="shared.dyn")
        groups = found.halo.channels // (tile.chunk * tile.turns)
        counts = [-(-row.extent // n) for row, n in zip(found.halo.rows, tile.box, strict=True)]
        tiles = split(ib.Bind(number // groups), counts)
        origin = tuple(ib.Bind(t * n) for t, n in zip(tiles, tile.box, strict=True))
        group = ib.Bind(number % groups)
        block = Block(found, tile, buffers, memory, elements, words, thread, group, origin)
        _compute(block)
    return builder.get()


def _compute(block: Block) -> None:
    """Write a block's turns: copies, the first product, windows, the second product, the store."""
    tile, second = block.tile, block.found.halo.second
    copy_places(block)
    copy_weights(block, tirx.const(0))
    copy_taps(block)
    values = Sums(block, 1, tile.columns // FRAGMENT)
    outer = block.found.outer
    windows = None if outer is None else WarpWindows(block, outer)
    totals = None
    if second is not None:
        rows, columns = (n // FRAGMENT for n in (tile.windows, tile.width))
        totals = Sums(block, rows // tile.warps[0], columns // tile.warps[1])
        totals.clear()
    with ib.serial(tile.turns) as turn:
        ib.evaluate(T.ptx["cp.async.wait_all"]())
        ib.evaluate(T.cuda.cta_sync())
        if tile.turns > 1:
            with ib.If(turn + 1 < tile.turns), ib.Then():
                copy_weights(block, turn + 1)
        make_values(block, values, turn)
        ib.evaluate(T.cuda.cta_sync())
        if windows is not None:
            with when(windows.is_busy()):
                windows.sum_up(turn)
            ib.evaluate(T.cuda.cta_sync())
        if totals is not None:
            add_products(block, totals, turn)
        elif outer is not None:
            store_windows(block, outer, turn)
    if totals is not None:
        ib.evaluate(T.cuda.cta_sync())
        _store(block, totals)


def _store(block: Block, totals: Sums) -> None:
    """Store what becomes of the second product's sums in the output."""
    found, tile = block.found, block.tile
    second, epilogue = found.halo.second, found.epilogue
    assert second is not None, "there are totals"
    assert epilogue is not None, "of the second product"
    boxes: dict[str, int] = {}
    origin: dict[str, Any] = {}
    for name, own, size in zip(found.places, block.origin, tile.box, strict=True):
        if name is not None:
            boxes[name], origin[name] = size, own
    box = tuple(boxes[axis.name] for axis in second.left.free)
    (column,) = second.right.free
    origin[column.name] = tirx.const(0)
    sides = (
        Boxed(second.left, box, tile.windows),
        Boxed(second.right, (column.extent,), tile.width),
    )
    memory = ib.decl_buffer(tile.corners, "float32", data=block.memory.data, scope="shared.dyn")
    store = SumStore(*sides, epilogue, block.buffers, memory)
    first, start = second_part(block)
    rows, columns = (n // w for n, w in zip((tile.windows, tile.width), tile.warps, strict=True))
    each = FRAGMENT * columns // WARP
    for strip in range(rows // FRAGMENT):
        row = ib.Bind(first + strip * FRAGMENT)
        store.write(totals.registers, strip * each, row, (start, columns), block.thread, origin)
