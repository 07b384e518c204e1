"""The frame of warp-specialised kernels: a warpgroup fills a ring of stages, others empty it.

What :func:`specialise` writes, with registers moved from the producer to the consumers::

    producer (a warpgroup)                      consumers (each a warpgroup)
    for tile, chunk:                            for tile:
        wait until stage is empty                   for chunk:
        stage.full expects the chunk's bytes            wait until stage is full
        copy the chunk's boxes to stage                 begin to multiply what is in stage
                                                        stage before this one is empty
                                                    store epilogue(sums)

Why this is free of races: a stage is written only after all consumers have said that it is empty,
each once a round, and read only after the copy engine has said that all of its bytes are there. A
consumer gives back a stage when it has waited for all products that read it. Both sides go round
the ring in the same order, so each knows the parity of the round that it waits for: a full
barrier's first round has parity 0, and the producer's first wait is for the round before the first,
which counts as done.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.device.device import STATIC_SHARED_LIMIT
from tvm_tile.schedule.pipelines.walk import PersistentBlock, PersistentTile
from tvm_tile.tile.warpgroup_tile import BARRIER_BYTES, WARPGROUP

_LEAST_BLOCKS = "tirx.launch_bounds_min_blocks_per_sm"


def stages_of(tile: PersistentTile) -> Any:
    """Shared memory for a tile's stages, and behind them for what its sums go out through.

    Launches ask for more than the static limit only where this exceeds it alone, whatever the
    barriers take besides.
    """
    size = tile.stages * tile.stage_bytes + math.prod(tile.store_shape) * 4
    if STATIC_SHARED_LIMIT - BARRIER_BYTES < size <= STATIC_SHARED_LIMIT:
        size = STATIC_SHARED_LIMIT + 1
    return ib.alloc_buffer((size,), "uint8", scope="shared.dyn", align=1024)


def sums_behind(tile: PersistentTile, data: Any, dtype: str) -> Any:
    """What is behind the stages in :func:`stages_of`, as sums of a type of four bytes."""
    start = tile.stages * tile.stage_bytes // 4
    return ib.decl_buffer(
        tile.store_shape, dtype, data=data.data, elem_offset=start, scope="shared.dyn"
    )


def specialise_block(
    block: PersistentBlock, produce: Callable[[], None], consume: Callable[[], None]
) -> None:
    """Write both roles of a block that shares its multiprocessor as its tile says."""
    with ib.attr({_LEAST_BLOCKS: block.tile.blocks}):
        specialise(block.thread, block.tile.division, produce, consume)


def specialise(
    thread: Any,
    division: tuple[int, int] | None,
    produce: Callable[[], None],
    consume: Callable[[], None],
) -> None:
    """Write both roles.

    Args:
        thread: its number in the block, whose first warpgroup produces.
        division: registers of a producer's and of a consumer's thread; ``None`` as launched.
        produce: writes what the producer's threads do.
        consume: writes what all others do.
    """
    with ib.If(thread < WARPGROUP):
        for role, frame in enumerate((ib.Then, ib.Else)):
            with frame():
                if division is not None:
                    name = f"setmaxnreg.{('dec', 'inc')[role]}.sync.aligned.u32"
                    ib.evaluate(T.ptx[name](division[role]))
                (produce, consume)[role]()
