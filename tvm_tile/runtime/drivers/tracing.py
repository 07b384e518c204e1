"""When each kernel of a run begins and ends, told by whatever the device has for that."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from tvm_tile.report.activities import Activity
from tvm_tile.runtime.drivers.launchers import Launcher, launching_by
from tvm_tile.runtime.drivers.timing import WARM_UP_CALLS

Run = tuple[Activity, ...]


class Watcher(Protocol):
    """Watches runs of a model."""

    @property
    def source(self) -> str:
        """Name of the profiler or clock that tells the times, for people."""

    def watch(
        self, run: Callable[[], object], wait: Callable[[], None], count: int
    ) -> tuple[Run, ...]:
        """Activities of the device in each of some runs, after a few that warm up.

        Args:
            run: function that launches all of a run.
            wait: function that ends when the device is idle again.
            count: number of runs to be watched.
        """


class HostClock:
    """Watches kernels that have ended when their launch has: the emulated device's."""

    source = "the CPU's clock"

    def watch(
        self, run: Callable[[], object], wait: Callable[[], None], count: int
    ) -> tuple[Run, ...]:
        """The time from the launch of each kernel to its return, in each of some runs."""
        for _ in range(WARM_UP_CALLS):
            run()
        return tuple(self._watched(run) for _ in range(count))

    def _watched(self, run: Callable[[], object]) -> Run:
        """Activities of one run, by the host's clock around each kernel."""
        activities: list[Activity] = []
        began = time.perf_counter()

        def launch(launcher: Launcher, arguments: tuple[Any, ...]) -> None:
            begin = time.perf_counter() - began
            launcher.launch(*arguments)
            end = time.perf_counter() - began
            activities.append(Activity(launcher.kernel.name, begin, end))

        with launching_by(launch):
            run()
        return tuple(activities)
