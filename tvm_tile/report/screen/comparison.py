"""A comparison on one screen: both sides, and what differs most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from tvm_tile.report.comparison import Delta
from tvm_tile.report.compiled import ModelReport
from tvm_tile.report.screen.short_names import short
from tvm_tile.report.screen.text import Row, counted, duration, size, with_room, wrapped

_ROWS = 20  # changes
_EVEN = 0.005  # of the longer run: differences below are told together
_HEADING = ("difference", "a", "b", "kernels", "places", "computes (first place)")


def comparison_screen(
    sides: tuple[ModelReport, ModelReport],
    seconds: tuple[float, float],
    is_measured: bool,
    changes: Sequence[Delta],
    width: int,
) -> Iterator[str]:
    """A screen for people: at most 40 lines of at most ``width`` characters, 80 or more.

    Args:
        sides: titles of the two sides.
        seconds: seconds of a run of each side.
        is_measured: whether times are measured; else they are predicted.
        changes: changes, the largest first.
        width: characters of a line.
    """
    for name, report, own in zip("ab", sides, seconds, strict=True):
        for line in _side(name, report, own, is_measured):
            yield from wrapped(line, width)
    yield _verdict(*seconds)
    yield ""
    yield from _changes(changes, _EVEN * max(seconds), width)


def _side(name: str, report: ModelReport, seconds: float, is_measured: bool) -> Iterator[str]:
    """Lines on one side of a comparison: device, time, launches and traffic."""
    how = "measured" if is_measured else report.how
    least = f", {duration(report.limit_seconds)} at best" if report.limits else ""
    yield f"{name}: {report.device}, a run takes {duration(seconds)} {how}{least}"
    graphs = report.launches.graphs if report.launches else 0
    within = f" in {counted(graphs, 'CUDA graph')}" if graphs else ""
    keeps = f"moves {size(report.traffic)}, keeps {size(report.weights)}"
    launches = f"{report.launch_count} launches{within}"
    yield f"   {len(report.kernels)} different kernels, {launches}, {keeps}"
    if report.origin is not None:
        yield f"   {report.origin.describe()}"


def _verdict(first: float, second: float) -> str:
    """Words for which side is faster, and by how much."""
    if not first or not second:
        return "one of them has no time: nothing follows"
    if first == second:
        return "both take the same time"
    if second < first:
        return f"b takes {duration(first - second)} less: it is {first / second:.2f} times as fast"
    return f"b takes {duration(second - first)} more: {second / first:.2f} times as long"


def _changes(changes: Sequence[Delta], even: float, width: int) -> Iterator[str]:
    """Rows of the largest changes, and a line on all others."""
    told = [change for change in changes if abs(change.difference) > even][:_ROWS]
    rest = changes[len(told) :]
    if told:
        yield from with_room(_HEADING, [_row(change) for change in told], width)
    if rest:
        difference = sum(change.difference for change in rest)
        yield f"{_signed(difference)} in {counted(len(rest), 'other part')} of the model"


def _row(change: Delta) -> Row:
    """The row of a change."""
    cells = (
        _signed(change.difference),
        duration(change.first) if change.first_kernels else "-",
        duration(change.second) if change.second_kernels else "-",
        _kernels(change),
        str(change.places),
    )
    return cells, partial(short, change.names)


def _kernels(change: Delta) -> str:
    """The same ones, others, or how many on each side."""
    first, second = change.first_kernels, change.second_kernels
    return "same" if first == second else f"{len(first)} -> {len(second)}"


def _signed(seconds: float) -> str:
    """A difference of times for people, with its sign and unit, such as ``"+1.2 us"``."""
    return f"{'+' if seconds > 0 else '-' if seconds < 0 else ''}{duration(abs(seconds))}"
