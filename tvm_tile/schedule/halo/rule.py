"""A product, windows over its values, perhaps a second product: one kernel, tiles with halos."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tvm_tile.schedule.halo.find import find_halo
from tvm_tile.schedule.halo.kernel import write_halo
from tvm_tile.schedule.rule import Choice, Task, choices_of
from tvm_tile.tile.products.halo import construct_halo
from tvm_tile.tile.rules import HALO


def schedule_halo(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for an inverted bottleneck, its first half, or a feed-forward block."""
    found = find_halo(task)
    if found is None:
        return ()
    tiles = construct_halo(found.halo, task.device, count, task.scene)
    return choices_of(HALO, tiles, partial(write_halo, found))
