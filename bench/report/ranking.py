"""How well does the model rank tiles? From what ``python -m bench.candidates`` measured."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.report.compare import CLOSE, geometric_mean
from bench.report.data import DTYPES
from bench.report.markdown import join, percent, plain, ratio, table
from bench.suites import choose

# Families of the suites, by what is written for them; a family that is none of these is "other".
_KINDS = {
    "contraction": ("conv", "gemm", "matmul", "nchw", "nhwc"),
    "window": ("depthwise", "pooling"),
}
_OTHER = "other"


@dataclass(frozen=True, slots=True)
class Ranking:
    """The tiles that one rule has for an operator.

    Attributes:
        operator: ``SUITE:NAME:DTYPE``.
        kind: contraction, window or other.
        tiles: how many were measured, two at least.
        correlation: of predicted and measured times, by rank; None where all of either are equal.
        regret: time of the model's first choice over that of the fastest tile, at least one.
    """

    operator: str
    kind: str
    tiles: int
    correlation: float | None
    regret: float

    @property
    def dtype(self) -> str:
        """Of the operands."""
        return self.operator.rpartition(":")[2]


def section(path: Path) -> str:
    """The tables of a file of ``bench.candidates``; empty where there is none."""
    if not path.exists():
        return ""
    content = json.loads(path.read_text(encoding="utf-8"))
    found = rankings(content["records"])
    keys = ("gpu", "driver", "versions", "date", "commit")
    facts = [f"{key} {plain(content[key])}" for key in keys if content.get(key)]
    unknown = "" if content.get("commit") else ", of which the file does not say the commit"
    note = (
        "Of each operator the model's best tiles and a sample of the others, each timed with a "
        "cold cache. Correlation: Spearman's, of predicted and measured times, the median over "
        "the operators. Regret: time of the model's first choice over the fastest tile measured. "
        "Predictions are as recorded, those of the model that was measured" + unknown + "; some "
        "of these operators are among those that its constants were fitted to."
    )
    return join("## How well the model ranks", "; ".join(facts) + ".", note, _summary(found))


def rankings(records: Iterable[Mapping[str, Any]]) -> tuple[Ranking, ...]:
    """One for each operator and rule of which at least two tiles were measured."""
    tiles: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for record in records:
        # Files of before there were several rules have one for each operator, unnamed.
        tiles.setdefault((record["operator"], record.get("rule", "")), []).append(record)
    return tuple(_ranking(name, own) for (name, _), own in tiles.items() if len(own) > 1)


def _ranking(operator: str, records: Sequence[Mapping[str, Any]]) -> Ranking:
    ordered = sorted(records, key=lambda record: record["rank"])
    predicted = [record["predicted_s"] for record in ordered]
    measured = [record["measured_s"] for record in ordered]
    return Ranking(
        operator,
        _kind(operator),
        len(ordered),
        rank_correlation(predicted, measured),
        measured[0] / min(measured),
    )


def _kind(operator: str) -> str:
    suite, name, dtype = operator.split(":")
    known = choose([suite], name=[name], dtype=[dtype])
    family = known[0].family if known else suite  # a product of any extents
    return next((kind for kind, families in _KINDS.items() if family in families), _OTHER)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's coefficient; equal values share a rank. None where all of either are equal."""
    ranks = [_ranks(values) for values in (first, second)]
    if any(np.ptp(own) == 0 for own in ranks):
        return None
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: Sequence[float]) -> npt.NDArray[np.float64]:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[place], np.float64)


def _summary(found: Sequence[Ranking]) -> str:
    rows = []
    for kind in (*_KINDS, _OTHER):
        for dtype in DTYPES:
            own = [r for r in found if (r.kind, r.dtype) == (kind, dtype)]
            if own:
                rows.append([kind, dtype, *_cells(own)])
    if len(rows) > 1:
        rows.append(["**all**", "", *_cells(found)])
    header = ["family", "dtype", "operators", "tiles", "correlation", "regret, geometric mean"]
    header += ["worst regret", f"at most {percent(CLOSE - 1)} regret"]
    return table(header, rows, text=2)


def _cells(own: Sequence[Ranking]) -> list[str]:
    correlations = [r.correlation for r in own if r.correlation is not None]
    worst = max(own, key=lambda r: r.regret)
    return [
        str(len(own)),
        str(sum(r.tiles for r in own)),
        ratio(statistics.median(correlations) if correlations else None),
        ratio(geometric_mean([r.regret for r in own])),
        f"{ratio(worst.regret)} ({worst.operator.rpartition(':')[0]})",
        percent(sum(r.regret <= CLOSE for r in own) / len(own)),
    ]
