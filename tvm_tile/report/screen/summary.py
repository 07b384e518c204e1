"""A model's report on one screen: what a user asks first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from tvm_tile.report.compiled import KernelReport, ModelReport
from tvm_tile.report.detail import Sort
from tvm_tile.report.screen.kernel_table import sorted_by
from tvm_tile.report.screen.short_names import without_numbers
from tvm_tile.report.screen.text import (
    Row,
    computes,
    counted,
    duration,
    size,
    with_room,
    wrapped,
)

_ROWS = 10  # kernels
_FALLBACKS = 3
_NOTES = 4
_HEADING = ("share", "time", "calls", "bound by", "computes")


def screen(
    report: ModelReport, sort: Sort, measured: float, spread: float, width: int
) -> Iterator[str]:
    """A screen for people: at most 40 lines of at most ``width`` characters, 80 or more.

    Args:
        report: report of a model.
        sort: order of the kernels.
        measured: seconds of a run; 0 where none was measured.
        spread: spread of the measured seconds.
        width: characters of a line.
    """
    for line in _totals(report, measured, spread):
        yield from wrapped(line, width)
    yield ""
    yield from _kernels(report, sort, width)
    yield ""
    for line in _remarks(report, width):
        yield from wrapped(line, width)


def _totals(report: ModelReport, measured: float, spread: float) -> Iterator[str]:
    """Lines on a whole run: time, limit, traffic, launches, memory, compilation."""
    taken = f", {duration(measured)} measured (spread {duration(spread)})" if measured else ""
    run = f"{report.at_least}{duration(report.predicted_seconds)} {report.how}"
    yield f"{report.device}: a run takes {run}{taken}"
    if report.limits is not None:
        cached = "L2 cache" if report.limits.is_cached else "memory"
        rate = f"{report.limits.bandwidth * 1e-12:.2f} TB/s of its {cached}"
        least = duration(report.limit_seconds)
        yield f"  at best    {least}, were each kernel at the {rate} or at the peak of its units"
    flops = sum(kernel.calls * kernel.flops for kernel in report.kernels)
    moved = f"{size(report.traffic)} to and from memory"
    yield f"  moves      {moved}, computes {flops * 1e-9:.3g} GFLOP"
    yield f"  launches   {_launches(report)}"
    between = f" and {size(report.planned)} between kernels" * bool(report.planned)
    yield f"  keeps      {size(report.weights)} of constants{between} in the device's memory"
    if report.stages:
        longest = max(report.stages, key=lambda stage: stage.seconds)
        total = sum(stage.seconds for stage in report.stages)
        yield f"  compiled   in {total:.1f} s, of which {longest.seconds:.1f} s: {longest.name}"


def _launches(report: ModelReport) -> str:
    """Words for the launches of a run."""
    count = report.launch_count
    if report.launches is None:
        return f"{count} kernels, one by one"
    graphs = f"{report.launches.graphs} CUDA graph{'s' * (report.launches.graphs != 1)}"
    early = f", of which {report.launches.dependent} start while the one before ends"
    inside = f"{report.launches.captured} in {graphs}{early * bool(report.launches.dependent)}"
    return f"{count} kernels: {inside}; {report.launches.outside} by themselves"


def _kernels(report: ModelReport, sort: Sort, width: int) -> Iterator[str]:
    """Rows of the kernels that take most time, and a line on the others."""
    own = (kernel for kernel in report.kernels if not kernel.fallback)
    ordered = sorted_by(_repeated_as_one(own), sort)
    total = sum(kernel.run_seconds for kernel in ordered) or 1.0
    first = ordered[:_ROWS]
    yield from with_room(_HEADING, [_row(report, kernel, total) for kernel in first], width)
    if rest := ordered[_ROWS:]:
        share = 100 * sum(kernel.run_seconds for kernel in rest) / total
        yield f"{share:.1f} % in {len(rest)} other kernels"


def _repeated_as_one(kernels: Iterable[KernelReport]) -> list[KernelReport]:
    """Kernels, those of layers that are alike as one that is called as often as all of them.

    Their code differs in a constant, such as a scale: operators, tiles and times are equal, and so
    are the names of their layers but for numbers.
    """
    found: dict[object, KernelReport] = {}
    for own in kernels:
        layers = frozenset(map(without_numbers, own.names)) or own.name
        size = own.grid, own.block, own.tile, own.traffic, own.flops
        key = layers, own.operators, own.rule, *size, own.seconds
        if (first := found.get(key)) is not None:
            own = replace(first, calls=first.calls + own.calls, names=(*first.names, *own.names))
        found[key] = own
    return list(found.values())


def _row(report: ModelReport, kernel: KernelReport, total: float) -> Row:
    """The row of a kernel."""
    cells = (
        f"{100 * kernel.run_seconds / total:.1f} %",
        duration(kernel.run_seconds),
        str(kernel.calls),
        report.bound(kernel).value,
    )
    return cells, partial(computes, kernel)


def _remarks(report: ModelReport, width: int) -> Iterator[str]:
    """Lines on fallbacks and joined groups, notes, and where to read more."""
    for kernel in report.fallbacks[:_FALLBACKS]:
        what = computes(kernel, width // 3)
        yield f"fell back to TVM's schedules: {what}: {kernel.fallback}"
    if len(report.fallbacks) > _FALLBACKS:
        yield f"fell back, too: {len(report.fallbacks) - _FALLBACKS} other kernels"
    yield from _groups(report)
    yield from (f"note: {note}" for note in report.notes[:_NOTES])
    if len(report.notes) > _NOTES:
        yield f"and {len(report.notes) - _NOTES} other notes"
    yield 'more: detail="kernels", "joined", "apart", "memory" or "all"'


def _groups(report: ModelReport) -> Iterator[str]:
    """Lines on groups of operators that became one kernel."""
    joined = [decision for decision in report.decisions if not decision.reason]
    if joined:
        functions = sum(len(decision.functions) for decision in joined)
        made = counted(len(joined), "kernel")
        yield f"joined beyond TVM's own fusion: {functions} functions into {made}"
    if report.plans or report.left_apart:
        within = sum(len(plan.operators) for plan in report.plans)
        apart = sum(left.calls for left in report.left_apart)
        made = f"{within} calls in {counted(len(report.plans), 'persistent kernel')}"
        others = counted(apart, "call")
        yield f"co-scheduled: {made if report.plans else 'none'}; {others} left apart"
