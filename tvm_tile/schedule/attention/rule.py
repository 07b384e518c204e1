"""Two products, one behind the other, on whatever multiplies an element type.

Attention has a softmax in between, a feed-forward network an activation.

``find.py`` finds them, ``tile/attention/warps.py`` and ``tile/attention/cores.py`` rank tiles,
``kernel.py`` writes the walk through the keys, and a unit (``mma_warps.py``, ``waves.py``,
``cores.py``) what is done with a tile of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tvm import tirx

from tvm_tile.schedule.attention.cores import write_on_cores
from tvm_tile.schedule.attention.find import AttentionMatch, find_chain
from tvm_tile.schedule.attention.mma_warps import write_with_mma
from tvm_tile.schedule.attention.waves import write_with_waves
from tvm_tile.schedule.rule import Choice, Task, choices_of
from tvm_tile.tile.attention.cores import construct_core_attention
from tvm_tile.tile.attention.warps import WarpAttentionTile, construct_warp_attention
from tvm_tile.tile.rules import ATTENTION, WARP_ATTENTION
from tvm_tile.tile.units.unit import WaveUnit


def schedule_attention(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for two products, one behind the other, perhaps with a softmax in between."""
    found = find_chain(task)
    if found is None:
        return ()
    warps = construct_warp_attention(found.chain, task.device, count, task.scene)
    if warps:
        return choices_of(WARP_ATTENTION, warps, partial(_with_warps, found))
    tiles = construct_core_attention(found.chain, task.device, count, task.scene)
    return choices_of(ATTENTION, tiles, partial(write_on_cores, task.device, found))


def _with_warps(found: AttentionMatch, tile: WarpAttentionTile) -> tirx.PrimFunc:
    """The function by the tile's unit: AMD's waves, or NVIDIA's mma."""
    if isinstance(tile.unit, WaveUnit):
        return write_with_waves(found, tile, tile.unit)
    return write_with_mma(found, tile)
