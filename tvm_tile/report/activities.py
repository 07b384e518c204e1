"""Activities of a device in a run of a model: kernels, copies, and the gaps between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum


class ActivityKind(Enum):
    """Kind of a device's activity; its value is its name for people."""

    KERNEL = "kernel"
    COPY = "copy"
    FILL = "fill"


@dataclass(frozen=True, slots=True)
class Activity:
    """Something that a device did, as its tracing interface calls it.

    Attributes:
        name: a kernel's symbol; of copies and fills, what they are.
        begin: seconds from when the host began the run.
        end: seconds from then, too.
        stream: the number of the queue that it was in.
        kind: kind of activity.
    """

    name: str
    begin: float
    end: float
    stream: int = 0
    kind: ActivityKind = ActivityKind.KERNEL

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Shares:
    """Parts of a run's time, in seconds.

    Attributes:
        launch: time from when the host began until the device did.
        kernels: time in which at least one kernel ran.
        copies: time in which there were only copies and fills.
        gaps: between these, in which the device did nothing of the run.
        overlap: time by which the kernels' own times exceed ``kernels``, since several ran at once.
    """

    launch: float
    kernels: float
    copies: float
    gaps: float
    overlap: float

    @property
    def on_device(self) -> float:
        """Seconds from the begin of the first activity to the end of the last one."""
        return self.kernels + self.copies + self.gaps

    @property
    def whole(self) -> float:
        """Seconds from when the host began to the end of the last activity."""
        return self.launch + self.on_device


def shares_of(activities: Sequence[Activity]) -> Shares:
    """Parts of a run's time; all zeros for one in which the device did nothing."""
    if not activities:
        return Shares(0.0, 0.0, 0.0, 0.0, 0.0)
    launch, end = min(one.begin for one in activities), max(one.end for one in activities)
    kernels = [one for one in activities if one.kind is ActivityKind.KERNEL]
    ran, busy = covered_seconds(kernels), covered_seconds(activities)
    overlap = sum(one.seconds for one in kernels) - ran
    return Shares(launch, ran, busy - ran, end - launch - busy, overlap)


def covered_seconds(activities: Iterable[Activity]) -> float:
    """The time within at least one of some activities, which may overlap."""
    total, reached = 0.0, float("-inf")
    for one in sorted(activities, key=lambda one: one.begin):
        if one.end > reached:
            total += one.end - max(one.begin, reached)
            reached = one.end
    return total
