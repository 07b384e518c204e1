"""Attention on whatever multiplies an element type: two products with a softmax in between.

``find.py`` finds them, ``tile/warp_attention.py`` and ``tile/attention.py`` rank tiles,
``kernel.py`` writes the walk through the keys, and a unit (``mma_warps.py``, ``waves.py``,
``cores.py``) what is done with a tile of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tvm_tile.device.device import Device
from tvm_tile.schedule.attention.cores import write_on_cores
from tvm_tile.schedule.attention.find import AttentionMatch, find_chain
from tvm_tile.schedule.attention.mma_warps import write_with_mma
from tvm_tile.schedule.attention.waves import write_with_waves
from tvm_tile.schedule.rule import Choice, Scheduled, Task, as_written
from tvm_tile.tile.attention import CoreTile, construct_core_attention
from tvm_tile.tile.rules import ATTENTION, WARP_ATTENTION
from tvm_tile.tile.unit import WaveUnit
from tvm_tile.tile.warp_attention import WarpAttentionTile, construct_warp_attention


def schedule_attention(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for two products, one behind the other, with a softmax in between."""
    found = find_chain(task)
    if found is None:
        return ()
    warps = construct_warp_attention(found.chain, task.device, count)
    if warps:
        return tuple(
            Choice.of(WARP_ATTENTION, tile, partial(_with_warps, found, tile)) for tile in warps
        )
    tiles = construct_core_attention(found.chain, task.device, count)
    return tuple(
        Choice.of(ATTENTION, tile, partial(_on_cores, found, task.device, tile)) for tile in tiles
    )


def _with_warps(found: AttentionMatch, tile: WarpAttentionTile) -> Scheduled:
    if isinstance(tile.unit, WaveUnit):
        return as_written(write_with_waves(found, tile, tile.unit), WARP_ATTENTION, tile)
    return as_written(write_with_mma(found, tile), WARP_ATTENTION, tile)


def _on_cores(found: AttentionMatch, device: Device, tile: CoreTile) -> Scheduled:
    return as_written(write_on_cores(found, tile, device), ATTENTION, tile)
