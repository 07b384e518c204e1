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
``tile/windows/strips.py`` says how long they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tvm import ir, tirx

from tvm_tile.graph.extract import nodes_in
from tvm_tile.schedule.rule import Choice, Task, choices_of
from tvm_tile.schedule.s_tir.strips import write_strips
from tvm_tile.schedule.s_tir.window_blocks import read_blocks, sources_of
from tvm_tile.tile.classify import is_contraction
from tvm_tile.tile.rules import WINDOW
from tvm_tile.tile.windows.strips import construct_strips


def schedule_window(task: Task, count: int) -> Sequence[Choice]:
    """The best-ranked strips for one reduction over a sliding window; none for anything else."""
    if len(task.graph.reductions) != 1:
        return ()
    blocks = read_blocks(task.func)
    if blocks is None or is_contraction(blocks.operator):
        return ()
    after = blocks.after
    # Some operation of it may take a slow path of its own.
    divides = after is not None and bool(nodes_in(after.body.value, tirx.Div, ir.Call))
    traffic = task.graph.traffic
    operator, sources = blocks.operator, sources_of(blocks)
    tiles = construct_strips(
        operator,
        task.device,
        traffic,
        count=count,
        divides=divides,
        sources=sources,
        scene=task.scene,
    )
    return choices_of(WINDOW, tiles, partial(write_strips, blocks))
