"""Times of kernels amid a model, where their inputs were written a moment ago.

The models of schedules are fitted to operators that run by themselves, which find a cold cache.
That is right for choosing among tiles, whose start is equally cold, and for large operators. But
small kernels of a model, one behind the other, find what they read in the second-level cache, and
take as little as a sixth. Whether joining them pays is a matter of these times.

What the lines were fitted to is in the device record.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm_tile.device.device import Device


def warm_seconds(rule: str, seconds: float, device: Device) -> float:
    """The time of a kernel whose operands are in the second-level cache, launch included.

    Args:
        rule: name of the rule that wrote it.
        seconds: seconds with a cold cache, as its model predicts, which is the most.
        device: the device that it is made for.
    """
    times = device.times.warm
    line = next((line for line in times.lines if line.rule == rule), None)
    if line is None:
        return max(times.least_seconds, seconds)
    warm = line.slope * (seconds - line.start_cycles / device.clock)
    return min(seconds, max(times.least_seconds, warm))


def comparable_seconds(kernels: Sequence[tuple[str, float]], device: Device) -> list[float]:
    """Times of kernels that are compared with one another as parts of a model.

    Args:
        kernels: the rule that wrote each, and what its model predicts.
        device: the device that they are made for.

    Returns:
        What each takes amid a model, launch included, if that is known of all of them; else what
        the models predict, of a cold start. One kind of time is never compared with the other.
    """
    known = {line.rule for line in device.times.warm.lines}
    if not all(rule in known for rule, _ in kernels):
        return [seconds for _, seconds in kernels]
    return [warm_seconds(rule, seconds, device) for rule, seconds in kernels]
