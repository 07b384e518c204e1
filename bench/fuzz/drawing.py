"""What operators are drawn with: random choices, and the values that are there so far."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bench.fuzz.graph import Tensor

# Mostly small, odd ones among them; some that fill tiles, some one beyond.
EXTENTS = (1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17, 23, 31, 32, 33, 40, 48, 63, 64, 65, 97)
LARGE = (96, 100, 127, 128, 129, 160, 200, 256, 257, 320, 512)
FLOAT = "float"
INTEGERS = ("int64", "int32")
WHOLE = ("int8", "uint8", "int16", "int32", "int64")  # in graphs of integers of the whole range


class Misfit(Exception):
    """An operator cannot be drawn with the values that are there."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the graph, as the samples have it.

    Attributes:
        kind: ``"float"``, ``"bool"`` or the name of a type of integers.
        low: the smallest element; 0 where there is none.
        high: the largest.
        is_distinct: whether no two elements are equal.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    low: float
    high: float
    is_distinct: bool

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    @property
    def magnitude(self) -> float:
        return max(abs(self.low), abs(self.high))


class Add(Protocol):
    """Makes a drawn tensor part of the graph."""

    def __call__(self, tensor: Tensor) -> Value: ...


@dataclass(slots=True)
class Drawing:
    """The state of one graph that is being drawn.

    Attributes:
        rng: all choices are its.
        add: makes a tensor an input or a weight.
        values: all that there is, in order.
        allow_empty: whether extents may be 0.
        allow_large: whether extents may be large.
        open: extents that are drawn in the place of others, often; only inputs have them.
    """

    rng: random.Random
    add: Add
    values: list[Value] = field(default_factory=list)
    allow_empty: bool = False
    allow_large: bool = False
    open: tuple[int, ...] = ()
    used: set[str] = field(default_factory=set)
    _count: int = 0

    def extent(self, most: int = 10**6) -> int:
        if self.allow_empty and self.rng.random() < 0.15:
            return 0
        if self.open and self.rng.random() < 0.35:
            return self.rng.choice([e for e in self.open if e <= most] or [1])
        pool = LARGE if self.allow_large and self.rng.random() < 0.3 else EXTENTS
        return self.rng.choice([e for e in pool if e <= most] or [1])

    def shape(self, rank: int, size: int = 6000) -> tuple[int, ...]:
        """Extents whose product is no more than ``size``, four times as much where large."""
        left = size * (8 if self.allow_large else 1)
        extents = []
        for _ in range(rank):
            extents.append(self.extent(max(1, left)))
            left //= max(1, extents[-1])
        self.rng.shuffle(extents)
        return tuple(extents)

    def pick(self, fits: Callable[[Value], bool], make: Callable[[], Value] | None = None) -> Value:
        """A value that fits, those not used yet before others; else what ``make`` makes.

        Raises:
            Misfit: there is none.
        """
        fitting = [value for value in self.values if fits(value)]
        fresh = [value for value in fitting if value.name not in self.used]
        if fresh and self.rng.random() < 0.75:
            fitting = fresh
        among = [value for value in fitting if set(value.shape) & set(self.open)]
        if among and self.rng.random() < 0.7:
            fitting = among
        if not fitting or (make is not None and self.rng.random() < 0.1):
            if make is None:
                raise Misfit
            return make()
        return self.rng.choice(fitting[-6:])

    def floats(self, *ranks: int, most: float = 1e3) -> Value:
        """A value of floats of one of these ranks; of any where there is none."""
        wanted = ranks or (0, 1, 2, 2, 3, 3, 4, 4, 5)

        def fits(value: Value) -> bool:
            return (
                value.kind == FLOAT
                and (not ranks or value.rank in ranks)
                and value.magnitude <= most
            )

        return self.pick(fits, lambda: self.input(self.shape(self.rng.choice(wanted))))

    def integers(self, *ranks: int) -> Value:
        def fits(value: Value) -> bool:
            return value.kind in INTEGERS and (not ranks or value.rank in ranks)

        rank = self.rng.choice(ranks or (1, 2, 3))
        return self.pick(
            fits,
            lambda: self.input(
                self.shape(rank), self.rng.choice(INTEGERS), self.rng.choice((2, 5, 100))
            ),
        )

    def bools(self) -> Value:
        return self.pick(
            lambda value: value.kind == "bool",
            lambda: self.input(self.shape(self.rng.choice((1, 2, 3))), "bool"),
        )

    def anything(self, *ranks: int) -> Value:
        return self.pick(
            lambda value: not ranks or value.rank in ranks,
            lambda: self.input(self.shape(self.rng.choice(ranks or (1, 2, 3, 4)))),
        )

    def input(self, shape: Sequence[int], kind: str = FLOAT, below: int = 2) -> Value:
        """A new input of that shape."""
        return self._tensor("x", shape, kind, below)

    def weight(
        self, shape: Sequence[int], kind: str = FLOAT, below: int = 2, scale: float = 1.0
    ) -> Value:
        """A new weight, once in a while an input."""
        prefix = "x" if self.rng.random() < 0.15 else "c"
        return self._tensor(prefix, shape, kind, below, scale)

    def _tensor(
        self, prefix: str, shape: Sequence[int], kind: str, below: int, scale: float = 1.0
    ) -> Value:
        if {*shape, below} & set(self.open):
            prefix = "x"
        order = list(range(len(shape)))
        if prefix == "x" and len(shape) > 1 and self.rng.random() < 0.2:
            if len(shape) == 4 and self.rng.random() < 0.6:
                order = [0, 2, 3, 1]  # channels_last
            else:
                self.rng.shuffle(order)
        is_plain = order == sorted(order)
        name = f"{prefix}{self._count}"
        self._count += 1
        kept = () if is_plain else tuple(order)
        return self.add(Tensor(name, tuple(shape), kind, below, kept, round(scale, 4)))

    def fan(self, shape: Sequence[int], depth: int) -> Value:
        """A weight whose sums of ``depth`` products are about as large as their operands."""
        return self.weight(shape, scale=max(1, depth) ** -0.5)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def choice(self, options: Sequence[Any]) -> Any:
        return self.rng.choice(options)

    def axis(self, value: Value) -> int:
        """A dimension, counted from either end.

        Raises:
            Misfit: it has none.
        """
        if not value.rank:
            raise Misfit
        return self.rng.randrange(-value.rank, value.rank)

    def axes(self, value: Value) -> tuple[int, ...]:
        """One or more different dimensions."""
        if not value.rank:
            raise Misfit
        count = self.rng.randint(1, value.rank)
        chosen = self.rng.sample(range(value.rank), count)
        return tuple(axis - value.rank if self.chance(0.3) else axis for axis in chosen)

    def broadcastable(self, value: Value) -> Value:
        """Another value, or a new one, that broadcasts with ``value``."""

        def fits(other: Value) -> bool:
            pairs = zip(reversed(other.shape), reversed(value.shape), strict=False)
            return other.kind == value.kind and all(1 in (a, b) or a == b for a, b in pairs)

        def make() -> Value:
            kept = (
                value.shape[self.rng.randint(0, value.rank) :] if self.chance(0.4) else value.shape
            )
            shape = [1 if self.chance(0.3) else extent for extent in kept]
            below = max(2, min(100, int(value.high) + 1))
            if self.chance(0.5):
                return self.weight(shape, value.kind, below)
            return self.input(shape, value.kind, below)

        others = self.chance(0.6)
        return self.pick(fits if others else (lambda _: False), make)
