"""Numbers that the model of time needs of a chip besides its rates: one class for all kernels.

They are normalised, so that they hold for a family of chips: ``_cycles`` are cycles of the chip's
own clock, ``_slots`` issue slots, in each of which a scheduler of a multiprocessor starts one
instruction of a warp, ``_share`` is a share of a rate that the device record has, and ``_power`` an
exponent by which times that overlap in part add up: one where nothing overlaps, infinity where only
the longest counts. :mod:`tvm_tile.calibrate.fit` finds them by measuring tiles of kernels.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnitTimes:
    """A matrix unit, as one instruction set drives it.

    Attributes:
        rate_share: share of the record's rate that its instructions reach.
        step_cycles: cycles of an instruction that waits for the one before it, operands included.
        arrival_cycles: cycles from asking for a chunk of operands until it may be multiplied,
            besides the trip to memory.
        block_cycles: cycles of a block's start and end on top of those of any block.
    """

    rate_share: float
    step_cycles: float
    arrival_cycles: float
    block_cycles: float


@dataclass(frozen=True, slots=True)
class ChipTimes:
    """A chip, whatever kernel runs on it (``tile/time.py``).

    Attributes:
        origin: what the numbers were fitted to, with their errors, in words.
        cold_start_cycles: start of a kernel whose code and operands are in no cache, and its end.
        start_cycles: start of a kernel behind another one of a graph, and its end.
        block_cycles: cycles in which a block begins and ends.
        dispatch_cycles: cycles from one block that a multiprocessor is given to the next.
        memory_cycles: a load from global memory.
        cache_cycles: a load from the second-level cache.
        barrier_cycles: a barrier of a block's threads.
        barrier_warp_cycles: more, for each warp of the block.
        meeting_cycles: blocks of a cluster wait for one another, and their launch together.
        exchange_cycles: a shuffle, or a trip through shared memory.
        slot_cycles: cycles from one instruction of a warp to its next, where no other warp is.
        issue_share: share of the issue slots that instructions fill.
        move_slots: slots of an instruction that loads, stores or copies, with its address.
        part_slots: slots of a warp for the loop around what it repeats.
        wavefront_cycles: cycles of one wavefront of shared memory.
        kept_share: share of the second-level cache's capacity in which data is found again.
        cache_share: share of the second-level cache's bandwidth that loads reach.
        store_share: share of that bandwidth that stores reach.
        memory_tail: share of the time for global memory's bytes by which a kernel's last blocks end
            later than the others, if all of them run at once; blocks that follow others make up for
            it.
        cluster_share: share of the multiprocessors that clusters of more than two blocks can use.
        part_power: exponent by which what one block does adds up.
        block_power: exponent by which a block's own time and that of shared resources add up.
        memory_power: exponent by which the busiest multiprocessor and global memory add up.
        warp_unit: products by a warp's instructions; None where there are none.
        group_unit: products by a warpgroup's instructions; None where there are none.
        wave_unit: products by a wave's instructions, AMD's; None where there are none.
    """

    origin: str
    cold_start_cycles: float
    start_cycles: float
    block_cycles: float
    dispatch_cycles: float
    memory_cycles: float
    cache_cycles: float
    barrier_cycles: float
    barrier_warp_cycles: float
    meeting_cycles: float
    exchange_cycles: float
    slot_cycles: float
    issue_share: float
    move_slots: float
    part_slots: float
    wavefront_cycles: float
    kept_share: float
    cache_share: float
    store_share: float
    memory_tail: float
    cluster_share: float
    part_power: float
    block_power: float
    memory_power: float
    warp_unit: UnitTimes | None
    group_unit: UnitTimes | None
    wave_unit: UnitTimes | None
