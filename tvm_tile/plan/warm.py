"""What a kernel takes amid a model, where what it reads was written a moment ago.

The models of schedules are fitted to operators that run by themselves, which find a cold cache.
That is right for choosing among tiles, whose start is equally cold, and for large operators. But
small kernels of a model, one behind the other, find what they read in the second-level cache, and
take as little as a sixth. Whether joining them pays is a matter of these times.

What the lines were fitted to is in the device record.
"""

from __future__ import annotations

from tvm_tile.device.device import Device


def warm_seconds(rule: str, seconds: float, device: Device) -> float:
    """The time of a kernel whose operands are in the second-level cache, launch included.

    Args:
        rule: that wrote it.
        seconds: as its model predicts, which is the most.
        device: that it is for.
    """
    times = device.times.warm
    lines = {
        "contraction": (times.contraction_start_cycles, times.contraction_slope),
        "window": (0.0, times.window_slope),
        "gates": (times.gates_start_cycles, times.gates_slope),
    }
    if rule not in lines:
        return max(times.least_seconds, seconds)
    start, slope = lines[rule]
    return min(seconds, max(times.least_seconds, slope * (seconds - start / device.clock)))
