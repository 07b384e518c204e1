"""Attention on whatever multiplies an element type: two products with a softmax in between.

``find.py`` finds them, ``tile/attention.py`` ranks tiles, ``kernel.py`` writes the walk through the
keys, and a unit (``cores.py``) what is done with a tile of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tvm_tile.device.device import Device
from tvm_tile.schedule.attention.cores import write_on_cores
from tvm_tile.schedule.attention.find import Found, find_chain
from tvm_tile.schedule.rule import Choice, Scheduled, Task, as_written
from tvm_tile.tile.attention import CoreTile, construct_core_attention
from tvm_tile.tile.rules import ATTENTION


def schedule_attention(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for two products, one behind the other, with a softmax in between."""
    found = find_chain(task)
    if found is None:
        return ()
    tiles = construct_core_attention(found.chain, task.device, count)
    return tuple(partial(_written, found, task.device, tile) for tile in tiles)


def _written(found: Found, device: Device, tile: CoreTile) -> Scheduled:
    return as_written(write_on_cores(found, tile, device), ATTENTION, tile)
