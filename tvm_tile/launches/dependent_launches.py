"""Which kernels of a CUDA graph start while the one before them ends.

A model of time decides, function by function. A step of a chain, one kernel right behind another,
gets shorter by what starting a kernel takes; each launch pays for the instruction that waits, and
by a share of its time for reading operands as what may change meanwhile
(:mod:`tvm_tile.build.early.dependent_launches`). So it is short kernels that start early.
"""

from __future__ import annotations

from tvm_tile.device.device import Device

_LITTLE = 0.125  # of operands: what so few loads lose is less than what is not known


def early_step_seconds(
    calls: int,
    steps: int,
    device: Device,
    seconds: float = 0.0,
    *,
    loaded: float = 1.0,
    forced: bool = False,
) -> float | None:
    """Time by which each step ends earlier if a function's kernels start early, and they are to.

    Args:
        calls: number of calls of the function in a run of a model, all of them in graphs.
        steps: number of these that are right behind another kernel.
        device: the device that it is made for.
        seconds: predicted time of one call.
        loaded: share of its operands' bytes that its kernels load while they may change; all else
            comes by copies, or is constant, which is as fast either way.
        forced: whether kernels start early wherever the device has that, even at a loss.

    Returns:
        Predicted seconds; ``None`` where the device cannot, or it does not pay and is not forced.
    """
    times = device.dependent_launches
    if times is None:
        return None
    lost = times.wait_seconds + (times.slowed_share * seconds if loaded > _LITTLE else 0.0)
    saved = steps * times.overlap_seconds - calls * lost
    return times.overlap_seconds - lost if saved > 0 or forced else None
