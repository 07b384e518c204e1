"""A tile's sum split over the blocks of a cluster, which add their parts in shared memory.

Before → after, in each block of a cluster that shares a tile::

    for chunk in all: sums += left @ right          for chunk in own: sums += left @ right
    store epilogue(sums)                            partial[row, column] = sums
                                                    -- all blocks of the cluster wait --
                                                    for row in own rows, column:
                                                        total = 0
                                                        for other in cluster:
                                                            total += other.partial[row, column]
                                                        store epilogue(total)
                                                    -- all blocks of the cluster wait --

Small outputs of long sums fill the device so. Parts are added in the order of the blocks: every
run gives the same bits. The first wait orders all parts' stores before any block's loads (it
releases and acquires at the scope of the cluster); the second keeps a block's shared memory alive
until the others have read it. Every thread of every block takes part in both.
"""

from __future__ import annotations

from typing import Any

from tvm.tirx.script import builder as ib

from tvm_tile.schedule.pipelines.specialised import PersistentBlock
from tvm_tile.schedule.tensor_cores.place import Place
from tvm_tile.schedule.tensor_cores.store import SumStore, when
from tvm_tile.schedule.threads import memory_of, wait_for_cluster
from tvm_tile.tile.products.warpgroup_tile import WARPGROUP, RingTile
from tvm_tile.tile.units.sum_layout import QUAD


def stay(tile: RingTile) -> None:
    """Wait, for threads that add nothing, as :func:`store_totals` does, where a sum is split."""
    if tile.splits > 1:
        wait_for_cluster()
        wait_for_cluster()


def store_totals(
    store: SumStore, block: PersistentBlock, columns: int, thread: Any, origin: Place
) -> None:
    """Wait for all parts, add those of this block's rows, and store them.

    A block's rows are those of its number in the cluster; all threads that add run this.

    Args:
        store: the epilogue, where it goes, and this block's part.
        block: block that the sums are of, rows by columns.
        columns: columns of a part, without their padding.
        thread: its number among all consumers' threads.
        origin: first values of the tile's axes.
    """
    tile = block.tile
    wait_for_cluster()
    parts = [memory_of(number, store.memory, "part") for number in range(tile.splits)]
    rows, across = tile.store_shape[0] // tile.splits, columns // QUAD
    quads, threads = rows * across, tile.consumers * WARPGROUP
    totals = ib.alloc_buffer((QUAD,), str(store.memory.ty.dtype), scope="local")
    with ib.serial(-(-quads // threads)) as turn:
        quad = ib.Bind(turn * threads + thread)
        row = ib.Bind(block.rank * rows + quad // across)
        column = ib.Bind(quad % across * QUAD)
        place, fits = store.rows.at(row, origin)
        if quads % threads:
            fits.append(quad < quads)
        with when(fits):
            for number, part in enumerate(parts):
                with ib.vectorized(QUAD) as v:
                    value = part[row, column + v]
                    ib.buffer_store(totals, value if number == 0 else totals[v] + value, [v])
            store.quad(lambda v: totals[v], column, {**origin, **place})
    wait_for_cluster()
