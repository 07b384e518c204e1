"""Tiles that run at open extents, and the time that these lose, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tvm_tile.graph.open_extents import Point, Symbol
from tvm_tile.report.cover_report import ModelCover, ModelTimes
from tvm_tile.report.screen.table import Part, Table


def render_cover(model: ModelCover, how: str) -> Iterator[Part]:
    """Lines for people: the tiles of each kernel with their ends, then the model's times.

    Args:
        model: none are written where no kernel has tiles by extents.
        how: times are ``"predicted"`` or ``"estimated"``.
    """
    if not model.kernels:
        return
    yield f"tiles by open extents, and what these lose at most beside the best at each, {how}:"
    for name, (cover, calls) in model.kernels.items():
        worst, names = cover.worst, model.names(cover)
        yield f"  {calls} x {name}: {_lost(worst.loss)} at {_list(names, ' = ', worst.bound)}"
        for end in cover.ends:
            tile = cover.tile_of(end)
            yield f"      {_list(names, ' <= ', end.bound)}: {tile.rule}, {tile.tile}"
    yield f"these kernels in a run, {how}, behind their launches:"
    yield Table(tuple(_rows(model.symbols, model.times)), indent=2)
    most = max(model.times, key=lambda time: time.loss)
    at = _list([symbol.name for symbol in model.symbols], " = ", most.extents)
    yield f"  at most {_lost(most.loss)} are lost, at {at}"
    others = f"{model.other_seconds * 1e6:.1f} us at the greatest extents"
    yield f"  all other kernels have one tile: {others}, launches included"


def _rows(symbols: Sequence[Symbol], times: Sequence[ModelTimes]) -> Iterator[tuple[str, ...]]:
    """Rows of the model's times at some extents."""
    yield (*(symbol.name for symbol in symbols), "these tiles", "best tiles", "lost")
    for time in times:
        both = (f"{seconds * 1e6:.1f} us" for seconds in (time.seconds, time.best_seconds))
        yield (*map(str, time.extents), *both, _lost(time.loss))


def _lost(share: float) -> str:
    """A share of time for people, in percent."""
    return f"{100 * share:.1f} %"


def _list(names: Sequence[str], sign: str, extents: Point) -> str:
    """Extents with their names and a sign between them."""
    return ", ".join(f"{name}{sign}{extent}" for name, extent in zip(names, extents, strict=True))
