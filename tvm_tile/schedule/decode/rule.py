"""Attention of few queries, such as a language model's step by one token, read at full speed.

``find.py`` finds it, ``visible.py`` what a mask lets rows see, ``tile/attention/decode.py`` ranks
tiles, ``kernel.py`` writes them for workers, which are warps or blocks (``worker.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tvm_tile.schedule.decode.find import DecodeMatch, find_decode
from tvm_tile.schedule.decode.kernel import write_decode
from tvm_tile.schedule.rule import Choice, Task, choices_of
from tvm_tile.tile.attention.decode import construct_decode
from tvm_tile.tile.attention.decode_tile import DecodeTile
from tvm_tile.tile.rules import DECODE


def schedule_decode(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for two products of few rows, with a softmax in between."""
    found = find_decode(task)
    if found is None:
        return ()
    tiles = construct_decode(found.decode, task.device, count, task.scene)
    return decode_choices(task, found, tiles)


def decode_choices(
    task: Task, found: DecodeMatch, tiles: Sequence[DecodeTile]
) -> tuple[Choice, ...]:
    """The choices of some tiles for what was found in a function."""
    return choices_of(DECODE, tiles, partial(write_decode, task.device, found))
