"""Sliding windows staged in shared memory: pooling, depthwise convolution, global pooling.

The kernel is that of ``contraction.py`` with one step: a block stages what its outputs read, each
thread sums the windows of a strip of outputs. ``tile/window.py`` says which strips and blocks.
"""

from __future__ import annotations

from tvm.s_tir import Schedule

from tvm_tile.schedule.contraction import read_operator, write_contraction
from tvm_tile.schedule.normalize import inline_spatial
from tvm_tile.schedule.padding import clamp_padding
from tvm_tile.schedule.rule import Scheduled, Task
from tvm_tile.tile.classify import is_contraction
from tvm_tile.tile.window import construct_staged_window, is_staged_window

# TVM cannot analyse every combination of splits; then the next best tile is written.
_ATTEMPTS = 4


def schedule_window(task: Task) -> Scheduled | None:
    """Schedule a function with one reduction over short windows; ``None`` for any other."""
    if len(task.graph.reductions) != 1:
        return None
    sch = Schedule(clamp_padding(task.func))
    form = inline_spatial(sch, keep_producers=True)
    if form is None or len(form.reductions) != 1 or len(form.outputs) > 1:
        return None
    operator = read_operator(sch, form)
    if operator is None or is_contraction(operator) or not is_staged_window(operator):
        return None
    for plan in construct_staged_window(operator, task.device, _ATTEMPTS):
        func = write_contraction(sch.copy(), form, plan, task.device)
        if func is not None:
            tile, seconds = plan.program.describe(), plan.cost.seconds
            return Scheduled(func, "window", tile, plan.grid_size, plan.block_size, seconds)
    return None
