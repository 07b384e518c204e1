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
        forced: whether kernels start early wherever the device has that, even at a loss.

    Returns:
        Predicted seconds; ``None`` where the device cannot, or it does not pay and is not forced.
    """
    times = device.dependent_launches
    if times is None:
        return None
    saved = steps * times.overlap_seconds - calls * times.wait_seconds
    return times.overlap_seconds - times.wait_seconds if saved > 0 or forced else None
