"""Powers of two: of threads, of parts and of neighbours in a vector."""

from __future__ import annotations


def power_of_two(value: int) -> int:
    """The largest power of two that is not above ``value``; 1 where there is none."""
    return 1 << (max(1, value).bit_length() - 1)


def powers_of_two(least: int, most: int) -> tuple[int, ...]:
    """All powers of two from ``least``, which is one, to ``most``."""
    return tuple(1 << n for n in range(least.bit_length() - 1, most.bit_length()))
