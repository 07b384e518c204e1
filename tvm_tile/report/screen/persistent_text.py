"""Outcome of co-scheduling, as lines for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tvm_tile.report.persistent_report import LeftApart, PersistentReport
from tvm_tile.report.screen.flow_text import summary
from tvm_tile.report.screen.text import counted

_NAMED = 3  # kernels of a line


def described(report: PersistentReport) -> str:
    """How much runs in a persistent kernel, and how it waits."""
    operators, steps = len(report.operators), len(report.plan.steps)
    waits = "flags" if report.plan.uses_flags else "barriers"
    return f"{counted(operators, 'operator')} in {counted(steps, 'step')} with {waits}"


def render_plans(
    plans: tuple[PersistentReport, ...], left_apart: tuple[LeftApart, ...]
) -> Iterator[str]:
    """Lines for people; none where co-scheduling had nothing to decide."""
    if plans or left_apart:
        yield "co-scheduled:"
    for report in plans:
        yield from _lines(report)
    for left in left_apart:
        names = ", ".join(left.functions[:_NAMED])
        more = len(left.functions) - _NAMED
        others = f" and {more} more" if more > 0 else ""
        yield f"  left apart, {counted(left.calls, 'call')}: {left.reason}: {names}{others}"


def _lines(report: PersistentReport) -> Iterator[str]:
    """Lines on a persistent kernel."""
    plan, proof = report.plan, report.proof
    times = f"{plan.seconds * 1e6:.1f} us as one, {report.apart_seconds * 1e6:.1f} us apart"
    yield f"  {report.name}: {described(report)}, {times}"
    resident = report.resident_bytes
    stays = f", {resident / 1024:.1f} KiB of them weights that stay" if resident else ""
    size = f"{plan.num_veus} vEUs x {plan.block_size} threads, {proof.registers} registers a thread"
    yield f"      {size}, {proof.shared_bytes / 1024:.1f} KiB of shared memory a vEU{stays}"
    yield f"      {proof.describe()}"
    if report.program is not None:
        yield f"      follows {summary(report.program)}"
    for name, count in Counter(operator.name for operator in report.operators).items():
        yield f"      {count} x {name}"
