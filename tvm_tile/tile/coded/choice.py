"""Which matrices that arrive as codes stay codes, and which become floating-point numbers.

Codes are fewer bytes, and take instructions to decode: a product of few rows takes as long as
reading its matrix does, one of many rows as long as multiplying. The model of time knows both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

LowBit = bool | Literal["auto"]
"""Whether such matrices stay codes: all that can, none, or those of which products are no slower
so."""


@dataclass(frozen=True, slots=True)
class CodedUse:
    """Matrices that are decided on together, and what their products take.

    Those are what the same value is multiplied by: kept alike, they may become one matrix.

    Attributes:
        bytes: bytes of the codes and of what decodes them.
        folded_bytes: bytes of the decoded values.
        seconds: predicted seconds of the products from codes; ``None`` where that is not known.
        folded_seconds: predicted seconds of the products from values; ``None`` likewise.
        count: how many matrices these are.
    """

    bytes: int
    folded_bytes: int
    seconds: float | None = None
    folded_seconds: float | None = None
    count: int = 1

    @property
    def is_no_slower(self) -> bool:
        """Whether products take no longer from codes than from values, as far as is known."""
        if self.seconds is None or self.folded_seconds is None:
            return False
        return self.seconds <= self.folded_seconds

    def __str__(self) -> str:
        if self.seconds is None or self.folded_seconds is None:
            return "what its products take is not known"
        times = f"{self.seconds * 1e6:.2f} us from codes, {self.folded_seconds * 1e6:.2f} us"
        beside = f" and those of {self.count - 1} beside it" if self.count > 1 else ""
        return f"its products{beside} take {times} from numbers"


@dataclass(frozen=True, slots=True)
class CodesChoice:
    """The decision on matrices: whether they stay codes, and why."""

    is_kept: bool
    reason: str


def choose_codes(uses: Sequence[CodedUse], others: int, capacity: int) -> Iterator[CodesChoice]:
    """Decide on all matrices of a model: what is fastest, if the device's memory holds that.

    Args:
        uses: the matrices.
        others: bytes of the model's other constants.
        capacity: bytes of the device's memory.
    """
    sizes = (use.bytes if use.is_no_slower else use.folded_bytes for use in uses)
    size = others + sum(sizes)
    for use in uses:
        if size > capacity and not use.is_no_slower:
            room = f"{size / 10**9:.1f} GB of weights, the device has {capacity / 10**9:.1f} GB"
            yield CodesChoice(True, f"folded there would be {room}")
        else:
            yield CodesChoice(use.is_no_slower, str(use))
