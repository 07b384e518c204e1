"""Blocks that walk through the keys of attention: which rows they take, and how long it takes.

What is said here is the same for every unit that multiplies; how many cycles a step takes is for
``cores.py`` and ``warps.py`` to say.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm_tile.device.core_times import CoreAttentionTimes
from tvm_tile.device.device import Device
from tvm_tile.device.matrix_times import WarpAttentionTimes
from tvm_tile.tile.attention.chain import Chain
from tvm_tile.tile.attention.rounds import WalkingTile
from tvm_tile.tile.residency import given_blocks


def walk_seconds(
    chain: Chain,
    device: Device,
    tile: WalkingTile,
    times: CoreAttentionTimes | WarpAttentionTimes,
    step_cycles: Callable[[int], float],
) -> float:
    """Rounds of blocks, each as long as its multiprocessors' blocks take together; the memory.

    Args:
        chain: the chain that is computed.
        device: the device that computes it.
        tile: how.
        times: parameters for the unit that multiplies.
        step_cycles: cycles of a multiprocessor for one step of each resident block, as a function
            of their number.

    Returns:
        Seconds; infinity where no block fits.
    """
    most = given_blocks(device, tile)
    if not most:
        return math.inf
    units = device.multi_processor_count
    full, rest = divmod(tile.grid, units * most)
    steps = sum(tile.rounds.lengths) / len(tile.rounds.lengths)
    cycles = times.start_cycles
    for turns, resident in ((full, most), (rest > 0, -(-rest // units))):
        cycles += turns * (times.block_cycles + steps * step_cycles(resident))
    stream = chain.traffic / (device.read_bandwidth * times.memory_share)
    return device.launch_latency + max(cycles / device.clock, stream)


def walked_steps(tile: WalkingTile, device: Device) -> float:
    """Steps of a block that counts: the longest where each has a multiprocessor, else the mean."""
    lengths = tile.rounds.lengths
    is_alone = tile.grid <= device.multi_processor_count
    return max(lengths) if is_alone else sum(lengths) / len(lengths)


def waiting_cycles(times: CoreAttentionTimes | WarpAttentionTimes, resident: int) -> float:
    """Cycles of a step in which all ``resident`` blocks of a multiprocessor wait."""
    return times.step_cycles / max(1, resident) ** times.hiding_power


def fill_cycles(device: Device, size: int) -> float:
    """Cycles until ``size`` bytes have come to a multiprocessor from the second-level cache."""
    rate = device.l2_bandwidth * device.times.attention.cache_share / device.multi_processor_count
    return size / rate * device.clock
