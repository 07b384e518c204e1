"""Matrix products and convolutions on CUDA cores, staged through shared memory.

``tile/construct.py`` ranks their tiles, ``staged.py`` writes them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm_tile.schedule.rule import Choice, Task
from tvm_tile.schedule.staged import draft
from tvm_tile.tile.construct import construct_contraction
from tvm_tile.tile.rules import CONTRACTION


def schedule_contraction(task: Task, count: int) -> Sequence[Choice]:
    """The best-ranked tiles for a product or convolution; none if it is neither."""
    found = draft(task)
    if found is None:
        return ()
    plans = construct_contraction(found.operator, task.device, count)
    return found.choices(plans, CONTRACTION)
