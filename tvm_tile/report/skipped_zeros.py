"""Weights of which whole chunks are zeros, or two of each four, as data and as lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tvm_tile.graph.sparsity import Sparsity

Zeros = Literal["multiply", "skip"]
"""What becomes of zeros of weights: they are factors like others, or left out by whole chunks, or
two of each four."""


@dataclass(frozen=True, slots=True)
class SkippedZeros:
    """A matrix of weights with zeros that its kernel leaves out, or could leave out.

    Attributes:
        function: function that reads it, by its name when it was fused.
        shape: rows and columns, as they are stored.
        share: share of the matrix that is left to be read.
        seconds: predicted for a call of the function without the zeros, amid a model.
        seconds_whole: the same with them.
        is_skipped: whether they are left out.
        sparsity: how many of a row's neighbours are no zeros; ``None`` where it is chunks.
    """

    function: str
    shape: tuple[int, int]
    share: float
    seconds: float
    seconds_whole: float
    is_skipped: bool
    sparsity: Sparsity | None = None


def render_zeros(found: Sequence[SkippedZeros]) -> Iterator[str]:
    """Lines for people: how many matrices, then by function; none where none has such zeros."""
    for is_skipped in (True, False):
        own = [zeros for zeros in found if zeros.is_skipped is is_skipped]
        if not own:
            continue
        number = f"{len(own)} {'matrix' if len(own) == 1 else 'matrices'} of weights"
        what = "zeros skipped" if is_skipped else "zeros='skip' would leave zeros out"
        yield f"{what}: in {number}"
        for zeros, count in Counter(own).items():
            rows, columns = zeros.shape
            times = f"{zeros.seconds * 1e6:.1f} us instead of {zeros.seconds_whole * 1e6:.1f} us"
            kept = "" if zeros.sparsity is None else f" as {zeros.sparsity}"
            shape = f"{rows} x {columns}, {zeros.share:.1%} of it read{kept}"
            yield f"  {count} x {zeros.function}: {shape}, {times}"
