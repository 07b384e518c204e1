"""What a kernel takes amid a model, where what it reads was written a moment ago.

The models of schedules are fitted to operators that run by themselves, which find a cold cache.
That is right for choosing among tiles, whose start is equally cold, and for large operators. But
small kernels of a model, one behind the other, find what they read in the second-level cache, and
take as little as a sixth. Whether joining them pays is a matter of these times.

The lines were fitted to 297 kernels of NASNet, ResNeXt-29, Inception v3, ResNet-50 and AlexNet in
float32, batch 1, on an H200; medians of what is measured over what they say are 0.95 to 1.05 a
rule.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAST = 1.1e-6  # seconds of a kernel that does nothing, its launch included


@dataclass(frozen=True, slots=True)
class _Line:
    """``slope * (seconds - start)``."""

    start: float
    slope: float


_LINES = {
    "contraction": _Line(6.1e-6, 1.5),
    "window": _Line(0.0, 0.52),
    "gates": _Line(0.8e-6, 1.0),
}


def warm_seconds(rule: str, seconds: float) -> float:
    """The time of a kernel whose operands are in the second-level cache, launch included.

    Args:
        rule: that wrote it.
        seconds: as its model predicts, which is the most.
    """
    line = _LINES.get(rule)
    if line is None:
        return max(LEAST, seconds)
    return min(seconds, max(LEAST, line.slope * (seconds - line.start)))
