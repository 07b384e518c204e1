"""What the points of a model amount to: pure arithmetic on records."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bench.open_shapes.record import SYSTEMS, Compilation, Point

WANTED, WORST = 1.10, 1.20
WANTED_SHARE, PADDED_SHARE, COMPILE_RATIO = 0.95, 0.90, 3.0


@dataclass(frozen=True, slots=True)
class Row:
    """An extent: milliseconds of each system that is right there.

    Attributes:
        extent: of the calls.
        ms: system -> of its fastest variant.
        variants: system -> which that is.
        padded_to: what the input was padded to.
    """

    extent: int
    ms: Mapping[str, float]
    variants: Mapping[str, str]
    padded_to: int | None = None

    def ratio(self, system: str, to: str) -> float | None:
        """Time of a system over that of another; None unless both are right."""
        own, other = self.ms.get(system), self.ms.get(to)
        return None if own is None or other is None else own / other


@dataclass(frozen=True, slots=True)
class Summary:
    """A model.

    Attributes:
        model: its name.
        rows: in the order of extents.
        wrong: points that do not count.
        refused: compilations that there are none of.
        compilations: those that are.
        compiled: system and variant -> kernels or graphs compiled by calls at single extents.
        recompiling_s: system and variant -> seconds of the calls that compiled.
        slowest_first_s: of the first calls of ``open``, but for that which loads the model.
    """

    model: str
    rows: tuple[Row, ...]
    wrong: tuple[Point, ...] = ()
    refused: tuple[Compilation, ...] = ()
    compilations: tuple[Compilation, ...] = ()
    compiled: Mapping[tuple[str, str], int] = field(default_factory=dict)
    recompiling_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    slowest_first_s: float | None = None

    def ratios(self, system: str, to: str) -> dict[int, float]:
        """Extent -> time of a system over that of another, where both are right."""
        found = ((row.extent, row.ratio(system, to)) for row in self.rows)
        return {extent: ratio for extent, ratio in found if ratio is not None}

    def share_within(self, limit: float) -> float | None:
        """Of the points, those at which ``open`` takes at most ``limit`` times ``static``."""
        return _share(ratio <= limit for ratio in self.ratios("open", "static").values())

    @property
    def worst(self) -> tuple[int, float] | None:
        """The extent with the greatest ratio of ``open`` to ``static``, and that ratio."""
        ratios = self.ratios("open", "static")
        return max(ratios.items(), key=lambda item: item[1]) if ratios else None

    def speed_up(self, over: str) -> float | None:
        """Geometric mean of a system's time over that of ``open``."""
        ratios = self.ratios(over, "open")
        return statistics.geometric_mean(ratios.values()) if ratios else None

    def share_faster(self, over: str) -> float | None:
        """Of the points, those at which ``open`` takes less time than a system."""
        return _share(ratio > 1 for ratio in self.ratios(over, "open").values())

    def seconds(self, system: str, variant: str = "") -> list[float]:
        """Of each compilation before the timing, if no earlier one's results were read."""
        return [
            one.seconds
            for one in self.compilations
            if (one.system, one.variant) == (system, variant) and not one.is_cached
        ]

    def kernels(self, system: str) -> int | None:
        """How many were built for all extents together."""
        own = [one.kernels or 0 for one in self.compilations if one.system == system]
        return sum(own) if own else None

    @property
    def compile_ratio(self) -> float | None:
        """Seconds of compiling ``open`` over the median of compiling for one extent."""
        whole, each = self.seconds("open"), self.seconds("static")
        return whole[-1] / statistics.median(each) if whole and each else None


def summarize(model: str, points: Iterable[Point], compilations: Iterable[Compilation]) -> Summary:
    """The summary of a model, from all records or its own."""
    own = [point for point in points if point.model == model]
    made = [one for one in compilations if one.model == model]
    extents = sorted({point.extent for point in own})
    first_calls = sorted(
        point.first_call_s
        for point in own
        if point.system == "open" and point.first_call_s is not None
    )
    compiled: dict[tuple[str, str], int] = {}
    seconds: dict[tuple[str, str], float] = {}
    for point in own:
        way = point.system, point.variant
        compiled[way] = compiled.get(way, 0) + point.compiled
        spent = (point.first_call_s or 0.0) if point.compiled else 0.0
        seconds[way] = seconds.get(way, 0.0) + spent
    return Summary(
        model,
        tuple(_row(extent, own) for extent in extents),
        tuple(point for point in own if not point.is_right),
        tuple(one for one in made if one.status != "ok"),
        tuple(one for one in made if one.status == "ok"),
        compiled,
        seconds,
        first_calls[-2] if len(first_calls) > 1 else None,
    )


def _row(extent: int, points: Iterable[Point]) -> Row:
    own = [point for point in points if point.extent == extent]
    ms: dict[str, float] = {}
    variants: dict[str, str] = {}
    for system in SYSTEMS:
        right = [
            (point.median_ms, point.variant)
            for point in own
            if point.system == system and point.is_right and point.median_ms is not None
        ]
        if right:
            ms[system], variants[system] = min(right)
    padded = (point.padded_to for point in own if point.system == "padded")
    return Row(extent, ms, variants, next(padded, None))


def _share(verdicts: Iterable[bool]) -> float | None:
    found = list(verdicts)
    return sum(found) / len(found) if found else None
