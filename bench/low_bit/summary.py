"""The figures of the report, from records: geometric means, ratios, shares of the floor.

Only results that are right enter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from bench.low_bit.formats import FORMATS
from bench.low_bit.products import FAMILIES, MARLIN, PREFILL, products
from bench.low_bit.record import APART, CUBLAS, FLOATS, OURS, Measured
from bench.report.compare import geometric_mean

_LARGE_BYTES = 100e6
_FOURS, _EIGHTS = "W4A16", "W8A16"
_CUBE = "M10"  # 8192 vectors, rows and elements
_SQUARE_OF_LADDER = "M0"  # of no language model


@dataclass(frozen=True, slots=True)
class Ratios:
    """Ratios of several products, at least one, by the products' names."""

    values: Mapping[str, float]

    @property
    def mean(self) -> float:
        """Their geometric mean."""
        return geometric_mean(list(self.values.values()))

    @property
    def worst(self) -> str:
        """Whose is the least."""
        return min(self.values, key=self.values.__getitem__)

    @property
    def least(self) -> float:
        """The least."""
        return self.values[self.worst]


@dataclass(frozen=True, slots=True)
class Demand:
    """A ratio that is asked for.

    Attributes:
        what: in words.
        wanted: that it is to be at least.
        found: ratios of products.
        by_worst: whether each is to be so, and not their mean.
    """

    what: str
    wanted: float
    found: Ratios
    by_worst: bool = False

    @property
    def is_met(self) -> bool:
        """Whether it is so."""
        return (self.found.least if self.by_worst else self.found.mean) >= self.wanted


@dataclass(frozen=True)
class Results:
    """The records of one GPU."""

    records: tuple[Measured, ...]

    @cached_property
    def right(self) -> dict[tuple[str, str], dict[tuple[str, str], Measured]]:
        """Those that are right: by product (family and name), then by format and system."""
        found: dict[tuple[str, str], dict[tuple[str, str], Measured]] = {}
        for one in self.records:
            if one.is_right:
                found.setdefault((one.family, one.name), {})[one.format, one.system] = one
        return found

    def us(self, family: str, name: str, form: str, system: str = OURS) -> float | None:
        """Median microseconds of a product, where these are known and it is right."""
        one = self.right.get((family, name), {}).get((form, system))
        return None if one is None else one.median_us

    def names(self, family: str) -> list[str]:
        """A family's products of which something is right, in order."""
        own = (one.name for one in products() if one.family == family)
        return [name for name in own if (family, name) in self.right]

    def formats(self, family: str) -> list[str]:
        """The formats in which one of our products of a family is right, in order."""
        own = [known for place, known in self.right.items() if place[0] == family]
        return [form for form in FORMATS if any((form, OURS) in known for known in own)]

    def speed_up(self, family: str, form: str, other: str) -> Ratios | None:
        """Another system's time over ours."""
        return _ratios(
            (name, self.us(family, name, form, other), self.us(family, name, form))
            for name in self.names(family)
        )

    def reached(self, family: str, form: str, least_bytes: float = 0) -> Ratios | None:
        """The floor's share of our time, of products that read and write so many bytes at least."""
        own = [(n, self.right[family, n].get((form, OURS))) for n in self.names(family)]
        return _ratios(
            (name, one.floor_us, one.median_us)
            for name, one in own
            if one and one.least_bytes >= least_bytes
        )

    def few_over_one(self, form: str, family: str) -> Ratios | None:
        """The time of one vector over that of the few of a family, for the same matrices."""
        return _ratios(
            (name, self.us("V", name, form), self.us(family, name, form))
            for name in self.names(family)
        )

    def over_format(self, family: str, form: str, other: str) -> Ratios | None:
        """Our time in another format over that in this one."""
        return _ratios(
            (name, self.us(family, name, other), self.us(family, name, form))
            for name in self.names(family)
        )

    def marlin(self) -> Ratios | None:
        """Marlin's published time over ours."""
        return _ratios(
            (one.name, one.marlin_us, self.us(MARLIN, one.name, _FOURS))
            for one in products()
            if one.family == MARLIN
        )

    def demands(self) -> list[Demand]:
        """What is asked of weights of a few bits, as far as it was measured."""
        return [
            Demand(what, wanted, found, by_worst)
            for what, wanted, found, by_worst in self._asked()
            if found is not None
        ]

    def _asked(self) -> Iterator[tuple[str, float, Ratios | None, bool]]:
        fours = _FOURS
        yield f"{fours}, V: over cuBLAS", 3.3, self.speed_up("V", fours, CUBLAS), False
        large = self.reached("V", fours, _LARGE_BYTES)
        yield f"{fours}, V from 100 MB: share of the floor", 0.75, large, True
        yield f"{fours}: over Marlin's published times on an H200", 1, self.marlin(), True
        sixteen = self.few_over_one(fours, "V16")
        yield f"{fours}: one vector's time over that of 16", 1 / 1.15, sixteen, False
        for form in ("W2A16", "NF4", "MXFP4"):
            own = self.over_format("V", form, _EIGHTS)
            yield f"{form}, V: {_EIGHTS}'s time over its", 1, own, False
        for family in ("V32", "V64"):
            own = self.speed_up(family, fours, FLOATS)
            yield f"{fours}, {family}: over our float16 product", 1.5, own, False
        prefill = _without(self.speed_up(PREFILL, fours, FLOATS), _SQUARE_OF_LADDER)
        yield f"{fours}, M1-M12: over our float16 product", 0.9, prefill, False
        for family in FAMILIES:
            apart = self.speed_up(family, fours, APART)
            yield f"{fours}, {family}: over decoding to memory first", 1, apart, True
        for form in ("W8A8", "FP8 both"):
            cube = self.speed_up(PREFILL, form, FLOATS)
            own = cube and _only(cube, _CUBE)
            yield f"{form}, {_CUBE}: over our float16 product", 1.8, own, False


def _ratios(pairs: Iterable[tuple[str, float | None, float | None]]) -> Ratios | None:
    """Quotients of what is known of both; ``None`` where nothing is."""
    found = {name: over / under for name, over, under in pairs if over and under}
    return Ratios(found) if found else None


def _only(ratios: Ratios, name: str) -> Ratios | None:
    return Ratios({name: ratios.values[name]}) if name in ratios.values else None


def _without(ratios: Ratios | None, name: str) -> Ratios | None:
    left = {} if ratios is None else {n: v for n, v in ratios.values.items() if n != name}
    return Ratios(left) if left else None
