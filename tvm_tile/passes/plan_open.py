"""Schedules of functions of open extents: several, of which a call's extents take one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tvm import tirx

from tvm_tile.build.dispatch import Alternative, with_alternatives
from tvm_tile.device.device import Device
from tvm_tile.graph.extract import extract
from tvm_tile.graph.functions import is_tensor
from tvm_tile.graph.open_extents import Point
from tvm_tile.passes.lift_workspaces import has_workspace
from tvm_tile.plan.cover_report import CoverReport, OpenPoint
from tvm_tile.plan.report import KernelReport
from tvm_tile.schedule import Task
from tvm_tile.schedule.open_outputs import OpenFunction
from tvm_tile.schedule.ranking import predicted_of
from tvm_tile.tile.cover import Cover, cover, ends

_LEAST = 1e-7  # seconds that tell kernels apart


@dataclass(frozen=True, slots=True)
class OpenPlan:
    """The schedule of a function, for extents up to a bound.

    Attributes:
        bound: of its open extents.
        func: scheduled.
        report: of its kernel.
        unscheduled: the function, without what it does not ask for.
    """

    bound: Point
    func: tirx.PrimFunc
    report: KernelReport
    unscheduled: tirx.PrimFunc


Schedule = Callable[[OpenFunction], tuple[tirx.PrimFunc, KernelReport]]
"""Schedules one function of open extents for its own bound."""


def planned_open(
    opened: OpenFunction, schedule: Schedule, device: Device, loss: float
) -> tuple[tirx.PrimFunc, KernelReport]:
    """The schedule of a function of open extents, and the report of its kernel.

    It is that for the greatest extents. Where others are needed so that no extents take longer than
    their best tile by more than ``loss``, the result has them besides, and the report tells which.

    Args:
        opened: the function.
        schedule: schedules one.
        device: that it is for.
        loss: 0.1 is a tenth.
    """
    func, report = schedule(opened)
    if not opened.ranges or report.fallback or has_workspace(func):
        return func, report
    first = OpenPlan(opened.ranges[0].bound, func, report, opened.func)
    plans = [first, *_others(opened, schedule)]
    predicted = Predicted(device, {})
    times = [[predicted.behind_launch(own, at) for at in plans] for own in plans]
    found = cover([one.bound for one in plans], times, loss)
    told = replace(report, cover=_told(plans, found, times, opened))
    return with_alternatives(func, _alternatives(plans, found)), told


def _others(opened: OpenFunction, schedule: Schedule) -> list[OpenPlan]:
    """Schedules for lesser bounds; their functions take what that for the greatest one takes."""
    plans = []
    for one in opened.ranges[1:]:
        own = OpenFunction.of(one.func)
        func, report = schedule(own)
        if not report.fallback and not has_workspace(func):
            plans.append(OpenPlan(one.bound, func, report, own.func))
    return plans


@dataclass(frozen=True, slots=True)
class Predicted:
    """What schedules are predicted to take at one another's bounds.

    Attributes:
        device: that they are for.
        known: a bound and a rule -> the times there of the tiles that it names.
    """

    device: Device
    known: dict[tuple[Point, str], dict[str, float]]

    def behind_launch(self, own: OpenPlan, at: OpenPlan) -> float:
        """As :meth:`seconds`, without what any launch takes, which in graphs is hardly anything."""
        return max(_LEAST, self.seconds(own, at) - self.device.launch_latency)

    def seconds(self, own: OpenPlan, at: OpenPlan) -> float:
        """What a schedule is predicted to take at another one's bound; infinite beyond its own.

        A rule that names the tile there says so. Else the time behind the launch is taken to shrink
        with the extents, but not to less than that of the last tile that the rule does name there.
        """
        if own is at:
            return own.report.seconds
        if any(high > bound for high, bound in zip(at.bound, own.bound, strict=True)):
            return math.inf
        known = self._times(at, own.report.rule)
        if own.report.tile in known:
            return max(known[own.report.tile], at.report.seconds)
        worst = max(known.values(), default=0.0)
        share = math.prod(a / b for a, b in zip(at.bound, own.bound, strict=True))
        busy = max(0.0, own.report.seconds - self.device.launch_latency)
        return max(self.device.launch_latency + busy * share, at.report.seconds, worst)

    def _times(self, at: OpenPlan, rule: str) -> dict[str, float]:
        key = at.bound, rule
        if key not in self.known:
            graph = extract(at.unscheduled)
            task = None if graph is None else Task(at.unscheduled, graph, self.device)
            self.known[key] = {} if task is None else predicted_of(task, rule)
        return self.known[key]


def _alternatives(plans: Sequence[OpenPlan], found: Cover) -> list[Alternative]:
    """Which schedule takes which extents, from the least bound on; all others take the first."""
    *asked, _ = ends([one.bound for one in plans], found.serves)
    return [Alternative(plans[at].bound, plans[found.serves[at]].func) for at in asked]


def _told(
    plans: Sequence[OpenPlan],
    found: Cover,
    times: Sequence[Sequence[float]],
    opened: OpenFunction,
) -> CoverReport:
    """What is said of the tiles."""
    names = tuple(str(p.name) for p in opened.params if not is_tensor(p))
    points = (
        OpenPoint(own.bound, own.report.rule, own.report.tile, times[at][at], tile, times[tile][at])
        for at, (own, tile) in enumerate(zip(plans, found.serves, strict=True))
    )
    return CoverReport(names, tuple(points))
