"""CUPTI, NVIDIA's interface for profilers: when each kernel of a run begins and ends.

It tells of kernels within CUDA graphs, too, and of those that start while the one before them ends.
The Python package ``cupti-python``, NVIDIA's own, reads its records, whose layout changes from
version to version.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm_tile.errors import DriverError, ProfileError
from tvm_tile.plan.activities import Activity, ActivityKind
from tvm_tile.runtime.timing import WARM_UP_CALLS

_BUFFER = 8 << 20  # bytes that CUPTI fills with records before it hands them over
_AS_MANY_AS_FIT = 0
_FORCED = 1
_NS = 1e9
"""Nanoseconds of a second."""

_PACKAGES = ("cupti", "cuda.pathfinder")  # the latter finds CUPTI's library
_REQUIREMENT = "a profile on NVIDIA GPUs needs CUPTI, by the Python package cupti-python"


@functools.cache
def load_cupti() -> Cupti:
    """CUPTI in this process.

    Raises:
        ProfileError: it is not installed, or not with a driver that it serves.
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


class Cupti:
    """Watches runs by CUPTI's activity records; see :class:`~tvm_tile.runtime.tracing.Tracer`.

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
        self._records: list[tuple[str, int, int, int, ActivityKind]] = []
        with _explained():
            library.activity_register_callbacks(lambda: (_BUFFER, _AS_MANY_AS_FIT), self._keep)

    def watch(self, run: Callable[[], None], count: int) -> tuple[tuple[Activity, ...], ...]:
        """See :class:`~tvm_tile.runtime.tracing.Tracer`.

        Raises:
            ProfileError: CUPTI fails, or has no times for what ran.
        """
        with _explained(), self._enabled():
            for _ in range(WARM_UP_CALLS):
                run()
            self._taken()
            runs = []
            for _ in range(count):
                began = self._library.get_timestamp()
                run()
                runs.append(_activities(began, self._taken()))
        return tuple(runs)

    @contextmanager
    def _enabled(self) -> Iterator[None]:
        enabled = []
        try:
            for kind in self._kinds:
                self._library.activity_enable(kind)
                enabled.append(kind)
            yield
        finally:
            for kind in enabled:
                self._library.activity_disable(kind)
            self._library.activity_flush_all(_FORCED)
            self._records = []

    def _taken(self) -> list[tuple[str, int, int, int, ActivityKind]]:
        """The records of all that has ended since the last time."""
        # Kernels may be on a stream of PyTorch's, which nobody has waited for yet.
        (status,) = self._driver.cuCtxSynchronize()
        if int(status):
            raise DriverError(
                "cuCtxSynchronize must succeed",
                str(status),
                "look for the driver's messages in the kernel's log (dmesg)",
            )
        self._library.activity_flush_all(_FORCED)
        taken, self._records = self._records, []
        return taken

    def _keep(self, records: Sequence[Any]) -> None:
        """CUPTI hands over records, which are gone when this returns."""
        for record in records:
            kind = self._kinds.get(int(record.kind))
            if kind is not None:
                is_kernel = kind is ActivityKind.KERNEL
                name = record.name if is_kernel else f"{kind.value} of {record.bytes} bytes"
                self._records.append((name, record.start, record.end, record.stream_id, kind))


def _activities(
    began: int, records: Sequence[tuple[str, int, int, int, ActivityKind]]
) -> tuple[Activity, ...]:
    """Records of a run that the host began at a time, in the order of their begin."""
    untimed = sum(not 0 < begin <= end for _, begin, end, _, _ in records)
    if untimed or not records:
        raise ProfileError(
            "CUPTI must tell when each kernel of a run began and ended",
            f"it has no times for {untimed} of {len(records)} records of a run",
            "close other profilers; update the driver and cupti-python",
        )
    ordered = sorted(records, key=lambda record: record[1])
    # The GPU's clock is read as the host's to within microseconds only.
    began = min(began, ordered[0][1])
    return tuple(
        Activity(name, (begin - began) / _NS, (end - began) / _NS, stream, kind)
        for name, begin, end, stream, kind in ordered
    )


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
