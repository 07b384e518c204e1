"""Weights that are stored in another layout than the model has them in, as data and as lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TurnedWeights:
    """A matrix of weights that is stored with its axes exchanged, since its kernel is faster so.

    Attributes:
        function: function that reads it, by its name when it was fused.
        shape: rows and columns, as they are stored.
        size: size in bytes.
        seconds: predicted for a call of the function, amid a model.
        seconds_before: seconds with all matrices that it reads as the model has them.
    """

    function: str
    shape: tuple[int, int]
    size: int
    seconds: float
    seconds_before: float


def render_turned(turned: Sequence[TurnedWeights]) -> Iterator[str]:
    """Lines for people: how many and how large, then by function; none where none are turned."""
    if not turned:
        return
    size = sum(weights.size for weights in turned)
    number = f"{len(turned)} {'matrix' if len(turned) == 1 else 'matrices'} of weights"
    yield f"stored turned: {number}, {size / 1e6:.2f} MB"
    for weights, count in Counter(turned).items():
        rows, columns = weights.shape
        shapes = f"{rows} x {columns} instead of {columns} x {rows}"
        times = f"{weights.seconds * 1e6:.1f} us instead of {weights.seconds_before * 1e6:.1f} us"
        yield f"  {count} x {weights.function}: {shapes}, {times}"
