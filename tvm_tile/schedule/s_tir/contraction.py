"""Matrix products and convolutions on CUDA cores, staged through shared memory.

``tile/construct.py`` ranks their tiles, ``staged.py`` writes them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm_tile.schedule.rule import Choice, Task
from tvm_tile.schedule.s_tir.staged import draft
from tvm_tile.tile.construct import construct_contraction
from tvm_tile.tile.rules import CONTRACTION
from tvm_tile.tile.time import least_product_seconds


def schedule_contraction(task: Task, count: int) -> Sequence[Choice]:
    """The best-ranked tiles for a product or convolution; none if it is neither, or all take longer
    than another rule's."""
    found = draft(task)
    if found is None:
        return ()
    scene, below = task.scene, task.below
    tiles = construct_contraction(found.operator, task.device, count, scene, below=below)
    return found.choices(tiles, CONTRACTION)


def least_seconds(task: Task) -> float:
    """Predicted time that no tile for a product or convolution can be below."""
    products = sum(operator.points for operator in task.graph.reductions)
    return least_product_seconds(2 * products, "", task.device)
