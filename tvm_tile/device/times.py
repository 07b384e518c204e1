"""Fitted numbers that predictions need of a GPU besides its rates, as data.

A record without measurements inherits the normalised numbers of its family's measured one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from tvm_tile.device.chip_times import ChipTimes
from tvm_tile.errors import DeviceRecordError

_Times = TypeVar("_Times")


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
        slowed_share: share of a kernel's time that it takes longer if it starts early.
        ahead_seconds: seconds of reading constants that it comes near to having behind it when the
            kernel before it has ended, the more it asks for before it waits: of ``t`` seconds of
            them ``t * ahead_seconds / (t + ahead_seconds)``.
    """

    origin: str
    overlap_seconds: float
    wait_seconds: float
    slowed_share: float
    ahead_seconds: float


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """The parameters of all predictions.

    Attributes:
        fitted_on: name of the device that the numbers were measured on, as far as no origin names
            another.
        chip: those of the one model of all kernels' times.
        persistent: kernels in a persistent one.
        host_flow: loops and branches on the host.
    """

    fitted_on: str
    chip: ChipTimes
    persistent: PersistentTimes
    host_flow: HostFlowTimes

    @property
    def without_warpgroups(self) -> KernelTimes:
        """The same parameters for a chip without warpgroups' instructions.

        There a warp's instructions reach all of the rate of its matrix units.
        """
        warp = self.chip.warp_unit and replace(self.chip.warp_unit, rate_share=1.0)
        return replace(self, chip=replace(self.chip, warp_unit=warp, group_unit=None))


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
