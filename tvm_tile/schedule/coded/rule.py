"""Offers tiles for products of few vectors with matrices of codes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tvm_tile.schedule.coded.find import find_coded
from tvm_tile.schedule.coded.kernel import write_coded
from tvm_tile.schedule.rule import Choice, Task, choices_of
from tvm_tile.tile.coded import construct_coded
from tvm_tile.tile.mma import mma_dtypes
from tvm_tile.tile.rules import CODED


def schedule_coded(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for a product whose matrix the function decodes; none for any other."""
    if not mma_dtypes(task.device):
        return ()
    found = find_coded(task)
    if found is None:
        return ()
    tiles = construct_coded(found.sizes, task.device)
    return choices_of(CODED, tiles[:count], partial(write_coded, found))
