"""Sliding windows staged in shared memory: pooling, depthwise convolution, global pooling.

A block stages what its outputs read, in one step; each thread sums the windows of a strip of
outputs. ``tile/window.py`` says which strips and blocks, ``staged.py`` writes them.
"""

from __future__ import annotations

from tvm_tile.schedule.rule import Scheduled, Task
from tvm_tile.schedule.staged import ATTEMPTS, draft
from tvm_tile.tile.classify import is_contraction
from tvm_tile.tile.window import construct_staged_window, is_staged_window


def schedule_window(task: Task) -> Scheduled | None:
    """Schedule a function with one reduction over short windows; ``None`` for any other."""
    found = draft(task)
    if found is None or is_contraction(found.operator) or not is_staged_window(found.operator):
        return None
    plans = construct_staged_window(found.operator, task.device, ATTEMPTS)
    return found.write_first(plans, "window")
