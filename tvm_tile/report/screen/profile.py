"""A profile on one screen: what a run took, and which kernels took it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tvm_tile.report.profile import KernelProfile, ModelProfile
from tvm_tile.report.screen.short_names import cut
from tvm_tile.report.screen.text import (
    Row,
    computes,
    counted,
    duration,
    with_room,
    wrapped,
)

_ROWS = 15  # kernels
_UNSEEN = 3
_VEUS = 2  # persistent kernels
_UNKNOWN = "-"
_HEADING = (
    *("measured", "predicted", "at best", "calls", "GB/s", "GFLOP/s", "bound by"),
    "computes",
)


def profile_screen(profile: ModelProfile, width: int) -> Iterator[str]:
    """A screen for people: at most 40 lines of at most ``width`` characters, 80 or more."""
    for line in _totals(profile):
        yield from wrapped(line, width)
    yield ""
    yield from _kernels(profile.kernels, width)
    yield ""
    for line in _remarks(profile, width):
        yield from wrapped(line, width)


def _totals(profile: ModelProfile) -> Iterator[str]:
    """Lines on a whole run: its times, and their parts."""
    report, shares = profile.report, profile.shares
    runs = counted(len(profile.runs), "run")
    yield f"{report.device}: {runs} watched by {profile.source}, {_graphs(profile)}"
    measured = f"{duration(profile.seconds)} (spread {duration(profile.spread)})"
    predicted = f"{duration(report.predicted_seconds)} {report.how}"
    least = f", {duration(report.limit_seconds)} at best" if report.limits else ""
    yield f"  a run      {measured} while nothing watches, {predicted}{least}"
    spread = duration(profile.watched_spread)
    yield f"  watched    {duration(shares.whole)} (spread {spread}), of which"
    yield f"    launch   {_share(shares.launch, profile)} until the device begins"
    at_once = f"; beside these, others ran for {duration(shares.overlap)}" * bool(shares.overlap)
    yield f"    kernels  {_share(shares.kernels, profile)}{at_once}"
    yield f"    copies   {_share(shares.copies, profile)}"
    yield f"    gaps     {_share(shares.gaps, profile)} between these"
    part = 100 * shares.on_device / profile.seconds if profile.seconds else 0.0
    yield f"  on device  {duration(shares.on_device)}, {part:.1f} % of a run that nothing watches"


def _graphs(profile: ModelProfile) -> str:
    """Words for how the kernels of a run are launched."""
    launches = profile.report.launches
    if launches is None or not launches.graphs:
        return "kernels launched one by one"
    return f"kernels in {counted(launches.graphs, 'CUDA graph')}"


def _share(seconds: float, profile: ModelProfile) -> str:
    """A time and its share of a watched run, for people."""
    whole = profile.shares.whole
    return f"{duration(seconds)} ({100 * seconds / whole if whole else 0.0:.1f} %)"


def _kernels(kernels: tuple[KernelProfile, ...], width: int) -> Iterator[str]:
    """Rows of the kernels that took most time, and a line on the others."""
    first, rest = kernels[:_ROWS], kernels[_ROWS:]
    yield from with_room(_HEADING, [_row(kernel) for kernel in first], width)
    if rest:
        seconds = sum(kernel.seconds for kernel in rest)
        yield f"{duration(seconds)} in {counted(len(rest), 'other kernel')}"


def _row(kernel: KernelProfile) -> Row:
    """The row of a kernel."""
    cells = (
        duration(kernel.seconds),
        _UNKNOWN if kernel.predicted is None else duration(kernel.predicted),
        _UNKNOWN if kernel.limit is None else duration(kernel.limit),
        str(kernel.calls),
        _rate(kernel.bytes_per_second),
        _rate(kernel.flops_per_second),
        _UNKNOWN if kernel.bound is None else kernel.bound.value,
    )
    return cells, partial(_computes, kernel)


def _rate(per_second: float | None) -> str:
    """A rate in units of 10**9 a second, for people."""
    return _UNKNOWN if per_second is None else f"{per_second * 1e-9:.0f}"


def _computes(kernel: KernelProfile, width: int) -> str:
    """Name of a kernel's values in the user's model; a foreign kernel's symbol."""
    known = kernel.report
    if known is None:
        return cut(f"foreign: {kernel.name}", width)
    return computes(known, width)


def _remarks(profile: ModelProfile, width: int) -> Iterator[str]:
    """Lines on kernels that did not run, on vEUs, and on fallbacks."""
    unseen = profile.unseen
    for kernel in unseen[:_UNSEEN]:
        yield f"did not run: {computes(kernel, width // 2)}: {kernel.name}"
    if len(unseen) > _UNSEEN:
        yield f"did not run, either: {counted(len(unseen) - _UNSEEN, 'other kernel')}"
    for times in profile.veus[:_VEUS]:
        tasks = counted(len(times.tasks), "rTask")
        veus = f"{times.num_veus} vEUs run {tasks} in {duration(times.seconds)}"
        yield f"{times.kernel}: {veus}, {100 * times.busy:.0f} % of them at a time"
    if fallbacks := profile.report.fallbacks:
        fell_back = counted(len(fallbacks), "kernel")
        yield f"predictions count only the bytes of what fell back: {fell_back}"
    yield "GB/s are of the predicted traffic; more: save_trace(path), to_json(), explain()"
