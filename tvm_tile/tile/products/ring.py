"""How many stages a ring has, how many blocks take tiles in turns, and what these do."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

from tvm_tile.device.device import Device
from tvm_tile.tile.products.store_work import SUM_BYTES, StoreWork, store_part
from tvm_tile.tile.products.warpgroup_tile import ROWS, WARPGROUP, RingTile, WarpgroupTile
from tvm_tile.tile.residency import divide_registers, launched_registers, shared_capacity
from tvm_tile.tile.time import WAVEFRONT, Part, Unit, Work
from tvm_tile.tile.units.sum_layout import MMA_SUMS, QUAD

SPLITS = (1, 2, 4, 8)  # larger clusters are not portable
_PAIR = 2  # blocks of a cluster that finds its place anywhere
_MOST_STAGES = 8
_NARROWEST = 64  # columns for which an instruction takes the time
_WARPS = WARPGROUP // MMA_SUMS.warp

AnyRing = TypeVar("AnyRing", bound=RingTile)


def fitted(tile: AnyRing, device: Device, fewest_stages: int, least_chunks: int) -> AnyRing | None:
    """The tile with its stages, grid and registers; ``None`` where it does not fit.

    Args:
        tile: the tile as far as it is known beforehand.
        device: the device that it is made for.
        fewest_stages: least number of stages for which the ring is worth its barriers.
        least_chunks: least number of chunks of each block that shares a sum.
    """
    units = device.multi_processor_count
    if tile.splits > 1 and not _can_split(tile, device, least_chunks):
        return None
    if tile.tiles <= (tile.blocks - 1 + tile.alternates) * units:
        return None  # fewer blocks, or consumers, have as much to do each
    free = shared_capacity(device, tile.blocks) - tile.fixed_bytes
    stages = min(_MOST_STAGES, free // tile.stage_bytes)
    launched = launched_registers(device, tile.blocks, tile.block_size)
    division = divide_registers(launched, tile.blocks, tile.consumers)
    own = launched if division is None else division[1]
    if stages < fewest_stages or own < tile.registers:
        return None
    return replace(
        tile,
        stages=stages,
        grid=min(tile.tiles * tile.splits, tile.blocks * units),
        shared_bytes=stages * tile.stage_bytes + tile.fixed_bytes,
        division=division,
    )


def _can_split(tile: RingTile, device: Device, least_chunks: int) -> bool:
    """Whether all clusters run at once, and each block has chunks enough of its own.

    A cluster lives in one group of multiprocessors. Larger ones do not fill every group.
    """
    last = tile.chunks - (tile.splits - 1) * tile.chunks_each
    share = 1 if tile.splits <= _PAIR else device.times.chip.cluster_share
    usable = device.multi_processor_count * share
    return tile.tiles * tile.splits <= usable and last >= least_chunks


def chunk_flops(tile: WarpgroupTile) -> int:
    """Operations of the tensor cores for a chunk, those included for which they idle.

    With half of the left operand's numbers an instruction takes as long as shared memory serves it:
    of twice the depth in the same time the right operand alone is 128 bytes a cycle.
    """
    read = 0 if tile.sparsity is None else ROWS // tile.lines  # columns as large as what is left
    return 2 * tile.block_rows * max(tile.width + read, _NARROWEST) * tile.depth


def ring_work(
    tile: WarpgroupTile,
    device: Device,
    chunk: Part,
    work: StoreWork,
    moved: tuple[int, int],
    dtype: str,
) -> Work:
    """What a kernel does whose blocks take tiles in turns and their chunks from a ring.

    Consumers that take tiles in turns are as blocks that share a multiprocessor, each with its
    share of a block's turns, of its stages and of its producer. All stages are asked for at the
    start: a block waits for the first chunk, and for those behind the ring's first round. Its warps
    are those that multiply: beside them only one thread does anything.

    Args:
        tile: how a product is computed.
        device: the device that computes it.
        chunk: a chunk's part, of a tile's consumers and the producer, without their waits.
        work: work on the sums before they are stored.
        moved: bytes of all operands, and of all outputs.
        dtype: the operands' type, as the device record's rates name it.
    """
    units, groups = device.multi_processor_count, tile.consumers // tile.sharers
    present = -(-tile.grid // units) * groups
    turns = -(-tile.tiles * tile.splits // units) / present  # of the busiest multiprocessor's
    chunks, stages = turns * tile.chunks_each * tile.walked, tile.stages / groups
    later = max(0.0, 1 - stages / chunks)
    ahead = max(1.0, stages - 1)  # the one that is multiplied is not free yet
    ring = replace(chunk, repeats=chunks, steps=1, loads=later, arrivals=later, ahead=ahead)
    closing = _split_parts(tile, work, moved[1]) if tile.splits > 1 else _store(tile, work, moved)
    return Work(
        blocks=tile.grid * groups,
        resident=tile.blocks * groups,
        warps=_WARPS * tile.sharers,
        parts=(
            Part(loads=1, arrivals=1, barriers=1),
            ring,
            *(replace(part, repeats=turns * part.repeats) for part in closing),
        ),
        read=moved[0] + work.read_bytes,
        written=moved[1],
        unit=Unit.GROUP,
        dtype=dtype,
    )


def _store(tile: WarpgroupTile, work: StoreWork, moved: tuple[int, int]) -> tuple[Part]:
    """The store of a tile's sums, behind its last instructions and in its consumers' turn."""
    shape = (_WARPS * tile.sharers, *tile.warp_sums)
    part = store_part(work, tile.layout, shape, moved[1], tile.tiles)
    handed = 1 / part.repeats if tile.alternates else 0
    return (replace(part, steps=1 / part.repeats, exchanges=part.exchanges + handed),)


def _split_parts(tile: WarpgroupTile, work: StoreWork, size: int) -> tuple[Part, Part]:
    """What a block does with its part of a tile's sums, and with its share of their totals.

    All blocks of a cluster wait for one another before the totals and behind them.

    Args:
        tile: how a product is computed.
        work: work on each total.
        size: bytes of all outputs.
    """
    warps = _WARPS * tile.consumers
    held = tile.instructions * tile.width / 2  # sums of a thread
    wavefronts = warps * held * MMA_SUMS.warp * SUM_BYTES / WAVEFRONT
    kept = Part(
        moves=warps * held / tile.layout.run,
        wavefronts=wavefronts,
        steps=1,
        meetings=2,
    )
    rounds = math.ceil(held / tile.splits / QUAD)
    each, shares = held / tile.splits / rounds, tile.tiles * tile.splits * rounds
    operations, moves = work.storing(warps, each)
    total = Part(
        repeats=rounds,
        fills=work.read_bytes / shares,
        # Stored one by one, each of a thread's four goes to the same sectors.
        stores=size * (1 if work.is_wide else QUAD) / shares,
        operations=operations + warps * each * (tile.splits - 1),
        moves=moves + warps * each / QUAD * tile.splits,
        wavefronts=wavefronts / rounds,
        loads=1 if work.loads else 0,
        exchanges=1,
    )
    return kept, total
