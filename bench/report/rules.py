"""Rules beside each other: from what ``python -m bench.candidates`` measured of several.

Models of rules were fitted one by one. How far they disagree about functions that both take is how
much faster one must be predicted to displace another.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.report.compare import geometric_mean
from bench.report.markdown import join, number, ratio, table


@dataclass(frozen=True, slots=True)
class First:
    """A rule's own first choice for an operator.

    Attributes:
        rule: its name.
        predicted: seconds.
        measured: seconds.
        fastest: seconds of the fastest tile of the rule that was measured.
        chosen: whether it is the one that the ranking takes.
    """

    rule: str
    predicted: float
    measured: float
    fastest: float
    chosen: bool

    @property
    def error(self) -> float:
        """Measured over predicted time."""
        return self.measured / self.predicted


@dataclass(frozen=True, slots=True)
class Contest:
    """An operator that several rules write, each with its first choice, in the rules' order."""

    operator: str
    firsts: tuple[First, ...]

    @property
    def rules(self) -> tuple[str, ...]:
        """Names of those that take part."""
        return tuple(first.rule for first in self.firsts)

    @property
    def fastest(self) -> float:
        """Seconds of the fastest tile measured, of any rule."""
        return min(first.fastest for first in self.firsts)

    @property
    def chosen(self) -> First:
        """What the ranking takes; the first rule's, where this was not measured."""
        return next((first for first in self.firsts if first.chosen), self.firsts[0])

    def of(self, rule: str) -> First | None:
        """A rule's first choice."""
        return next((first for first in self.firsts if first.rule == rule), None)


def contests(records: Iterable[Mapping[str, Any]]) -> tuple[Contest, ...]:
    """One for each operator of which tiles of two rules or more were measured."""
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for record in records:
        found.setdefault(record["operator"], {}).setdefault(record["rule"], []).append(record)
    return tuple(
        Contest(operator, tuple(_first(rule, own) for rule, own in rules.items()))
        for operator, rules in found.items()
        if len(rules) > 1
    )


def _first(rule: str, records: Sequence[Mapping[str, Any]]) -> First:
    own = min(records, key=lambda record: int(record["rank"]))
    fastest = min(record["measured_s"] for record in records)
    chosen = any(record["chosen"] for record in records)
    return First(rule, own["predicted_s"], own["measured_s"], fastest, chosen)


def compared_rules(records: Iterable[Mapping[str, Any]]) -> str:
    """Tables: regret by who competes, the error of each rule, how each pair disagrees."""
    found = contests(records)
    if not found:
        return "no operator was measured by two rules\n"
    return join(
        "Regret over all rules' tiles, geometric mean: of what the ranking takes, of the first "
        "rule's first choice, of the best of all first choices.",
        _regrets(found),
        "Measured over predicted time of first choices, geometric mean and standard deviation of "
        "its logarithm.",
        _errors(found),
        "Pairs: this ratio of the second rule over that of the first, the same way; how often the "
        "second is predicted faster, is faster, and both.",
        _pairs(found),
    )


def _regrets(found: Sequence[Contest]) -> str:
    families: dict[str, list[Contest]] = {}
    for contest in found:
        dtype = contest.operator.rpartition(":")[2]
        families.setdefault(f"{' '.join(contest.rules)}, {dtype}", []).append(contest)
    header = ["family", "operators", "taken", "first rule", "best first"]
    whole = {"**all**": list(found)} if len(families) > 1 else {}
    return table(header, ([name, *_regret(own)] for name, own in (families | whole).items()))


def _regret(own: Sequence[Contest]) -> list[str]:
    taken = [c.chosen.measured / c.fastest for c in own]
    first = [c.firsts[0].measured / c.fastest for c in own]
    best = [min(f.measured for f in c.firsts) / c.fastest for c in own]
    return [str(len(own)), *(ratio(geometric_mean(values)) for values in (taken, first, best))]


def _errors(found: Sequence[Contest]) -> str:
    errors: dict[str, list[float]] = {}
    for first in (first for contest in found for first in contest.firsts):
        errors.setdefault(first.rule, []).append(first.error)
    header = ["rule", "operators", "ratio", "spread"]
    return table(header, ([rule, *_centre(own)] for rule, own in errors.items()))


def _pairs(found: Sequence[Contest]) -> str:
    pairs = dict.fromkeys(p for c in found for p in itertools.combinations(c.rules, 2))
    rows = []
    for one, other in pairs:
        both = [(a, b) for c in found if (a := c.of(one)) and (b := c.of(other))]
        predicted = [b.predicted < a.predicted for a, b in both]
        measured = [b.measured < a.measured for a, b in both]
        agreed = sum(map(all, zip(predicted, measured, strict=True)))
        counts = [str(n) for n in (sum(predicted), sum(measured), agreed)]
        rows.append([f"{one}, {other}", *_centre([b.error / a.error for a, b in both]), *counts])
    header = ["pair", "operators", "ratio", "spread", "predicted", "measured", "both"]
    return table(header, rows)


def _centre(ratios: Sequence[float]) -> list[str]:
    logarithms = [math.log(value) for value in ratios]
    spread = statistics.stdev(logarithms) if len(logarithms) > 1 else None
    return [str(len(ratios)), ratio(geometric_mean(ratios)), number(spread, 2)]
