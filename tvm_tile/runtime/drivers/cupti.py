"""CUPTI, NVIDIA's interface for profilers: when each kernel of a run begins and ends.

It tells of kernels within CUDA graphs, too, and of those that start while the one before them ends.
The Python package ``cupti-python``, NVIDIA's own, reads its records, whose layout changes from
version to version.
"""

from __future__ import annotations

import functools
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from tvm_tile.errors import ProfileError
from tvm_tile.report.activities import Activity, ActivityKind
from tvm_tile.runtime.drivers.hold import HOLD, Hold, checked
from tvm_tile.runtime.drivers.timing import WARM_UP_CALLS

_BUFFER = 8 << 20  # bytes that CUPTI fills with records before it hands them over
_AS_MANY_AS_FIT = 0
_COMPLETED, _FORCED = 0, 1  # which records a flush hands over: those with times, or all
_MARGIN = 2  # runs are held for this times as long as the host took to launch one
_LONGEST_HOLD = 50_000_000  # nanoseconds
_NS = 1e9
"""Nanoseconds of a second."""

_PACKAGES = ("cupti", "cuda.pathfinder")  # the latter finds CUPTI's library
_REQUIREMENT = "a profile on NVIDIA GPUs needs CUPTI, by the Python package cupti-python"


@functools.cache
def load_cupti() -> Cupti:
    """CUPTI in this process.

    Raises:
        ProfileError: CUPTI is not installed, or not with a driver that it serves.
    """
    # One for the process, which has one receiver of records.
    try:
        from cuda.bindings import driver
        from cupti import cupti
    except ImportError as error:
        raise ProfileError(
            _REQUIREMENT, f"import cupti: {error}", 'pip install "tvm-tile[profile]"'
        ) from error
    return Cupti(cupti, driver)


@dataclass(frozen=True, slots=True)
class Record:
    """Fields of one of CUPTI's records; times are nanoseconds of its clock."""

    name: str
    begin: int
    end: int
    stream: int
    kind: ActivityKind

    def since(self, began: int) -> Activity:
        """The activity of this record in a run that the host began at ``began``."""
        begin, end = ((time - began) / _NS for time in (self.begin, self.end))
        return Activity(self.name, begin, end, self.stream, self.kind)


class Cupti:
    """The :class:`~tvm_tile.runtime.drivers.tracing.Watcher` of CUPTI's activity records.

    CUPTI has one user in a process: no other profiler may be at work, such as PyTorch's.

    Args:
        library: the module ``cupti.cupti``.
        driver: the module ``cuda.bindings.driver``.

    Raises:
        ProfileError: CUPTI does not start.
    """

    source = "CUPTI"

    def __init__(self, library: Any, driver: Any) -> None:
        kinds = library.ActivityKind
        self._library, self._driver = library, driver
        self._kinds = {
            int(kinds.CONCURRENT_KERNEL): ActivityKind.KERNEL,
            int(kinds.MEMCPY): ActivityKind.COPY,
            int(kinds.MEMSET): ActivityKind.FILL,
        }
        self._records: list[Record] = []
        with _explained():
            library.activity_register_callbacks(lambda: (_BUFFER, _AS_MANY_AS_FIT), self._keep)

    def watch(
        self, run: Callable[[], object], wait: Callable[[], None], count: int
    ) -> tuple[tuple[Activity, ...], ...]:
        """Activities of the GPU in each of some runs; it is held until a run is launched.

        Raises:
            ProfileError: CUPTI fails, or has no times for what ran.
        """
        times: list[tuple[int, int]] = []
        clock, launching = self._library.get_timestamp, 0
        with _explained(), self._enabled():
            for number in range(WARM_UP_CALLS + count):
                began = clock()
                if number < WARM_UP_CALLS:
                    run()
                    launching = clock() - began
                else:
                    self._hold.launch(min(_MARGIN * launching, _LONGEST_HOLD))
                    run()
                wait()
                self._wait()
                times.append((began, clock()))
                # It takes a while, so that runs are apart.
                self._library.activity_flush_all(_COMPLETED)
        records, self._records = self._records, []
        return activities_of(times, records)[WARM_UP_CALLS:]

    @cached_property
    def _hold(self) -> Hold:
        """The kernel that keeps the GPU waiting."""
        return Hold(self._driver)

    @contextmanager
    def _enabled(self) -> Iterator[None]:
        """Have CUPTI record activities within the context."""
        enabled = []
        self._records = []
        try:
            for kind in self._kinds:
                self._library.activity_enable(kind)
                enabled.append(kind)
            yield
        finally:
            for kind in enabled:
                self._library.activity_disable(kind)
            self._library.activity_flush_all(_FORCED)

    def _wait(self) -> None:
        """Wait for all kernels, those on streams of PyTorch's, too."""
        checked("cuCtxSynchronize", self._driver.cuCtxSynchronize())

    def _keep(self, records: Sequence[Any]) -> None:
        """CUPTI hands over records, which are gone when this returns."""
        for record in records:
            kind = self._kinds.get(int(record.kind))
            if kind is not None:
                is_kernel = kind is ActivityKind.KERNEL
                name = record.name if is_kernel else f"{kind.value} of {record.bytes} bytes"
                place = record.start, record.end, record.stream_id
                self._records.append(Record(name, *place, kind))


def activities_of(
    times: Sequence[tuple[int, int]], records: Sequence[Record]
) -> tuple[tuple[Activity, ...], ...]:
    """Activities of the device in each of some runs, in the order of their begin.

    Args:
        times: when the host began each run, and when it saw it end, nanoseconds.
        records: records of all runs.

    Raises:
        ProfileError: a record has no times, or a run no records.
    """
    untimed = sum(not 0 < record.begin <= record.end for record in records)
    # The GPU's clock is read as the host's to within microseconds only: half-way between two runs.
    borders = [(ended + began) / 2 for (_, ended), (began, _) in pairwise(times)]
    runs: list[list[Record]] = [[] for _ in times]
    for record in sorted(records, key=lambda record: record.begin):
        runs[bisect(borders, record.begin)].append(record)
    empty = sum(all(record.name == HOLD for record in run) for run in runs)
    if untimed or empty:
        raise ProfileError(
            "CUPTI must tell when each kernel of a run began and ended",
            f"it has no times for {untimed} of {len(records)} records, and nothing of {empty} of "
            f"{len(times)} runs",
            "close other profilers; update the driver and cupti-python",
        )
    return tuple(_since_begin(began, run) for (began, _), run in zip(times, runs, strict=True))


def _since_begin(began: int, run: Sequence[Record]) -> tuple[Activity, ...]:
    """Activities of a run, from when the host began it, or let it go if it was held."""
    held = [record.end for record in run if record.name == HOLD]
    own = [record for record in run if record.name != HOLD]
    began = min(max(held, default=began), *(record.begin for record in own))
    return tuple(record.since(began) for record in own)


@contextmanager
def _explained() -> Iterator[None]:
    """Errors of the package, which raises classes of its own, as ours."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith(_PACKAGES):
            raise
        raise ProfileError(
            f"{_REQUIREMENT}, and that it may be used",
            f"{type(error).__name__}: {error}",
            "close other profilers; install a version of cupti-python that fits the driver; where "
            "it lacks privileges, the administrator can permit profiling",
        ) from error
