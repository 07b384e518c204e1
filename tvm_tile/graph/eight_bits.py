"""Numbers of 8 bits, less a zero point: where they lie, and sums of their products in 32 bits."""

from __future__ import annotations

from dataclasses import dataclass

INTEGERS = ("int8", "uint8")
FLOATS = ("float8_e4m3fn", "float8_e5m2")
_LARGEST_SUM = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Span:
    """A range of integers, from ``low`` to ``high``, both included."""

    low: int
    high: int

    def less(self, other: Span) -> Span:
        """Range of the differences between these integers and others."""
        return Span(self.low - other.high, self.high - other.low)

    @property
    def largest(self) -> int:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))


NOTHING = Span(0, 0)


def span_of(dtype: str) -> Span:
    """All integers of one of :data:`INTEGERS`."""
    return Span(-128, 127) if dtype == "int8" else Span(0, 255)


def dtype_for(span: Span) -> str | None:
    """The type of :data:`INTEGERS` that holds all of them; ``None`` where neither does."""
    for dtype in INTEGERS:
        own = span_of(dtype)
        if own.low <= span.low and span.high <= own.high:
            return dtype
    return None


def sums_fit(depth: int, left: Span, right: Span) -> bool:
    """Whether sums of ``depth`` products are integers of 32 bits, whatever the factors are."""
    return depth * left.largest * right.largest <= _LARGEST_SUM
