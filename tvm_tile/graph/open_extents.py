"""Extents that are known when a model is called: their ranges, and what depends on them.

A point is a value for each symbol, in the order of the symbols.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

Point = tuple[int, ...]

_MOST_DIVISOR = 64  # of an extent, such as that of an image behind six convolutions of stride 2


@dataclass(frozen=True, slots=True)
class Open:
    """An extent of an input that may differ from call to call.

    Attributes:
        low: its least value, elements, at least 1.
        high: its greatest value, elements.
        name: extents of one name are equal in each call; one without a name, the default, is its
            own.
        step: divisor of the extent, and of ``low`` and ``high``, 1 by default: sizes of images that
            a network halves five times are multiples of 32.
    """

    low: int
    high: int
    name: str = ""
    step: int = 1

    def __str__(self) -> str:
        prefix = f"{self.name}=" if self.name else ""
        suffix = f":{self.step}" if self.step > 1 else ""
        return f"{prefix}{self.low}:{self.high}{suffix}"


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol that stands for one open extent, or for several that are equal.

    Attributes:
        name: name for people; no two symbols of a model share one.
        low: the least value.
        high: the greatest value.
        step: all values are multiples of it.
    """

    name: str
    low: int
    high: int
    step: int = 1

    def __str__(self) -> str:
        steps = f" in steps of {self.step}" if self.step > 1 else ""
        return f"{self.name} from {self.low} to {self.high}{steps}"

    @property
    def values(self) -> range:
        """All values, from the least one on."""
        return range(self.low, self.high + 1, self.step)


@dataclass(frozen=True, slots=True)
class Form:
    """A whole number that depends on a point: ``sum(c * product of symbols) // divisor``.

    Attributes:
        terms: pairs of symbols' positions, one of them twice in a square, and a factor; no factor
            is zero.
        divisor: divisor of the sum, at least 1.
    """

    terms: tuple[tuple[tuple[int, ...], int], ...]
    divisor: int = 1

    def __call__(self, point: Sequence[int]) -> int:
        """The number at a point."""
        total = sum(c * math.prod(point[i] for i in symbols) for symbols, c in self.terms)
        return total // self.divisor

    def text(self, names: Sequence[str]) -> str:
        """The form for people, such as ``(n + 1) // 2``."""
        terms = [
            "*".join([*([] if c == 1 and symbols else [str(c)]), *(names[i] for i in symbols)])
            for symbols, c in sorted(self.terms, key=lambda term: -len(term[0]))
        ]
        whole = " + ".join(terms).replace("+ -", "- ") or "0"
        if self.divisor == 1:
            return whole
        return f"({whole}) // {self.divisor}" if " " in whole else f"{whole} // {self.divisor}"

    @property
    def is_known(self) -> bool:
        """Whether the form is one number, whatever the point."""
        return all(not symbols for symbols, _ in self.terms)


def fit(values: Mapping[Point, int]) -> Form | None:
    """The only form that takes these values; ``None`` where there is none, or are several.

    Args:
        values: point -> value; several points, all of as many symbols.
    """
    if len(set(values.values())) == 1:
        return Form(_term((), next(iter(values.values()))))
    count = len(next(iter(values)))
    once = [s for size in range(count + 1) for s in itertools.combinations(range(count), size)]
    twice = [(i, j) for i in range(count) for j in range(i, count)]
    singles = [(i,) for i in range(count)]
    return (
        _fit_products(values, once)
        or next(filter(None, (_fit_quotient(values, i) for i in range(count))), None)
        or _fit_products(values, [(), *singles, *twice])
    )


def _term(symbols: tuple[int, ...], factor: int) -> tuple[tuple[tuple[int, ...], int], ...]:
    """A product of symbols with its factor, as a form's terms; none for 0."""
    return ((symbols, factor),) if factor else ()


def _fit_products(values: Mapping[Point, int], products: Sequence[Point]) -> Form | None:
    """The sum of multiples of these products, by elimination among the points.

    It divides without a rest at these, and so at all points of their steps: a half of ``n``, if
    ``n`` is even.
    """
    rows = [
        [*(Fraction(math.prod(point[i] for i in s)) for s in products), Fraction(value)]
        for point, value in values.items()
    ]
    solved = _solved(rows, len(products))
    if solved is None:
        return None
    divisor = math.lcm(*(number.denominator for number in solved))
    terms = zip(products, (int(number * divisor) for number in solved), strict=True)
    return Form(tuple(term for symbols, c in terms for term in _term(symbols, c)), divisor)


def _solved(rows: list[list[Fraction]], unknowns: int) -> list[Fraction] | None:
    """The only solution of linear equations; ``None`` where there is none, or are several."""
    done: list[list[Fraction]] = []
    for column in range(unknowns):
        pivot = next((row for row in rows if row[column]), None)
        if pivot is None:
            return None
        scaled = [number / pivot[column] for number in pivot]
        rows = [_without(row, scaled, column) for row in rows if row is not pivot]
        done = [*(_without(row, scaled, column) for row in done), scaled]
    return [row[-1] for row in done] if not any(row[-1] for row in rows) else None


def _without(row: list[Fraction], pivot: list[Fraction], column: int) -> list[Fraction]:
    """A row of equations with the pivot's variable eliminated."""
    factor = row[column]
    return (
        [number - factor * own for number, own in zip(row, pivot, strict=True)] if factor else row
    )


def _fit_quotient(values: Mapping[Point, int], position: int) -> Form | None:
    """The form ``(a * n + b) // divisor`` of the symbol at a position, of the least divisor."""
    points = sorted({(point[position], value) for point, value in values.items()})
    (first, low), (last, high) = points[0], points[-1]
    if len({n for n, _ in points}) < max(2, len(points)):
        return None  # it is no function of this symbol alone
    for divisor in range(2, _MOST_DIVISOR + 1):
        factor = round(Fraction((high - low) * divisor, last - first))
        for a in (factor, factor - 1, factor + 1):
            # divisor * v <= a * n + b < divisor * (v + 1)
            least = max(divisor * v - a * n for n, v in points)
            most = min(divisor * (v + 1) - 1 - a * n for n, v in points)
            if a > 0 and math.gcd(a, divisor) == 1 and least == most:
                return Form((((position,), a), *_term((), least)), divisor)
    return None


def variable(number: int, name: str) -> str:
    """Identifier, in generated code, of the symbol of this number and name."""
    return re.sub(r"\W", "_", f"extent{number}_{name}", flags=re.ASCII)


def top(symbols: Sequence[Symbol]) -> Point:
    """The point of the greatest values."""
    return tuple(symbol.high for symbol in symbols)


def far(symbols: Sequence[Symbol]) -> list[Point]:
    """Points apart from the greatest: the least, one amid the ranges, and corners.

    At a corner one extent is the least and all others are the greatest: what is cut off a tensor
    may depend on how two extents compare.
    """
    least = tuple(symbol.low for symbol in symbols)
    middle = tuple(s.values[len(s.values) // 3] for s in symbols)
    whole = top(symbols)
    corners = [(*whole[:i], s.low, *whole[i + 1 :]) for i, s in enumerate(symbols)]
    return list(dict.fromkeys([least, middle, *corners]))
