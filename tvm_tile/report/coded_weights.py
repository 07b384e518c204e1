"""Weights that arrive as codes of a few bits: how they are kept, as data and as lines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm_tile.graph.tensor_format import TensorFormat, bytes_of


@dataclass(frozen=True, slots=True)
class CodedWeight:
    """A matrix, or a stack of matrices, that a model computes of codes.

    Attributes:
        shape: shape of its values.
        dtype: their element type.
        format: how it is kept; ``None`` where it is not, but as its values.
        reason: why so; empty where it is kept as an option says.
    """

    shape: tuple[int, ...]
    dtype: str
    format: TensorFormat | None
    reason: str

    @property
    def folded_bytes(self) -> int:
        """Bytes of the decoded values."""
        return math.prod(self.shape) * bytes_of(self.dtype)

    @property
    def bytes(self) -> int:
        """Bytes of what is kept: codes and what they share, or the values themselves."""
        return self.folded_bytes if self.format is None else self.format.bytes(self.shape)


def render_coded(weights: Sequence[CodedWeight]) -> Iterator[str]:
    """Lines for people: how many bytes are kept, then by format; none where there are no codes."""
    if not weights:
        return
    kept = [weight for weight in weights if weight.format is not None]
    size, folded = sum(w.bytes for w in weights), sum(w.folded_bytes for w in weights)
    matrices = "matrix" if len(weights) == 1 else "matrices"
    number = f"{len(kept) or 'none'} of {len(weights)} {matrices}"
    saved = f", {_megabytes(size)} instead of {_megabytes(folded)}" if kept else ""
    yield f"kept as codes: {number} of weights{saved}"
    for weight, count in Counter(weights).items():
        what = f"{' x '.join(map(str, (count, *weight.shape)))} {weight.dtype}"
        if weight.format is None:
            yield f"  {what}: folded, {weight.reason}"
        else:
            sizes = f"{_megabytes(weight.bytes)} instead of {_megabytes(weight.folded_bytes)} each"
            why = f"; {weight.reason}" if weight.reason else ""
            yield f"  {what}: {weight.format}; {sizes}{why}"


def _megabytes(size: int) -> str:
    """A size for people, in megabytes."""
    return f"{size / 1e6:.2f} MB"
