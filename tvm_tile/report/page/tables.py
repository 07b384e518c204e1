"""The tables of a page beside that of its kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tvm_tile.report.coded_weights import CodedWeight
from tvm_tile.report.compiled import ModelReport
from tvm_tile.report.page.numbers import bytes_text, share_text, time_text
from tvm_tile.report.persistent_report import LeftApart
from tvm_tile.tile.weld.connect import Decision

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CoverRows:
    """Tables about open extents.

    Attributes:
        extents: names of the model's.
        times: a row for each point: the extents, these tiles' time, the best ones', what is lost.
        tiles: a row for each tile: kernel, up to which extents it runs, and what it is.
    """

    extents: tuple[str, ...]
    times: tuple[Row, ...]
    tiles: tuple[Row, ...]


def cover_rows(report: ModelReport) -> CoverRows | None:
    """Rows on tiles by open extents; ``None`` where no kernel has such tiles."""
    model = report.cover
    if not model.kernels:
        return None
    times = tuple(
        (*map(str, t.extents), time_text(t.seconds), time_text(t.best_seconds), share_text(t.loss))
        for t in model.times
    )
    tiles = tuple(
        (
            name,
            ", ".join(
                f"{own} ≤ {most}" for own, most in zip(model.names(cover), end.bound, strict=True)
            ),
            f"{cover.tile_of(end).rule}: {cover.tile_of(end).tile}",
        )
        for name, (cover, _) in model.kernels.items()
        for end in cover.ends
    )
    return CoverRows(tuple(symbol.name for symbol in model.symbols), times, tiles)


def coded_rows(weights: Sequence[CodedWeight]) -> tuple[Row, ...]:
    """Matrices that arrive as codes of a few bits: number, shape, how kept, bytes, of values."""
    return tuple(
        (
            str(count),
            f"{'×'.join(map(str, own.shape))} {own.dtype}",
            ": ".join(filter(None, (str(own.format or "its values"), own.reason))),
            bytes_text(own.bytes),
            bytes_text(own.folded_bytes),
        )
        for own, count in Counter(weights).items()
    )


def joined_rows(decisions: Sequence[Decision]) -> tuple[Row, ...]:
    """Rows on kernels joined beyond TVM's own fusion.

    Their cells are number, functions, rule, times as one and apart, bytes less, and other ways with
    their times.
    """
    made = Counter(decision for decision in decisions if not decision.reason)
    return tuple(
        (
            str(count),
            " + ".join(own.functions),
            own.rule,
            time_text(own.together),
            time_text(own.apart),
            bytes_text(own.saved_bytes),
            "; ".join(f"{' + '.join(o.functions)}: {time_text(o.seconds)}" for o in own.options),
        )
        for own, count in made.items()
    )


def apart_rows(decisions: Sequence[Decision], left: Sequence[LeftApart]) -> tuple[Row, ...]:
    """Rows on groups that were not joined: number, functions, why, times as one and apart."""
    kept = Counter(decision for decision in decisions if decision.reason)
    pairs = [
        (
            str(count),
            " + ".join(own.functions),
            own.reason,
            time_text(own.together) if own.together else "–",
            time_text(own.apart) if own.apart else "–",
        )
        for own, count in kept.items()
    ]
    launched = [(str(own.calls), ", ".join(own.functions), own.reason, "–", "–") for own in left]
    return tuple(pairs + launched)
