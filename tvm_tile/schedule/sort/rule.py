"""The rule of sorts.

Before → after::

    for row:  merge runs of 1, 2, 4, ... elements;  y[row, p] = x[row, order[p]]

    for row, chunk in blocks:          sort the chunk in registers
    for each merge, in a kernel:       every element finds its place among those of two runs
"""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.device.device import Device
from tvm_tile.graph.rowwise import Sort
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.loops.sorting import Ordering, Sorted
from tvm_tile.schedule.rule import Scheduled, as_written
from tvm_tile.schedule.scan.states import States
from tvm_tile.schedule.sort.chunks import ChunkKernel
from tvm_tile.schedule.sort.merges import write_merge
from tvm_tile.tile.rows.sort import SortTile, construct_sort
from tvm_tile.tile.rules import SORT


def schedule_sort(sort: Sort, device: Device) -> Scheduled | None:
    """A schedule of the function that defines a sort; ``None`` where it has no elements."""
    if not sort.rows.elements or not sort.kept:
        return None
    tile = construct_sort(sort, device)
    shared = tile.rows_per_block * tile.exchanged * sum(map(element_size, Ordering(sort).dtypes))
    return as_written(
        _write(sort, tile, device.warp_size), SORT, replace(tile, shared_bytes=shared)
    )


def _write(sort: Sort, tile: SortTile, warp: int) -> tirx.PrimFunc:
    """Write the kernel that sorts chunks, whose warps have so many lanes, and those that merge."""
    ordering = Ordering(sort)
    with IRBuilder() as builder, ib.prim_func(s_tir=True):
        ib.func_name(sort.name)
        ib.func_attr({"tirx.noalias": True})
        tensors = Sorted.declared(sort)
        between = [
            States.allocated(f"runs_{n}", (tile.rows, r.count * r.size), ordering.dtypes, "global")
            for n, r in enumerate(tile.merges)
        ]
        target = between[0] if between else None
        ChunkKernel(tile, ordering, tensors, target, warp).write()
        for n, (runs, source) in enumerate(zip(tile.merges, between, strict=True)):
            target = between[n + 1] if n + 1 < len(between) else None
            write_merge(f"merge_{n}", runs, ordering, tensors, source, target)
    return builder.get().without_attr("global_symbol")
