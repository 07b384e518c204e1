"""Times that bound a kernel together."""

from __future__ import annotations


def norm(power: float, *values: float) -> float:
    """The time of work that overlaps in part: above the largest of some times, below their sum.

    The higher the power, the less the smaller ones count.
    """
    return float(sum(value**power for value in values) ** (1 / power))
