"""Parameters of the time models whose kernels compute on matrix units, one class a kernel family.

They are normalised as :mod:`tvm_tile.device.core_times` says. A share of a *measured* rate may be
above one: limits add up as norms of a low power do, more than the largest but less than their sum,
so each fitted rate is one that nothing else holds up. A data sheet's rate is a bound, of which no
share is above one: that is what :meth:`WarpgroupTimes.within_peaks` is for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class WarpgroupTimes:
    """Products by warpgroup instructions (``tile/products/warpgroup.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        rate_share: share of the matrix units' rate in the record that these instructions reach.
        cache_share: share of the second-level cache's bandwidth that fills of the ring reach.
        memory_share: share of global memory's bandwidth for reading.
        ring_cycles: cycles from asking for a chunk to the end of its products.
        start_cycles: a launch from a cold start, the first chunk, the last stores.
        split_cycles: two waits of a cluster, and adding its parts, for each doubling.
        tile_cycles: cycles from the end of a tile to the next one's first product.
        cluster_share: share of the multiprocessors that clusters of more than two blocks can use.
        step_power: exponent by which products, fills and waits of a step add up.
        total_power: exponent by which the busiest multiprocessor and memory add up.
    """

    origin: str
    rate_share: float
    cache_share: float
    memory_share: float
    ring_cycles: float
    start_cycles: float
    split_cycles: float
    tile_cycles: float
    cluster_share: float
    step_power: float
    total_power: float

    def within_peaks(self) -> WarpgroupTimes:
        """The same parameters, no share above one: for records with data sheets' rates."""
        return replace(
            self,
            rate_share=min(1.0, self.rate_share),
            cache_share=min(1.0, self.cache_share),
            memory_share=min(1.0, self.memory_share),
        )


@dataclass(frozen=True, slots=True)
class CodedWarpgroupTimes:
    """Products by warpgroup instructions whose left operand is decoded (``coded_warpgroup.py``).

    All else is as :class:`WarpgroupTimes` says. A step is 32 elements of the sum deep.

    Attributes:
        origin: provenance of the numbers, in words.
        rate_share: share of the rate that instructions reach with both operands in shared memory.
        step_slots: slots of a warp in a step, besides its decoding.
        step_cycles: cycles that a warpgroup waits in a step for codes and products, whatever others
            do.
    """

    origin: str
    rate_share: float
    step_slots: float
    step_cycles: float


@dataclass(frozen=True, slots=True)
class ChainTimes:
    """Two products with rows' softmax in between (``tile/attention/warpgroups.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        weight_cycles: cycles of a multiprocessor for one weight: exponential, maximum, sum,
            rounding.
        step_cycles: cycles of waiting for a tile, and for the products' ends.
        item_cycles: the first tiles and the last stores of an item.
        start_cycles: a launch from a cold start.
        memory_share: share of global memory's bandwidth for reading.
        step_power: exponent by which products and weights of a step add up.
    """

    origin: str
    weight_cycles: float
    step_cycles: float
    item_cycles: float
    start_cycles: float
    memory_share: float
    step_power: float


@dataclass(frozen=True, slots=True)
class StoreTimes:
    """Arithmetic on matrix units' sums before they are stored (``tile/products/store_work.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        operation_slots: slots of a warp for one operation on a sum.
        wide_slots: slots of a warp for a sum's share of a store, with its place.
        single_slots: slots of a warp, beyond that, for a sum that is stored by itself.
        waiting_warps: number of warps whose slots are lost between one sum and the next, because a
            warp waits for its own instructions, however few others there are.
    """

    origin: str
    operation_slots: float
    wide_slots: float
    single_slots: float
    waiting_warps: float


@dataclass(frozen=True, slots=True)
class MmaTimes:
    """Products by a warp's matrix instructions (``tile/products/mma.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        share_beside_wgmma: share of the matrix units' rate, where only warpgroup instructions reach
            all of it.
        chunk_cycles: cycles from asking for a chunk to its arrival.
        wait_cycles: cycles that all warps wait, once a chunk.
        step_cycles: fragments and products of a depth of 16, one after the other.
        tile_cycles: the first chunk, the last stores.
        start_cycles: a launch from a cold start.
        copy_by_element: times of an asynchronous copy, where lanes lie apart and are packed.
        step_power: exponent by which the parts of a step add up.
        total_power: exponent by which the busiest multiprocessor and memory add up.
    """

    origin: str
    share_beside_wgmma: float
    chunk_cycles: float
    wait_cycles: float
    step_cycles: float
    tile_cycles: float
    start_cycles: float
    copy_by_element: float
    step_power: float
    total_power: float


@dataclass(frozen=True, slots=True)
class WarpAttentionTimes:
    """Two products with rows' softmax in between, by a warp's instructions (``warp_attention.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        weight_slots: slots of one weight: scale, maximum, exponential, sum, rounding.
        rate_share: share that warp instructions reach of the matrix units' rate.
        step_cycles: a block's wait for the keys, for the values and for its threads.
        hiding_power: exponent of the number of resident blocks by which such waits are divided.
        block_cycles: a block's wait for its queries, and its stores.
        start_cycles: cycles of a kernel's start and its end.
        memory_share: share of global memory's bandwidth for reading.
        step_power: exponent by which products, loads of fragments and weights add up.
        copy_by_element: times of an asynchronous copy, where elements come through registers.
    """

    origin: str
    weight_slots: float
    rate_share: float
    step_cycles: float
    hiding_power: float
    block_cycles: float
    start_cycles: float
    memory_share: float
    step_power: float
    copy_by_element: float


@dataclass(frozen=True, slots=True)
class HaloTimes:
    """A product, windows of its result and a product of these (``tile/products/halo.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        copy_slots: slots of a copy of 16 bytes.
        tap_copy_slots: slots of a copy of a window's weight.
        fragment_slots: slots of a fragment of the first product.
        value_slots: slots of a value of the first product.
        operation_slots: slots of an operation on such a value.
        product_slots: slots of a product of 16 rows by 16 columns by a depth of 16, with its loads.
        summed_slots: slots of a tap of a fragment.
        weight_slots: slots of a tap for its share of weights.
        sum_slots: slots of a window's sum.
        sum_operation_slots: slots of an operation on such a sum.
        store_slots: slots of 16 bytes of the output.
        total_slots: slots of a value of the second product.
        slot_cycles: cycles from one slot of a warp to its next, where no other warp is.
        issue_share: share of a scheduler's slots that are filled where nothing waits.
        turn_cycles: cycles of waiting in each turn of channels.
        block_cycles: cycles of waiting once a block.
        start_cycles: a launch from a cold start.
        block_power: exponent by which a block's own time and that of shared units add up.
        total_power: exponent by which the busiest multiprocessor and memory add up.
    """

    origin: str
    copy_slots: float
    tap_copy_slots: float
    fragment_slots: float
    value_slots: float
    operation_slots: float
    product_slots: float
    summed_slots: float
    weight_slots: float
    sum_slots: float
    sum_operation_slots: float
    store_slots: float
    total_slots: float
    slot_cycles: float
    issue_share: float
    turn_cycles: float
    block_cycles: float
    start_cycles: float
    block_power: float
    total_power: float


@dataclass(frozen=True, slots=True)
class MatrixCoreTimes:
    """Products by AMD's matrix instructions (``tile/products/matrix_cores.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        chunk_cycles: cycles from asking for a chunk to its arrival.
        wait_cycles: cycles that all waves wait, once a chunk, with those of its stores.
        tile_cycles: the first chunk, the last stores.
        start_cycles: a launch from a cold start.
        step_power: exponent by which the parts of a step add up.
        total_power: exponent by which the busiest compute unit and memory add up.
    """

    origin: str
    chunk_cycles: float
    wait_cycles: float
    tile_cycles: float
    start_cycles: float
    step_power: float
    total_power: float
