"""Times that bound a kernel: of work that overlaps in part, and of sums that read all once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.tile.time import Part, Work


def norm(power: float, *values: float) -> float:
    """The time of work that overlaps in part: above the largest of some times, below their sum.

    The higher the power, the less the smaller ones count.
    """
    return float(sum(value**power for value in values) ** (1 / power))


def sum_seconds(traffic: npt.ArrayLike, device: Device) -> npt.NDArray[np.float64]:
    """A kernel that sums what it reads once, its launch included; ``traffic`` is in bytes."""
    stream = np.asarray(traffic, np.float64) / device.memory(MemoryLevel.GLOBAL).bandwidth
    return np.asarray(np.maximum(stream, round_trip_seconds(device)) + device.launch_latency)


def adding_work(parts: int, size: int, device: Device) -> Work:
    """What a kernel does that adds the parts of sums, a thread each output's.

    Args:
        parts: parts of each sum.
        size: bytes of all outputs.
        device: the device that it is made for.
    """
    warps = _ADDING_THREADS // device.warp_size
    held = _ADDING_THREADS * _SUM_BYTES  # bytes of a block's outputs
    vectors = held / (device.warp_size * _SUM_BYTES)
    adding = Part(
        fills=parts * held,
        stores=held,
        operations=parts * vectors,
        moves=(parts + 1) * vectors,
        loads=1,
    )
    return Work(
        blocks=-(-size // held),
        resident=device.max_threads_per_multi_processor // _ADDING_THREADS,
        warps=warps,
        parts=(adding,),
        read=parts * size,
        written=size,
    )


_ADDING_THREADS, _SUM_BYTES = 256, 4


def round_trip_seconds(device: Device) -> float:
    """The least time of a sum: a block's start, one load, and the tree of its partial sums."""
    return device.times.reduction.round_trip_cycles / device.clock
