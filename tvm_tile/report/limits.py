"""Limits of a device, and the bottleneck that keeps a kernel from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.graph.sparsity import TWO_OF_FOUR
from tvm_tile.graph.tile_graph import Operator, TileGraph
from tvm_tile.tile.classify import is_product
from tvm_tile.tile.time import least_seconds

_MAJORITY = 0.5


class Bottleneck(Enum):
    """Bottleneck that takes most of a kernel's time; its value is its name for people."""

    MEMORY = "bytes"
    ARITHMETIC = "arithmetic"
    LAUNCH = "launch"
    LATENCY = "latency"


@dataclass(frozen=True, slots=True)
class Roofs:
    """Lines of a device's roofline.

    Attributes:
        memory: bytes per second to and from its global memory.
        cache: bytes per second to and from its second-level cache.
        peaks: operations per second of its units, by their names, the least first.
    """

    memory: float
    cache: float
    peaks: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """Peaks of a device, and the times that follow for a model.

    Attributes:
        bandwidth: bytes per second that its kernels read and write.
        is_cached: whether that is the second-level cache's, which holds all that they touch.
        launch_seconds: seconds of a kernel that does nothing, amid a model.
        roofs: all that bounds a kernel of any kind; None where that was not told.
    """

    bandwidth: float
    is_cached: bool
    launch_seconds: float
    roofs: Roofs | None = None


def limits_of(device: Device, traffic: float) -> Limits:
    """The limits of a device for a model of which a run moves ``traffic`` bytes."""
    launch = least_seconds(device)
    memory = max(device.memory(MemoryLevel.GLOBAL).bandwidth, device.read_bandwidth)
    units = {"float32 cores": device.flops("float32")}
    # Kernels' operations are without zeros, which the rates of these count.
    sparse = f" {TWO_OF_FOUR}"
    rates = [own for own in device.matrix_flops if not own[0].endswith(sparse)]
    units |= {f"{dtype} matrix units": rate for dtype, rate in rates}
    peaks = tuple(sorted(units.items(), key=lambda unit: unit[1]))
    roofs = Roofs(memory, device.l2_bandwidth, peaks)
    if traffic <= device.l2_capacity:
        return Limits(device.l2_bandwidth, True, launch, roofs)
    return Limits(memory, False, launch, roofs)


def bound_of(seconds: float, memory: float, arithmetic: float, launch: float) -> Bottleneck:
    """Bottleneck that takes most of a kernel's time.

    Args:
        seconds: seconds of the kernel.
        memory, arithmetic, launch: what its bytes, its operations and its launches take at least.
            If none of these is most of its time, it mostly waits: for data that are on their way,
            for other threads, or for a few blocks while others have ended.
    """
    kinds = Bottleneck.MEMORY, Bottleneck.ARITHMETIC, Bottleneck.LAUNCH
    parts = zip((memory, arithmetic, launch), kinds, strict=True)
    longest, bound = max(parts, key=lambda part: part[0])
    return bound if longest >= _MAJORITY * seconds else Bottleneck.LATENCY


def arithmetic_seconds(graph: TileGraph, device: Device) -> float:
    """Least seconds of a function's operations, by the fastest units for each."""
    return sum(op.total_flops / _rate(op, device) for op in graph.operators)


def _rate(operator: Operator, device: Device) -> float:
    """Operations a second of the fastest units for an operator."""
    dtype = operator.reads[0].tensor.dtype if operator.reads else operator.write.tensor.dtype
    matrix = device.matrix_rate(dtype) if is_product(operator) else 0.0
    return max(matrix, device.flops(dtype))
