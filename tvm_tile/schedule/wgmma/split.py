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

from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.tensor_cores.place import Place
from tvm_tile.schedule.tensor_cores.store import SumStore, when
from tvm_tile.schedule.wgmma.sums import first_row
from tvm_tile.tile.sum_layout import QUAD
from tvm_tile.tile.warpgroup_tile import WarpgroupTile


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a tile's sums that the blocks of a cluster have.

    Attributes:
        shape: rows and columns of the tile.
        memory_shape: of each part in shared memory: rows, and columns with their padding.
        dtype: of the sums.
        splits: how many parts there are; a divisor of the rows.
        threads: of a block, that add and store.
    """

    shape: tuple[int, int]
    memory_shape: tuple[int, ...]
    dtype: str
    splits: int
    threads: int


def wait_for_cluster() -> None:
    """Wait for all threads of all blocks of the cluster; each warp's come together again."""
    ib.evaluate(T.cuda.warp_sync())
    ib.evaluate(T.cuda.cluster_sync())


def keep_sums(store: SumStore, tile: WarpgroupTile, sums: Any, thread: Any) -> None:
    """Put the sums of one consumer thread into the block's part, which is the store's memory."""
    warp, lane = ib.Bind(thread // 32), ib.Bind(thread % 32)
    for instruction in range(tile.instructions):
        first = ib.Bind(first_row(tile, warp, instruction))

        def at(row: Any, column: Any, first: Any = first) -> list[Any]:
            return [first + row, column]

        store.lay_down(sums, instruction * tile.width // 2, tile.width, lane, at)


def store_totals(store: SumStore, own: Parts, rank: Any, thread: Any, origin: Place) -> None:
    """Add the parts of this block's rows, those of its number in the cluster, and store them.

    Args:
        store: the epilogue, where it goes, and this block's part.
        own: how the sums lie.
        rank: this block's number in its cluster.
        thread: its number among all consumers' threads.
        origin: first values of the tile's axes.
    """
    parts = [_part_of(store, own, number) for number in range(own.splits)]
    rows, across = own.shape[0] // own.splits, own.shape[1] // QUAD
    quads = rows * across
    totals = ib.alloc_buffer((QUAD,), own.dtype, scope="local")
    with ib.serial(-(-quads // own.threads)) as turn:
        quad = ib.Bind(turn * own.threads + thread)
        row = ib.Bind(rank * rows + quad // across)
        column = ib.Bind(quad % across * QUAD)
        place, fits = store.rows.at(row, origin)
        if quads % own.threads:
            fits.append(quad < quads)
        with when(fits):
            for number, part in enumerate(parts):
                with ib.vectorized(QUAD) as v:
                    value = part[row, column + v]
                    ib.buffer_store(totals, value if number == 0 else totals[v] + value, [v])
            store.quad(lambda v: totals[v], column, {**origin, **place})


def _part_of(store: SumStore, own: Parts, block: int) -> Any:
    """The part of another block of the cluster, as this one can read it."""
    mapped = ib.alloc_buffer((1,), "uint64", scope="local")
    ib.evaluate(T.ptx.mapa.u64(mapped[0], store.memory.ptr_to([0, 0]), T.uint32(block)))
    kind = ir.PointerType(ir.PrimType(own.dtype), "shared")
    pointer = tirx.Var("part", kind)
    ib.Bind(T.reinterpret(kind, mapped[0]), var=pointer)
    return ib.decl_buffer(own.memory_shape, own.dtype, data=pointer, scope="shared")
