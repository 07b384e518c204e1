"""Attention, and feed-forward networks, on Hopper's tensor cores.

``attention/find.py`` finds the two products and what lies between them,
``tile/attention/warpgroups.py`` ranks tiles, ``kernel.py`` writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tvm_tile.schedule.attention.find import find_chain
from tvm_tile.schedule.attention.listed import with_listed
from tvm_tile.schedule.chain.kernel import write_chain
from tvm_tile.schedule.rule import Choice, Task, choices_of
from tvm_tile.tile.attention.warpgroups import construct_chain
from tvm_tile.tile.rules import CHAIN


def schedule_chain(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for two products, one behind the other, perhaps with a softmax in between."""
    found = find_chain(task)
    if found is None:
        return ()
    found = with_listed(found, task.func)
    tiles = construct_chain(found.chain, task.device, count, task.scene)
    return choices_of(CHAIN, tiles, partial(write_chain, found))
