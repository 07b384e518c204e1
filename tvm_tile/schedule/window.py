"""Sliding windows staged in shared memory: pooling, depthwise convolution, global pooling.

A block stages what its outputs read, in one step; each thread sums the windows of a strip of
outputs. ``tile/window.py`` says which strips and blocks, ``staged.py`` writes them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm_tile.schedule.rule import Choice, Task
from tvm_tile.schedule.staged import draft
from tvm_tile.tile.classify import is_contraction
from tvm_tile.tile.window import construct_staged_window, is_staged_window


def schedule_window(task: Task, count: int) -> Sequence[Choice]:
    """The best-ranked tiles for one reduction over short windows; none for anything else."""
    found = draft(task)
    if found is None or is_contraction(found.operator) or not is_staged_window(found.operator):
        return ()
    plans = construct_staged_window(found.operator, task.device, count)
    return found.choices(plans, "window")
