"""At which extents a model is measured."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from math import isqrt


def points(low: int, high: int, count: int, seed: int) -> tuple[int, ...]:
    """So many extents of a range, or all where it has no more.

    The ends, then in turns: powers of two, those after them, those before them, primes that are
    spread evenly, and random extents. Any first few of them are spread over the range, so that a
    run that is cut off tells of all of it.

    Args:
        low: the least extent.
        high: the greatest extent.
        count: of extents.
        seed: of the random ones.
    """
    powers = [1 << exponent for exponent in range(high.bit_length() + 1)]
    generator = random.Random(seed)
    drawn = generator.sample(range(low, high + 1), high - low + 1)
    kinds = (
        _spread(powers),
        _spread([power + 1 for power in powers]),
        _spread([power - 1 for power in powers]),
        _spread(_primes(low, high, max(1, count // 4))),
        drawn,
    )
    turns = (extent for turn in zip_longest(*kinds) for extent in turn if extent is not None)
    allowed = (extent for extent in chain((low, high), turns) if low <= extent <= high)
    return tuple(dict.fromkeys(allowed))[:count]


def _spread(values: Sequence[int]) -> list[int]:
    """The values so ordered that any first few of them are spread: halves, quarters, and so on."""
    return [values[position] for position in _halving(0, len(values))]


def _halving(first: int, end: int) -> Iterator[int]:
    ranges = [(first, end)]
    while ranges:
        begin, stop = ranges.pop(0)
        if begin < stop:
            middle = (begin + stop) // 2
            yield middle
            ranges += [(begin, middle), (middle + 1, stop)]


def _primes(low: int, high: int, count: int) -> list[int]:
    """So many primes, the first at or behind places that are spread evenly."""
    places = [low + (high - low) * number // count for number in range(count)]
    found = (_prime_from(place, high) for place in places)
    return list(dict.fromkeys(prime for prime in found if prime is not None))


def _prime_from(place: int, high: int) -> int | None:
    return next((n for n in range(max(2, place), high + 1) if _is_prime(n)), None)


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, isqrt(number) + 1))
