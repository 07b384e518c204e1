"""Fitted numbers that the time models of kernels need of a GPU besides its rates, as data.

A record without measurements inherits the normalised numbers of its family's measured one; what
they are per class is in :mod:`tvm_tile.device.core_times` and
:mod:`tvm_tile.device.matrix_times`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from tvm_tile.device.chip_times import ChipTimes
from tvm_tile.device.core_times import (
    CodedTimes,
    ContractionTimes,
    CoreAttentionTimes,
    DecodeTimes,
    ElementwiseTimes,
    GateTimes,
    HeldRowTimes,
    MatvecTimes,
    ReductionTimes,
    RowTimes,
    ScanTimes,
    SortTimes,
    TransposeTimes,
    WindowTimes,
)
from tvm_tile.device.matrix_times import (
    ChainTimes,
    CodedWarpgroupTimes,
    HaloTimes,
    MatrixCoreTimes,
    MmaTimes,
    StoreTimes,
    WarpAttentionTimes,
    WarpgroupTimes,
)
from tvm_tile.errors import DeviceRecordError

_Times = TypeVar("_Times")


@dataclass(frozen=True, slots=True)
class WarmLine:
    """Predicted time of a rule's kernel amid a model: ``slope * (seconds - start)``.

    Attributes:
        rule: name of the rule.
        start_cycles: cycles of a kernel's predicted time that a warm kernel does not take.
        slope: factor of the rest of the time.
    """

    rule: str
    start_cycles: float
    slope: float


@dataclass(frozen=True, slots=True)
class WarmTimes:
    """Kernels amid a model, whose operands are in the second-level cache (``launches/warm.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        least_seconds: least time of a kernel, its launch included, even if it does nothing.
        lines: lines for the rules whose time models assume a cold start.
    """

    origin: str
    least_seconds: float
    lines: tuple[WarmLine, ...]


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """Operators of a persistent kernel that are bound by reading weights (``plan/stream.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        share: share of the bandwidth of reading that all vEUs reach together.
        step_cycles: cycles from the end of a step's last rTask to the first data of the next one,
            if that has asked for none ahead; beside a barrier, where it waits for one.
        ahead_bytes: bytes of its weights that a step asks for while it waits; zero where that gains
            nothing.
    """

    origin: str
    share: float
    step_cycles: float
    ahead_bytes: int


@dataclass(frozen=True, slots=True)
class PersistentTimes:
    """Kernels as parts of a persistent one (``plan/choices.py``, ``ways.py``, ``place.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        launch_seconds: time of a kernel before its first instruction and behind its last.
        cooperative_seconds: time that a cooperative launch takes longer than another one.
        shortest_cycles: least cycles of a block: a load, a store.
        slowdown: factor of a block's time beside blocks of other kernels, over its time in a kernel
            by itself.
        product_slowdown: the same factor for products and convolutions amid loops and branches, in
            kernels that have many of them, with registers for none in particular.
        cold_start_cycles: more, for code and operands that are in no first-level cache.
        inefficiency: time for which a kernel keeps its multiprocessor busy, over the roofline's.
        sum_inefficiency: time of sums from shared memory, over that at the arithmetic's peak.
        resident_cycles: cycles of a block whose weights are in place: its vectors, and the tree of
            its sums.
        rtask_cycles: reading an rTask's record, looking at its counters, the barriers before and
            after it, and the addition to its own counter.
        flag_cycles: cycles from the addition to a counter until those who spin on it go on.
        half_precision_pays: whether kernels of float16 and bfloat16 were measured to gain by it.
            Where they were not, they stay launches of their own.
        stream: operators that are bound by reading weights; ``None`` where they were not measured:
            then no weights are asked for ahead.
    """

    origin: str
    launch_seconds: float
    cooperative_seconds: float
    shortest_cycles: float
    slowdown: float
    product_slowdown: float
    cold_start_cycles: float
    inefficiency: float
    sum_inefficiency: float
    resident_cycles: float
    rtask_cycles: float
    flag_cycles: float
    half_precision_pays: bool
    stream: StreamTimes | None


@dataclass(frozen=True, slots=True)
class HostFlowTimes:
    """Loops and branches on the host, which no CUDA graph holds (``passes/flow/plan.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        launch_seconds: least time from one kernel that the virtual machine launches to the next.
        turn_seconds: time of an iteration beside its launches.
        decision_seconds: time that the host takes to read a condition and to go on by it.
    """

    origin: str
    launch_seconds: float
    turn_seconds: float
    decision_seconds: float


@dataclass(frozen=True, slots=True)
class DependentLaunchTimes:
    """Kernels that start while the one before them ends (``launches/dependent_launches.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        overlap_seconds: time by which a kernel that starts early ends earlier.
        wait_seconds: time of waiting in a kernel that cannot start earlier.
    """

    origin: str
    overlap_seconds: float
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class Contest:
    """How the time models of two rules compared, of functions that both can write.

    Of each function there is the ratio of measured and predicted time of either rule's best tile.

    Attributes:
        earlier: name of the rule that is asked first.
        later: name of the other one.
        ratio: time of the later rule's kernels over that of the earlier rule's, a geometric mean.
        spread: standard deviation of its logarithm.
    """

    earlier: str
    later: str
    ratio: float
    spread: float


@dataclass(frozen=True, slots=True)
class Contests:
    """Measured contests between rules, which tell whose kernel to take (``tile/rules.py``).

    Attributes:
        origin: provenance of the numbers, in words.
        pairs: the rules that are compared; one is not displaced by those it is in no pair with.
    """

    origin: str
    pairs: tuple[Contest, ...]


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """The parameters of all time models, by kernel family; those of units that are absent are None.

    Attributes:
        fitted_on: name of the device that the numbers were measured on, as far as no origin names
            another.
        chip: those of the one model for all kernels, which is to replace what follows.
        contraction: products and convolutions on CUDA cores.
        window: sliding windows.
        reduction: sums.
        rows: reductions of rows that are read again.
        held_rows: reductions of rows in registers.
        elementwise: maps.
        transpose: copies in another order.
        matvec: products with few vectors.
        coded: products of few vectors with codes, by a warp's instructions.
        attention: attention on CUDA cores.
        decode: attention of few queries.
        gates: recurrent cells.
        scan: running sums.
        sort: sorts.
        store: work on sums before they are stored.
        wgmma: products by warpgroup instructions.
        coded_warpgroup: products with codes, as the warpgroups' are, and what decoding adds.
        chain: attention by warpgroup instructions.
        mma: products by a warp's instructions.
        warp_attention: attention by a warp's instructions.
        halo: products around windows, by a warp's instructions.
        matrix_cores: products by AMD's matrix instructions.
        warm: kernels amid a model.
        persistent: kernels in a persistent one.
        host_flow: loops and branches on the host.
        contests: rules' models against each other.
    """

    fitted_on: str
    chip: ChipTimes
    contraction: ContractionTimes
    window: WindowTimes
    reduction: ReductionTimes
    rows: RowTimes
    held_rows: HeldRowTimes
    elementwise: ElementwiseTimes
    transpose: TransposeTimes
    matvec: MatvecTimes
    coded: CodedTimes | None
    attention: CoreAttentionTimes
    decode: DecodeTimes
    gates: GateTimes
    scan: ScanTimes
    sort: SortTimes
    store: StoreTimes
    wgmma: WarpgroupTimes | None
    coded_warpgroup: CodedWarpgroupTimes | None
    chain: ChainTimes | None
    mma: MmaTimes | None
    warp_attention: WarpAttentionTimes | None
    halo: HaloTimes | None
    matrix_cores: MatrixCoreTimes | None
    warm: WarmTimes
    persistent: PersistentTimes
    host_flow: HostFlowTimes
    contests: Contests

    def within_peaks(self) -> KernelTimes:
        """The same parameters, no share of a rate above one: for data sheets' rates."""
        contraction = self.contraction
        return replace(
            self,
            contraction=replace(contraction, issue_share=min(1.0, contraction.issue_share)),
            wgmma=self.wgmma and self.wgmma.within_peaks(),
        )


def needed(times: _Times | None, unit: str) -> _Times:
    """The parameters of a matrix unit's time model.

    Args:
        times: parameters from a device record, or None.
        unit: words for the unit that the parameters are for.

    Raises:
        DeviceRecordError: the record has none, though its device has the unit.
    """
    if times is None:
        raise DeviceRecordError(
            f"a device with {unit} must have the parameters of their time model",
            "none in its record",
            "take those of a record that has them, or leave out these matrix instructions",
        )
    return times
