"""Several reductions over the same rows: softmax, layer, RMS, group and instance norms.

Before → after, for a softmax over the last axis::

    for i, k: m[i] = max(m[i], A[i, k])
    for i, k: s[i] += exp(A[i, k] - m[i])
    for i, k: B[i, k] = exp(A[i, k] - m[i]) / s[i]

    for row in blockIdx, threadIdx.y:
        m, s in registers, each summed over threadIdx.x
        for k in threadIdx.x: B[row, k] = exp(A[row, k] - m) / s

The row is read again from cache, never written between the stages.
"""

from __future__ import annotations

import math

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import ScheduleError

from tvm_tile.graph.extract import extract_operator
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.schedule.normalize import NormalForm, inline_spatial
from tvm_tile.schedule.rule import Scheduled, Task
from tvm_tile.schedule.steps import LoopRV, SBlockRV, fuse
from tvm_tile.tile.rows import RowTile, construct_rows


def schedule_rows(task: Task) -> Scheduled | None:
    """Schedule reductions that share their rows and one output; ``None`` for anything else."""
    if len(task.graph.reductions) < 2:
        return None
    sch = Schedule(task.func)
    form = inline_spatial(sch, keep_producers=False)
    if form is None or form.producers or len(form.reductions) < 2 or len(form.outputs) != 1:
        return None
    output = extract_operator(sch.get(sch.get_sblock(form.outputs[0])))
    reductions = [extract_operator(sch.get(sch.get_sblock(name))) for name in form.reductions]
    if output is None or any(op is None for op in reductions):
        return None
    shared = _shared_axes(output, [op for op in reductions if op is not None])
    if shared is None:
        return None
    tiles = construct_rows(output, [op for op in reductions if op], shared, task.device)
    for tile in tiles:
        # TVM cannot analyse every split of fused rows; the next tile is a simpler one.
        attempt = sch.copy()
        try:
            _write(attempt, form, shared, tile)
        except ScheduleError:
            continue
        func = attempt.mod["main"]
        return Scheduled(func, "rows", tile.describe(), tile.grid, tile.block_size, tile.seconds)
    return None


def _shared_axes(output: Operator, reductions: list[Operator]) -> int | None:
    """How many leading output axes are rows of every reduction; ``None`` if they do not lead."""
    depths = set()
    for op in reductions:
        rows = [axis.extent for axis in op.spatial_axes if axis.extent > 1]
        leading = [axis.extent for axis in output.axes]
        count, seen = 0, []
        while seen != rows and count < len(leading):
            if leading[count] > 1:
                seen.append(leading[count])
            count += 1
        if seen != rows:
            return None
        depths.add(math.prod(leading[:count]))
    if len(depths) != 1:
        return None
    return _leading(output, depths.pop())


def _leading(output: Operator, rows: int) -> int | None:
    count = 0
    total = 1
    for axis in output.axes:
        if total == rows and axis.extent > 1:
            break
        total *= axis.extent
        count += 1
    return count if total == rows else None


def _write(sch: Schedule, form: NormalForm, shared: int, tile: RowTile) -> None:
    last = sch.get_sblock(form.outputs[0])
    loops = list(sch.get_loops(last))
    rows, inner = loops[:shared], loops[shared:]
    row = fuse(sch, rows) if rows else sch.add_unit_loop(loops[0])
    block, lane = sch.split(row, [None, tile.rows_per_block])
    sch.bind(block, "blockIdx.x")
    sch.bind(lane, "threadIdx.y")
    _spread(sch, last, inner, tile)
    for name in reversed(form.reductions):
        reduction = sch.get_sblock(name)
        sch.compute_at(reduction, lane, preserve_unit_loops=True)
        # In registers, each thread its copy: TVM's sum over threads ends in a broadcast. In shared
        # memory TVM leaves out the barrier behind a row's result (its index is threadIdx.y alone).
        sch.set_scope(reduction, 0, "local")
        kinds = [v.iter_type for v in sch.get(reduction).iter_vars]
        own = list(sch.get_loops(reduction))[2:]
        summed = [loop for loop, kind in zip(own, kinds, strict=True) if kind != 0]
        _spread(sch, reduction, summed, tile)


def _spread(sch: Schedule, block: SBlockRV, loops: list[LoopRV], tile: RowTile) -> None:
    flat = fuse(sch, loops) if loops else sch.add_unit_loop(block)
    _, thread = sch.split(flat, [None, tile.threads_per_row])
    sch.bind(thread, "threadIdx.x")


