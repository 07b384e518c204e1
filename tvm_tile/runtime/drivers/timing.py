"""Measurement of a call's time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm_tile.report.samples import interquartile_range

WARM_UP_CALLS = 3


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of repeated calls, in seconds.

    Attributes:
        median_s: the median.
        iqr_s: the interquartile range: the middle half of the samples spans this much.
        samples: every call's time, in order.
    """

    median_s: float
    iqr_s: float
    samples: tuple[float, ...]

    def __str__(self) -> str:
        spread = f"{self.iqr_s * 1e3:.3g} ms interquartile range"
        return f"{self.median_s * 1e3:.4g} ms median of {len(self.samples)}, {spread}"


def summarize(samples: Sequence[float]) -> Timing:
    """The timing of some samples (one or more, seconds)."""
    return Timing(statistics.median(samples), interquartile_range(samples), tuple(samples))


def time_function(machine: Any, device: Any, arguments: Sequence[Any], repeats: int) -> Timing:
    """Time ``main`` of a virtual machine on tensors that are already on its device.

    A few calls warm up. On a GPU each sample is the time between two events of the device
    around one call; on the CPU it is the wall clock around one call.
    """
    evaluate = machine.time_evaluator("main", device, number=1, repeat=repeats)
    machine.time_evaluator("main", device, number=1, repeat=WARM_UP_CALLS)(*arguments)
    return summarize([float(sample) for sample in evaluate(*arguments).results])
