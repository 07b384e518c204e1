"""Matrix products and convolutions on the tensor cores of any NVIDIA GPU since Ampere.

``tensor_cores/found.py`` finds the product, ``tile/mma.py`` ranks tiles, ``kernel.py`` writes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tvm_tile.schedule.mma.kernel import write_kernel
from tvm_tile.schedule.rule import Choice, Scheduled, Task, as_written
from tvm_tile.schedule.tensor_cores.found import Found, find_in
from tvm_tile.schedule.tensor_cores.work import store_work
from tvm_tile.tile.mma import (
    LEAST_DEPTH,
    MmaTile,
    construct_mma,
    least_mma_seconds,
    mma_dtypes,
)
from tvm_tile.tile.product import fold_window
from tvm_tile.tile.rules import MMA


def schedule_mma(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for a product of dtypes that the device multiplies a warp at a time."""
    found = find_in(task, mma_dtypes(task.device))
    if found is None:
        return ()
    product = fold_window(found.product, LEAST_DEPTH)
    own, work = replace(found, product=product), store_work(found.epilogue, product)
    return tuple(
        Choice.of(MMA, tile, partial(_written, own, tile))
        for tile in construct_mma(product, task.device, count, work)
    )


def least_seconds(task: Task) -> float:
    """Predicted time that no tile for a function can be below; infinite where there is none."""
    if len(task.graph.reductions) != 1:
        return math.inf
    (reduction,) = task.graph.reductions
    dtypes = mma_dtypes(task.device).intersection(read.tensor.dtype for read in reduction.reads)
    depth = math.prod(axis.extent for axis in reduction.reduce_axes)
    found = (least_mma_seconds(d, reduction.points, depth, task.device) for d in dtypes)
    return min(found, default=math.inf)


def _written(found: Found, tile: MmaTile) -> Scheduled:
    return as_written(write_kernel(found, tile), MMA, tile)
