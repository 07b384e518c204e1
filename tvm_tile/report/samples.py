"""Median and spread of repeated measurements."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def interquartile_range(samples: Sequence[float]) -> float:
    """How much the middle half of some samples, one or more, spans; 0 of one."""
    if len(samples) < 2:
        return 0.0
    first, _, third = statistics.quantiles(samples, n=4, method="inclusive")
    return third - first
