"""When each rTask of a persistent kernel ran, as clocks of the device say.

A multiprocessor's clock counts cycles, and begins anywhere; the GPU's timer is the same everywhere,
and ticks in steps that may be a microsecond. So the clock says how long things are, and the timer,
on average over all stamps of a vEU, when its clock began.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tvm_tile.plan.records import recorded_tasks
from tvm_tile.report.persistent_report import PersistentReport

Stamp = tuple[int, int, int, int]
"""The clock and the timer (nanoseconds) when a record began, and both when it ended."""

_NS = 1e-9
"""Seconds of a nanosecond."""


@dataclass(frozen=True, slots=True)
class VeuTask:
    """When a rTask ran.

    Attributes:
        veu: number of its vEU.
        operator: number of the kernel's operator that it is of.
        task: number of the operator's rTask.
        begin: seconds from the begin of the kernel's first record.
        end: seconds from then, too.
    """

    veu: int
    operator: int
    task: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class VeuTimes:
    """When all rTasks of a persistent kernel ran, in a copy of it that takes the time.

    Attributes:
        kernel: its name.
        operators: names of its operators.
        num_veus: number of vEUs.
        tasks: vEU by vEU, each in order.
    """

    kernel: str
    operators: tuple[str, ...]
    num_veus: int
    tasks: tuple[VeuTask, ...]

    @property
    def seconds(self) -> float:
        """Seconds until the last rTask had ended."""
        return max((task.end for task in self.tasks), default=0.0)

    @property
    def busy(self) -> float:
        """The share of the vEUs' time in which they run rTasks; else they wait."""
        spent = sum(task.end - task.begin for task in self.tasks)
        return spent / (self.num_veus * self.seconds) if self.seconds else 0.0


def veu_times(report: PersistentReport, stamps: Sequence[Stamp]) -> VeuTimes:
    """Times of the rTasks from the stamps of a persistent kernel's records.

    Args:
        report: report of the kernel, without control flow.
        stamps: stamps of each record, in the order of the kernel's table.
    """
    queues = recorded_tasks(report.operators, report.plan)
    # The timer counts from long ago: floats would not tell its nanoseconds.
    zero = min((stamp[1] for stamp in stamps), default=0)
    rest = iter((a, b - zero, c, d - zero) for a, b, c, d in stamps)
    own = [[next(rest) for _ in queue] for queue in queues]
    rate = _nanoseconds_of_a_cycle(own)
    times = [_times(each, rate) for each in own]
    start = min((begin for each in times for begin, _ in each), default=0.0)
    tasks = tuple(
        VeuTask(veu, task.operator, task.task, (begin - start) * _NS, (end - start) * _NS)
        for veu, (queue, each) in enumerate(zip(queues, times, strict=True))
        for task, (begin, end) in zip(queue, each, strict=True)
        if task is not None
    )
    names = tuple(operator.name for operator in report.operators)
    return VeuTimes(report.name, names, report.plan.num_veus, tasks)


def _nanoseconds_of_a_cycle(stamps: Sequence[Sequence[Stamp]]) -> float:
    """Nanoseconds of the timer in a cycle of the clock, over all that the vEUs did."""
    spans = [(each[0], each[-1]) for each in stamps if each]
    cycles = sum(last[2] - first[0] for first, last in spans)
    return sum(last[3] - first[1] for first, last in spans) / cycles if cycles else 0.0


def _times(stamps: Sequence[Stamp], rate: float) -> list[tuple[float, float]]:
    """When a vEU's records began and ended, nanoseconds of the timer."""
    if not stamps:
        return []
    zero = stamps[0][0]
    pairs = [pair for stamp in stamps for pair in (stamp[:2], stamp[2:])]
    start = statistics.mean(timer - rate * (clock - zero) for clock, timer in pairs)
    return [
        (start + rate * (stamp[0] - zero), start + rate * (stamp[2] - zero)) for stamp in stamps
    ]
