"""Times that bound a kernel together."""

from __future__ import annotations


def norm(power: float, *values: float) -> float:
    """More than the largest of some times, less than their sum, as of work that overlaps in part.

    The higher the power, the less the smaller ones count.
    """
    return float(sum(value**power for value in values) ** (1 / power))
