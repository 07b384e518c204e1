"""Which kernels of a CUDA graph start while the one before them ends.

A model of time decides, function by function. A step of a chain, one kernel right behind another,
gets shorter by what starting a kernel takes; each launch pays for the instruction that waits.
"""

from __future__ import annotations

from tvm_tile.device.device import Device


def early_step_seconds(
    calls: int, steps: int, device: Device, *, forced: bool = False
) -> float | None:
    """Time by which each step ends earlier if a function's kernels start early, and they are to.

    Args:
        calls: number of calls of the function in a run of a model, all of them in graphs.
        steps: number of these that are right behind another kernel.
        device: the device that it is made for.
        forced: whether kernels start early wherever the device has that, measured or not.

    Returns:
        Predicted seconds, zero where nothing was measured. ``None`` where the device cannot, and,
        unless forced, where nothing was measured or it does not pay.
    """
    times = device.dependent_launches
    if not device.supports_dependent_launches or (times is None and not forced):
        return None
    if times is None:
        return 0.0
    saved = steps * times.overlap_seconds - calls * times.wait_seconds
    return times.overlap_seconds - times.wait_seconds if saved > 0 or forced else None
