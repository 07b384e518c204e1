"""Sliding windows, pooling and depthwise convolution: each thread sums a strip of outputs.

The outputs of a strip lie along one axis that slides, not the contiguous one where there is
another, so that the lanes of a warp read neighbours. A row of the input is read once a thread and
added to all outputs of the strip whose windows hold it. Before → after, for ``stride`` and
``size`` of the window along ``y``::

    for y, x, ry, rx: out[y, x] += pad[y * stride + ry, x * stride + rx] * w[ry, rx]

    for block in blockIdx:  for thread in threadIdx:  (y0, x: the thread's place)
        sums[...] = 0
        for row, one after another:
            line[...] = pad[y0 * stride + row, x * stride + ...]
            for y, ry with y * stride + ry == row:  for rx: sums[y] += line[rx] * w[ry, rx]
            for the y of which this was the last row: out[y0 + y, x] = f(sums[y])

TVM's primitives have no such skewed loop, and would give ``sums`` and ``line`` places that depend
on the thread, so that they would not be registers. Hence ``strips.py`` writes the loops;
``tile/strips.py`` says how long they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import SBlock

from tvm_tile.compat import start_schedule
from tvm_tile.graph.extract import extract_operator, loads_in
from tvm_tile.graph.tile_graph import Access
from tvm_tile.schedule.normalize import inline_spatial
from tvm_tile.schedule.rule import Choice, Scheduled, Task
from tvm_tile.schedule.strips import Blocks, write_strips
from tvm_tile.tile.classify import is_contraction
from tvm_tile.tile.strips import construct_strips
from tvm_tile.tile.window import WindowTile, window_of


def schedule_window(task: Task, count: int) -> Sequence[Choice]:
    """The best-ranked strips for one reduction over a sliding window; none for anything else."""
    if len(task.graph.reductions) != 1:
        return ()
    blocks = _read_blocks(task.func)
    if blocks is None or is_contraction(blocks.operator):
        return ()
    after = blocks.after
    divides = after is not None and _branches(after.body.value)
    traffic = task.graph.traffic
    tiles = construct_strips(blocks.operator, task.device, traffic, divides=divides)[:count]
    return tuple(partial(_written, blocks, tile) for tile in tiles)


def _read_blocks(func: tirx.PrimFunc) -> Blocks | None:
    """``None`` where a thread's outputs are not those whose sums it has."""
    sch = start_schedule(func)
    form = inline_spatial(sch, keep_producers=True)
    if form is None or len(form.reductions) != 1 or len(form.outputs) > 1:
        return None
    main = sch.get(sch.get_sblock(form.reductions[0]))
    operator = extract_operator(main)
    window = None if operator is None else window_of(operator)
    if operator is None or window is None or not isinstance(main.init, tirx.BufferStore):
        return None
    # Padding of what slides is read into registers; any other producer is computed where used.
    sliding = {read.tensor.name for read in window.reads}
    kept = []
    for name in form.producers:
        block = sch.get_sblock(name)
        if str(sch.get(block).writes[0].source.name) in sliding:
            kept.append(name)
        else:
            sch.compute_inline(block)
    main, *producers = (sch.get(sch.get_sblock(n)) for n in (form.reductions[0], *kept))
    after = sch.get(sch.get_sblock(form.outputs[0])) if form.outputs else None
    spatial = [v.var for v in main.iter_vars if v.iter_type == tirx.IterVar.DataPar]
    if not _is_stored_at(main.body, spatial) or not all(
        _is_stored_at(p.body, [v.var for v in p.iter_vars]) for p in producers
    ):
        return None
    if after is not None and not _follows(after, main):
        return None
    operator = replace(operator, reads=tuple(_in_memory(r, producers) for r in operator.reads))
    return Blocks(sch.mod["main"], operator, main, tuple(producers), after)


def _in_memory(read: Access, producers: Sequence[SBlock]) -> Access:
    """``read`` with the element type of what its producer, if it has one, reads in turn."""
    for producer in producers:
        loads = loads_in(producer.body.value)
        if str(producer.writes[0].source.name) == read.tensor.name and loads:
            tensor = replace(read.tensor, dtype=str(loads[0].ty.dtype))
            return replace(read, tensor=tensor, is_computed=True)
    return read


def _branches(expr: Any) -> bool:
    """Whether some operation of an expression may take a slow path of its own."""
    found: list[Any] = []
    kinds = [(kind, found.append) for kind in (tirx.Div, ir.Call)]
    tvm_ffi.structural_walk(expr, kinds, order="pre")
    return bool(found)


def _is_stored_at(store: Any, variables: Sequence[Any]) -> bool:
    return isinstance(store, tirx.BufferStore) and _is_at(store.indices, variables)


def _is_at(indices: Any, variables: Sequence[Any]) -> bool:
    return len(indices) == len(variables) and all(
        i.same_as(v) for i, v in zip(indices, variables, strict=True)
    )


def _follows(after: SBlock, main: SBlock) -> bool:
    """Whether ``after`` takes each sum, and nothing but that sum, to an output of its own."""
    variables = [v.var for v in after.iter_vars]
    same = [
        tuple(int(v.dom.extent) for v in block.iter_vars if v.iter_type == tirx.IterVar.DataPar)
        for block in (after, main)
    ]
    loads = [
        load for load in loads_in(after.body.value) if load.source.same_as(main.writes[0].source)
    ]
    return same[0] == same[1] and all(_is_at(load.indices, variables) for load in loads)


def _written(blocks: Blocks, tile: WindowTile) -> Scheduled:
    return Scheduled(
        write_strips(blocks, tile),
        "window",
        tile.describe(),
        tile.grid,
        tile.threads,
        tile.seconds,
        registers=tile.registers,
    )
