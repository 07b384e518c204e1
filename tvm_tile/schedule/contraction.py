"""Matrix products and convolutions on CUDA cores, staged through shared memory.

``tile/construct.py`` ranks their tiles, ``staged.py`` writes them.
"""

from __future__ import annotations

from tvm_tile.schedule.rule import Scheduled, Task
from tvm_tile.schedule.staged import ATTEMPTS, Draft, draft
from tvm_tile.tile.classify import is_contraction
from tvm_tile.tile.construct import construct_contraction


def schedule_contraction(task: Task) -> Scheduled | None:
    """The best-ranked tile for a product or convolution; ``None`` if it is neither."""
    own = _own_draft(task)
    if own is None:
        return None
    plans = construct_contraction(own.operator, task.device, ATTEMPTS)
    return own.write_first(plans, "contraction")


def candidates(task: Task, ranks: tuple[int, ...]) -> dict[int, Scheduled]:
    """Schedules of the tiles at ``ranks`` (0 is the model's choice) that TVM can write.

    Empty if the function is no product or convolution.
    """
    own = _own_draft(task)
    if own is None:
        return {}
    plans = construct_contraction(own.operator, task.device, max(ranks) + 1)
    written = {r: own.write(plans[r], "contraction") for r in ranks if r < len(plans)}
    return {rank: done for rank, done in written.items() if done is not None}


def _own_draft(task: Task) -> Draft | None:
    found = draft(task)
    return found if found is not None and is_contraction(found.operator) else None
