"""The protocol of every measurement: warm up, repeat, take the median."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from tvm_tile.calibrate.driver import Gpu
from tvm_tile.device import Reading

# Clocks and power limits settle within this many seconds of the load itself.
_WARM_UP_S = 0.2
# One run this long: events resolve half a microsecond, and a launch costs a few.
RUN_S = 8e-3


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of one run: the median, and the interquartile range as a share of it."""

    seconds: float
    spread: float


def measure(
    gpu: Gpu,
    queue: Callable[[], None],
    repeats: int,
    before: Callable[[], None] = lambda: None,
    warm_up_s: float = _WARM_UP_S,
) -> Sample:
    """Time what ``queue`` launches; ``before`` is queued ahead of each run and not timed."""
    end = time.perf_counter() + warm_up_s
    while True:
        gpu.time(queue, 2, before)
        if time.perf_counter() >= end:
            break
    return summarize(gpu.time(queue, repeats, before))


def reading(quantity: str, variant: str, work: float, unit: str, sample: Sample) -> Reading:
    """The rate at which ``work`` bytes or operations were done."""
    return Reading(quantity, variant, work / sample.seconds, unit, sample.spread)


def summarize(seconds: list[float]) -> Sample:
    """Median and spread of repeats."""
    low, median, high = np.percentile(seconds, (25, 50, 75))
    return Sample(float(median), float((high - low) / median))


def rounds_of_run(gpu: Gpu, launch: Callable[[int], None], seconds: float = RUN_S) -> int:
    """How many rounds ``launch`` must do to run that long."""
    rounds = 1
    while True:
        took = min(gpu.time(partial(launch, rounds), 2))
        if took > seconds / 16 or rounds >= 1 << 28:
            return max(1, int(rounds * seconds / took))
        rounds *= 8
