"""Parameters of the time models whose kernels compute on CUDA cores, one class a kernel family.

Every number is normalised, so that it holds for a whole family of chips: ``_cycles`` are cycles of
the chip's own clock; ``_slots`` are issue slots, in each of which one scheduler of a
multiprocessor starts one instruction of a warp; ``_share`` is a share of a rate that the device
record has; ``_power`` is the exponent with which times that overlap in part add up (one: no
overlap, infinity: only the longest counts). ``origin`` says what a class's numbers were measured
or estimated from.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContractionTimes:
    """Products and convolutions staged in shared memory (``tile/cost.py``).

    Cycles are those at which the multiply-adds of the record's peak are sustained.

    Attributes:
        origin: provenance of the numbers, in words.
        exposed_cycles: cycles of a step in which a block waits for its loads and barriers.
        barrier_cycles: cycles of a step in which a block waits for barriers, if operands are loaded
            a step ahead.
        barrier_warp_cycles: cycles on top for each warp that a block's barriers gather.
        hiding_power: exponent of the number of resident blocks by which such waits are divided.
        start_cycles: start of a kernel, its first loads with a cold cache, its end.
        issue_share: share of the issue slots of these cycles that instructions fill.
        lost_slots: slots that a thread loses for each position of the sum, waiting for loads.
        wavefront_cycles: cycles of one wavefront of shared memory.
        cache_share: share of the second-level cache's bandwidth that staging loads reach.
        store_share: share of that bandwidth that stores reach, a sector each.
        overlap_power: exponent by which issue, wavefronts and cache traffic of a step add up.
        copy_slots: slots of one staging load and store, with their addresses.
        copy_stall_cycles: cycles that a warp waits for one of its staging loads.
    """

    origin: str
    exposed_cycles: float
    barrier_cycles: float
    barrier_warp_cycles: float
    hiding_power: float
    start_cycles: float
    issue_share: float
    lost_slots: float
    wavefront_cycles: float
    cache_share: float
    store_share: float
    overlap_power: float
    copy_slots: float
    copy_stall_cycles: float


@dataclass(frozen=True, slots=True)
class WindowTimes:
    """Sliding windows, pooling and depthwise convolution (``tile/windows/strips.py``).

    Cycles are those at which the multiply-adds of the record's peak are sustained.

    Attributes:
        origin: provenance of the numbers, in words.
        load_slots: slots of an element that may be padding: a read, and a zero before it.
        test_slots: more, where its row may be padding, too.
        convert_slots: slots of an element that is widened to a larger type.
        store_slots: slots of a store.
        division_slots: slots of a division by the number of points.
        start_slots: slots of a thread's start: its place in the grid and in the tensors.
        issue_share: share of the issue slots that instructions fill.
        request_sectors: sectors that a warp's load or store costs besides its own.
        sectors_a_cycle: sectors that the first-level cache gives a warp in a cycle.
        cache_share: share of the second-level cache's bandwidth that reads reach.
        store_share: share of that bandwidth that stores reach, a sector each.
        block_cycles: a block's start, its first loads, its last stores.
        row_cycles: cycles of waiting for rows that are read together.
        rows_in_flight: rows that are read together.
        overlap_power: exponent by which the bounds of a kernel's time add up.
    """

    origin: str
    load_slots: float
    test_slots: float
    convert_slots: float
    store_slots: float
    division_slots: float
    start_slots: float
    issue_share: float
    request_sectors: float
    sectors_a_cycle: float
    cache_share: float
    store_share: float
    block_cycles: float
    row_cycles: float
    rows_in_flight: float
    overlap_power: float


@dataclass(frozen=True, slots=True)
class ReductionTimes:
    """Sums without reuse, and kernels that add the parts of sums (``tile/rows/reduce.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        round_trip_cycles: a block's start, a dependent load, the tree of partial sums.
        lone_bandwidth: bandwidth of global memory for a multiprocessor that reads alone, in
            multiples of its share where all read.
    """

    origin: str
    round_trip_cycles: float
    lone_bandwidth: float


@dataclass(frozen=True, slots=True)
class RowTimes:
    """Chains of reductions over the same rows, which they read again (``tile/rows/rows.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        stage_cycles: one pass over a cached row, with its tree of partial sums.
    """

    origin: str
    stage_cycles: float


@dataclass(frozen=True, slots=True)
class HeldRowTimes:
    """Chains of reductions whose rows are held in registers (``tile/rows/held_rows.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        round_trip_cycles: a block's start, a load under load, the last store.
        block_cycles: cycles that a multiprocessor takes to start a block.
        shuffle_cycles: cycles of one level of a tree of partial sums.
        barrier_cycles: cycles that several warps take to share partial sums.
        level_slots: slots of a warp for one level of a tree.
    """

    origin: str
    round_trip_cycles: float
    block_cycles: float
    shuffle_cycles: float
    barrier_cycles: float
    level_slots: float


@dataclass(frozen=True, slots=True)
class ElementwiseTimes:
    """Element-wise operators (``tile/moves/plain.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        block_cycles: a block's start, one round trip to memory, its end.
    """

    origin: str
    block_cycles: float


@dataclass(frozen=True, slots=True)
class TransposeTimes:
    """Copies whose output lies in another order than what they read (``tile/moves/transpose.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        unused_sector: cost of an unused sector of a line of four, as a share of a sector's time.
        thread_slots: slots of a warp, whatever its threads copy.
        element_slots: more, for one element of each of its threads.
        load_slots: more, for each load.
        staged_slots: slots of an element that goes through shared memory.
        block_cycles: a block's start, one round trip to memory, its end.
        staged_block_cycles: cycles of a block that has a barrier and shared memory in between.
    """

    origin: str
    unused_sector: float
    thread_slots: float
    element_slots: float
    load_slots: float
    staged_slots: float
    block_cycles: float
    staged_block_cycles: float


@dataclass(frozen=True, slots=True)
class MatvecTimes:
    """Products of a long operand with a few vectors (``tile/few_rows/matvec.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        load_cycles: cycles of a load where memory is busy.
        start_cycles: cycles of a kernel's first loads and its end.
        overlap_power: exponent by which memory, cache, issue and waits add up.
        run_sectors: sectors that a run of neighbouring elements costs on top of its own.
        loop_slots: slots of a warp in a step, besides loads and arithmetic.
        block_cycles: cycles from the end of a block to the first loads of the next one.
        barrier_cycles: a barrier, a store and a load of shared memory.
        shuffle_cycles: cycles of one step of a tree of shuffles.
        add_cycles: cycles of one load from shared memory in a row of loads that are added up.
    """

    origin: str
    load_cycles: float
    start_cycles: float
    overlap_power: float
    run_sectors: float
    loop_slots: float
    block_cycles: float
    barrier_cycles: float
    shuffle_cycles: float
    add_cycles: float


@dataclass(frozen=True, slots=True)
class CodedTimes:
    """Products of few vectors with a matrix of codes of a few bits (``tile/coded/few_vectors.py``).

    Matrix units multiply, but what their warps do in the main is to decode, on CUDA cores.

    Attributes:
        origin: provenance of the numbers, in words.
        load_cycles: cycles of a load where memory is busy.
        step_cycles: cycles that a warp takes for one instruction of a matrix unit, its codes'
            decoding included, where no other warp is in its way.
        start_cycles: cycles of a kernel's start, its first loads with a cold cache, and its end.
        closing_cycles: cycles of a block's start, its sums' way through shared memory, and its
            stores.
        overlap_power: exponent by which memory, cache, issue, matrix units and waits add up.
    """

    origin: str
    load_cycles: float
    step_cycles: float
    start_cycles: float
    closing_cycles: float
    overlap_power: float


@dataclass(frozen=True, slots=True)
class CoreAttentionTimes:
    """Two products with rows' softmax in between (``tile/attention/cores.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        weight_slots: slots of one weight: scale, maximum, exponential, sum, store.
        copy_slots: slots of one vector's way from global to shared memory.
        row_slots: slots of one row of a step: its maximum and its scale.
        issue_share: share of the issue slots that instructions fill.
        load_wavefronts: wavefronts of shared memory for a warp's load of vectors.
        step_cycles: a block's wait for the keys, for the values and for its threads.
        hiding_power: exponent of the number of resident blocks by which such waits are divided.
        block_cycles: a block's wait for its queries, and its stores.
        start_cycles: cycles of a kernel's start and its end.
        memory_share: share of global memory's bandwidth for reading.
        cache_share: share of the second-level cache's bandwidth that fills reach.
    """

    origin: str
    weight_slots: float
    copy_slots: float
    row_slots: float
    issue_share: float
    load_wavefronts: float
    step_cycles: float
    hiding_power: float
    block_cycles: float
    start_cycles: float
    memory_share: float
    cache_share: float


@dataclass(frozen=True, slots=True)
class DecodeTimes:
    """Attention of few queries, bound by reading keys and values (``tile/attention/decode.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        start_cycles: cycles of a kernel's start, its look at the mask, and its end.
        fetch_cycles: cycles from asking for a tile of keys and values until its weights are added
            up.
        merge_cycles: a block's barriers between its workers' sums and its own.
        cluster_cycles: two waits of a cluster's blocks, and loads of each other's sums.
        add_cycles: cycles of adding one number of a worker to those of others.
        lone_bandwidth: bandwidth of global memory for a multiprocessor that reads alone, in
            multiples of its share where all read.
        copy_slots: slots of one vector's way from global to shared memory.
        row_slots: slots of one row of a tile: its mask, its maximum, its weights and their sum.
    """

    origin: str
    start_cycles: float
    fetch_cycles: float
    merge_cycles: float
    cluster_cycles: float
    add_cycles: float
    lone_bandwidth: float
    copy_slots: float
    row_slots: float


@dataclass(frozen=True, slots=True)
class GateTimes:
    """Recurrent cells: products of few rows and what follows (``tile/few_rows/gates.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        load_cycles: cycles of a load where memory is busy.
        start_cycles: cycles of a kernel's first loads and its end.
        overlap_power: exponent by which memory, cache, issue and waits add up.
        loop_slots: slots of a warp in a step, besides loads and arithmetic.
        block_cycles: cycles from the end of a block to the first loads of the next one.
        barrier_cycles: a barrier, a store and a load of shared memory.
        shuffle_cycles: cycles of one step of a tree of shuffles.
        operation_cycles: cycles of an operation that waits for the one before it.
    """

    origin: str
    load_cycles: float
    start_cycles: float
    overlap_power: float
    loop_slots: float
    block_cycles: float
    barrier_cycles: float
    shuffle_cycles: float
    operation_cycles: float


@dataclass(frozen=True, slots=True)
class ScanTimes:
    """Running sums along rows (``tile/rows/scan.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        kernel_cycles: cycles of a kernel's way to memory and back, and of its barriers.
    """

    origin: str
    kernel_cycles: float


@dataclass(frozen=True, slots=True)
class SortTimes:
    """Sorts of rows by merging (``tile/rows/sort.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        step_cycles: cycles of a step of a merge in shared memory: a search, and two barriers.
        merge_cycles: cycles of a kernel that merges in global memory.
    """

    origin: str
    step_cycles: float
    merge_cycles: float
