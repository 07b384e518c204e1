"""Schedules of functions of open extents: several, of which a call's extents take one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm import tirx

from tvm_tile.build.dispatch import Version, with_schedules
from tvm_tile.device.device import Device
from tvm_tile.graph.extract import extract
from tvm_tile.graph.functions import is_tensor
from tvm_tile.graph.open_extents import Point
from tvm_tile.passes.lower.lift_workspaces import has_workspace
from tvm_tile.report.compiled import KernelReport
from tvm_tile.report.cover_report import CoverReport, OpenPoint
from tvm_tile.schedule import Task
from tvm_tile.schedule.open_outputs import OpenFunction
from tvm_tile.schedule.ranking import predicted_of, predicted_over
from tvm_tile.tile.cover import Cover, between, cover

_LEAST = 1e-7  # seconds that tell kernels apart


@dataclass(frozen=True, slots=True)
class OpenPlan:
    """The schedule of a function, for extents up to a bound.

    Attributes:
        bound: bound of its open extents.
        func: a scheduled function.
        report: report of its kernel.
        unscheduled: the function.
    """

    bound: Point
    func: tirx.PrimFunc
    report: KernelReport
    unscheduled: OpenFunction

    def task(self, device: Device) -> Task:
        """Task that rules are asked for."""
        graph = extract(self.unscheduled.func)
        assert graph is not None  # it has a schedule
        return Task(self.unscheduled.func, graph, device, self.unscheduled.extents)


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
        schedule: function that schedules for one bound.
        device: the device that it is made for.
        loss: 0.1 is a tenth.
    """
    func, report = schedule(opened)
    if not opened.ranges or report.fallback or has_workspace(func):
        return func, report
    first = OpenPlan(opened.ranges[0].bound, func, report, opened)
    plans = [first, *_others(opened, schedule)]
    if len(plans) == 1:
        return func, report
    predicted = Predicted.of(plans, device)
    times = [[predicted.behind_launch(own, at) for at in plans] for own in plans]
    found = cover([one.bound for one in plans], times, loss)
    told = replace(report, cover=_told(plans, found, times, opened))
    serves = {one.bound: at for one, at in zip(plans, found.serves, strict=True)}
    serves |= predicted.between(plans, found)
    return _with_branches(plans, serves), told


def _others(opened: OpenFunction, schedule: Schedule) -> list[OpenPlan]:
    """Schedules for lesser bounds; their functions take what that for the greatest one takes."""
    plans = []
    for one in opened.ranges[1:]:
        own = OpenFunction.of(one.func)
        func, report = schedule(own)
        if not report.fallback and not has_workspace(func):
            plans.append(OpenPlan(one.bound, func, report, own))
    return plans


@dataclass(frozen=True, slots=True)
class Predicted:
    """Predicted times of schedules at one another's bounds, and between them.

    Attributes:
        device: the device that they are made for.
        over: a schedule's bound -> what it takes at some points, as far as its rule knows.
        known: a bound and a rule -> the times there of the tiles that it names.
    """

    device: Device
    over: dict[Point, dict[Point, float]]
    known: dict[tuple[Point, str], dict[str, float]]

    @classmethod
    def of(cls, plans: Sequence[OpenPlan], device: Device) -> Predicted:
        """Ask the rules of some schedules, of which the first is for the greatest extents."""
        points = [one.bound for one in plans]
        if len(points[0]) == 1:
            points += between(points)
        return cls(device, {one.bound: _over(one, points, device) for one in plans}, {})

    def behind_launch(self, own: OpenPlan, at: OpenPlan) -> float:
        """Seconds without what any launch takes, which in graphs is hardly anything."""
        return max(_LEAST, self.seconds(own, at) - self.device.launch_latency)

    def seconds(self, own: OpenPlan, at: OpenPlan) -> float:
        """Predicted seconds of a schedule at another one's bound; infinite beyond its own.

        Its rule says so, which knows what the tile takes there, or names it among others. What no
        rule says is infinite, too: such a schedule is for extents near its bound only. None takes
        less than the one that is there for the bound.
        """
        if own is at:
            return own.report.seconds
        if any(high > bound for high, bound in zip(at.bound, own.bound, strict=True)):
            return math.inf
        known = self.over[own.bound].get(at.bound)
        if known is None:
            known = self._times(at, own.report.rule).get(own.report.tile, math.inf)
        return max(known, at.report.seconds)

    def between(self, plans: Sequence[OpenPlan], found: Cover) -> dict[Point, int]:
        """Points between those of the grid -> the position of the schedule that is fastest there.

        Only schedules that the grid takes are asked, and only where it is known what that takes
        which would run there otherwise.
        """
        best: dict[Point, tuple[float, int]] = {}
        for tile in found.tiles:
            for point, seconds in self.over[plans[tile].bound].items():
                best[point] = min(best.get(point, (math.inf, 0)), (seconds, tile))
        bounds = [one.bound for one in plans]
        known = {}
        for point in best.keys() - set(bounds):
            # The least bound that holds it: of one extent, as there are points between no others.
            above = max(at for at, bound in enumerate(bounds) if point <= bound)
            if point in self.over[plans[found.serves[above]].bound]:
                known[point] = best[point][1]
        return known

    def _times(self, at: OpenPlan, rule: str) -> dict[str, float]:
        """Predicted seconds of a rule's tiles at a plan's bound, by the tiles' texts."""
        key = at.bound, rule
        if key not in self.known:
            self.known[key] = predicted_of(at.task(self.device), rule)
        return self.known[key]


def _over(own: OpenPlan, points: Sequence[Point], device: Device) -> dict[Point, float]:
    """Predicted seconds of a schedule at those of some points that are within its bound."""
    scalars = [p for p in own.unscheduled.params if not is_tensor(p)]
    within = [p for p in points if all(a <= b for a, b in zip(p, own.bound, strict=True))]
    calls = [dict(zip(scalars, point, strict=True)) for point in within]
    known = predicted_over(own.task(device), own.report.rule, own.report.tile, calls)
    return {} if known is None else dict(zip(within, known, strict=True))


def _with_branches(plans: Sequence[OpenPlan], serves: Mapping[Point, int]) -> tirx.PrimFunc:
    """The first schedule with those besides that take some extents.

    Args:
        plans: the schedules; the first takes all extents that no other one does.
        serves: bounds -> the position of the schedule for extents up to there, from the next lesser
            bound on.
    """
    kept = sorted({0, *serves.values()})
    branches: list[Version] = []
    for bound in sorted(serves):
        number = kept.index(serves[bound])
        # Neighbours of one schedule are one branch, if only one extent is open.
        if len(bound) == 1 and branches and branches[-1].schedule == number:
            branches.pop()
        branches.append(Version(bound, number))
    while branches and not branches[-1].schedule:
        branches.pop()
    return with_schedules(plans[0].func, [plans[at].func for at in kept[1:]], branches)


def _told(
    plans: Sequence[OpenPlan],
    found: Cover,
    times: Sequence[Sequence[float]],
    opened: OpenFunction,
) -> CoverReport:
    """Report of the tiles."""
    names = tuple(str(p.name) for p in opened.params if not is_tensor(p))
    points = (
        OpenPoint(own.bound, own.report.rule, own.report.tile, times[at][at], tile, times[tile][at])
        for at, (own, tile) in enumerate(zip(plans, found.serves, strict=True))
    )
    return CoverReport(names, tuple(points))
