"""Which kernels of a CUDA graph start while the one before them ends, and what they fetch ahead.

A model of time decides, function by function. A step of a chain, one kernel right behind another,
gets shorter by what starting a kernel takes, and by the time in which its constants come from
global memory, as far as they are fetched ahead; each launch pays for two instructions.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tile.device.device import Device


@dataclass(frozen=True, slots=True)
class Chained:
    """The calls of a function in a run of a model.

    Attributes:
        calls: number of calls.
        steps: number of calls right behind another kernel.
        constant_bytes: bytes of its arguments that are constants in every call.
    """

    calls: int
    steps: int
    constant_bytes: int


@dataclass(frozen=True, slots=True)
class Dependence:
    """Bytes that a function whose kernels start early fetches ahead, and the time that it gains.

    Attributes:
        ahead_bytes: bytes of its constants that are fetched into the second-level cache while it
            waits.
        step_seconds: predicted time by which a call right behind another kernel ends earlier; zero
            where nothing was measured.
    """

    ahead_bytes: int
    step_seconds: float


def dependence(chained: Chained, device: Device, *, forced: bool = False) -> Dependence | None:
    """How the kernels of a function start early, if they are to.

    Args:
        chained: its calls, all of them in graphs.
        device: the device that it is made for.
        forced: whether they start early wherever the device has that, measured or not.

    Returns:
        ``None`` where the device cannot, where nothing was measured, and where it does not pay.
    """
    if not device.supports_dependent_launches:
        return None
    times = device.dependent_launches
    if times is None:
        return Dependence(0, 0.0) if forced else None
    ahead = min(times.ahead_bytes, chained.constant_bytes)
    gained = times.overlap_seconds
    if ahead:
        gained += times.ahead_seconds * ahead / times.ahead_bytes
    saved = chained.steps * gained - chained.calls * times.wait_seconds
    if saved <= 0 and not forced:
        return None
    return Dependence(ahead, gained - times.wait_seconds)


def shares(sizes: tuple[int, ...], ahead_bytes: int) -> tuple[int, ...]:
    """Divide the bytes that a kernel may fetch ahead among its constants, the largest first.

    Args:
        sizes: bytes of each constant.
        ahead_bytes: bytes that may be fetched ahead, of all constants together.

    Returns:
        Bytes to be fetched of each constant, in the order of ``sizes``.
    """
    left, found = ahead_bytes, [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        found[number] = min(left, sizes[number])
        left -= found[number]
    return tuple(found)
