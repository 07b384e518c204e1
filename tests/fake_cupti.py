"""A stand-in for the modules of CUPTI and of the driver: records come when it is told to flush."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any


class ActivityKind(enum.IntEnum):
    """The numbers are those of ``cupti_activity.h``."""

    MEMCPY = 1
    MEMSET = 2
    RUNTIME = 5
    CONCURRENT_KERNEL = 10


class cuptiError(Exception):  # as the package calls it
    __module__ = "cupti.cupti"


def kernel(name: str, start: int, end: int, stream: int = 7) -> Any:
    """A record of a kernel; times are nanoseconds."""
    kind = ActivityKind.CONCURRENT_KERNEL
    return SimpleNamespace(kind=kind, name=name, start=start, end=end, stream_id=stream)


def copy(count: int, start: int, end: int, kind: ActivityKind = ActivityKind.MEMCPY) -> Any:
    """A record of a copy, or of a fill, which has no name."""
    return SimpleNamespace(kind=kind, bytes=count, start=start, end=end, stream_id=7)


class FakeCupti:
    """Records of what ran while their kind was enabled.

    Attributes:
        enabled: kinds that are, in the order in which they became so.
        now: what the clock shows, nanoseconds.
        failing: the function that fails, by name.
        status: what the driver answers to whoever waits.
        is_prompt: whether it hands over records before it must.
        free: when the device has ended all that it was given, nanoseconds.
    """

    ActivityKind = ActivityKind

    def __init__(self, failing: str = "") -> None:
        self.enabled: list[int] = []
        self.now = 0
        self.failing = failing
        self.status = 0
        self.is_prompt = True
        self.free = 0
        self._pending: list[Any] = []
        self._ended = False
        self._receive: Callable[[list[Any]], None] = lambda records: None

    def ran(self, records: Iterable[Any]) -> None:
        """The device did something."""
        self._pending += [record for record in records if record.kind in self.enabled]
        self._ended = False

    def cuCtxSynchronize(self) -> tuple[int]:  # the driver's name
        self._ended = True
        self.now = max(self.now, self.free)
        return (self.status,)

    def cuModuleLoadData(self, text: bytes) -> tuple[int, bytes]:
        return self.status, text

    def cuModuleGetFunction(self, module: bytes, name: bytes) -> tuple[int, str]:
        assert module.endswith(b"\0")
        assert b".entry " + name in module
        return self.status, name.decode()

    def cuLaunchKernel(self, function: str, *more: Any) -> tuple[int]:
        """A kernel that takes as many nanoseconds as its parameter says."""
        *_, ((parameter,), _), _ = more
        begin, self.free = self.now, self.now + parameter
        self.ran([kernel(function, begin, self.free)])
        return (self.status,)

    def activity_register_callbacks(self, requested: Any, completed: Any) -> None:
        self._fail("activity_register_callbacks")
        size, most = requested()
        assert size > 1 << 20
        assert most == 0
        self._receive = completed

    def activity_enable(self, kind: int) -> None:
        self._fail("activity_enable")
        self.enabled.append(kind)

    def activity_disable(self, kind: int) -> None:
        self.enabled.remove(kind)

    def activity_flush_all(self, flag: int) -> None:
        assert self._ended or not self.enabled, "what still runs has no record yet"
        self.now += 1000
        # It may keep what it has until all must go.
        taken = self._pending if flag or self.is_prompt else []
        records = [SimpleNamespace(**vars(record)) for record in taken]
        taken.clear()
        # In two buffers, as they come; what they hold is gone when the call returns.
        for part in (records[:1], records[1:]):
            if part:
                self._receive(part)
        for record in records:
            vars(record).clear()

    def get_timestamp(self) -> int:
        """Each look at the clock takes a nanosecond."""
        self.now += 1
        return self.now

    def _fail(self, name: str) -> None:
        if name == self.failing:
            raise cuptiError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")
