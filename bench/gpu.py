"""The GPU as the protocol sees it: events, a cold cache, and a lock among processes."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

# Four times the largest second-level cache there is: writing this much leaves nothing of it.
FLUSH_BYTES = 256 << 20
_MIN_LEAD_S = 50e-6


# Of the spinning kernel's clock: about a millisecond.
_SPIN_CYCLES = 2_000_000


def queued_seconds(call: Callable[[], Any], calls: int) -> float:
    """Seconds that the GPU takes for a call, the mean of ``calls`` in a row.

    A kernel that spins is ahead of them, so that the host has queued them before they begin.
    """
    import torch

    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(_SPIN_CYCLES * max(1, calls // 4))
    start.record()
    for _ in range(calls):
        call()
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop) * 1e-3 / calls


class Stage(Protocol):
    """Where runs are timed."""

    def synchronize(self) -> None:
        """Wait for all work."""

    def time(self, run: Callable[[], Any], count: int, *, cold: bool) -> list[float]:
        """Seconds of each of ``count`` runs.

        Args:
            run: enqueues one run.
            count: how many.
            cold: an operator: each run begins with nothing of its inputs in the second-level
                cache, and with its launches already enqueued, so that only the device's time
                counts. Otherwise each begins from an idle device, launches included.
        """


class CudaStage:
    """An NVIDIA GPU through torch's events on the current stream."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._buffer = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
        self._cycles_per_second = self._measure_clock()

    def synchronize(self) -> None:
        """Wait for all work; an error of the device surfaces here."""
        self._torch.cuda.synchronize()

    def time(self, run: Callable[[], Any], count: int, *, cold: bool) -> list[float]:
        """See :class:`Stage`; a spinning kernel gives the host the lead that a cold run needs."""
        lead = self._lead(run) if cold else 0.0
        pairs = []
        for _ in range(count):
            start, stop = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
            if cold:
                self._torch.cuda._sleep(int(lead * self._cycles_per_second))
                self._buffer.zero_()
            else:
                self.synchronize()
            start.record()
            run()
            stop.record()
            pairs.append((start, stop))
        self.synchronize()
        return [start.elapsed_time(stop) * 1e-3 for start, stop in pairs]

    def _lead(self, run: Callable[[], Any]) -> float:
        self.synchronize()
        start = time.perf_counter()
        run()
        host = time.perf_counter() - start
        self.synchronize()
        return max(_MIN_LEAD_S, 2 * host)

    def _measure_clock(self) -> float:
        """Cycles per second of the spinning kernel, at the clock that the GPU has when busy."""
        cycles = 20_000_000
        self._torch.cuda._sleep(cycles)
        start, stop = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        self._torch.cuda._sleep(cycles)
        stop.record()
        self.synchronize()
        return float(cycles / (start.elapsed_time(stop) * 1e-3))


class HostStage:
    """No GPU: the wall clock, for tests and for trying the benchmark out."""

    def synchronize(self) -> None:
        """Nothing is asynchronous here."""

    def time(self, run: Callable[[], Any], count: int, *, cold: bool) -> list[float]:
        """See :class:`Stage`; ``cold`` has no meaning."""
        samples = []
        for _ in range(count):
            start = time.perf_counter()
            run()
            samples.append(time.perf_counter() - start)
        return samples


@dataclass(frozen=True, slots=True)
class Cores:
    """Processors of this machine, some of which nobody uses but who holds a GPU.

    What others compile meanwhile would lengthen launches: by 20 to 60 us of a model's run.

    Attributes:
        quiet: those of the holder; empty where all are for all.
        others: all others.
    """

    quiet: frozenset[int] = frozenset()
    others: frozenset[int] = frozenset()

    @classmethod
    def of_machine(cls, gpu_index: int) -> Cores:
        """Two for the GPU, where there are at least six more."""
        have = sorted(os.sched_getaffinity(0))
        first = 2 * gpu_index
        own = have[first : first + 2]
        if len(have) < first + 8:
            return cls()
        return cls(frozenset(own), frozenset(have[first + 2 :]))

    def hold(self, *, is_holder: bool) -> None:
        """Have this thread, and threads and processes that it begins, run where they should."""
        own = self.quiet if is_holder else self.others
        if own:
            os.sched_setaffinity(0, own)


class GpuLock:
    """One process at a time on the GPU; the operating system frees it when its holder dies.

    Reentrant within its process, which must use it from one thread. ``notify`` hears
    ``"waiting"``, ``"holding"`` and ``"released"``, so that a watchdog can leave waiting out of a
    limit.
    """

    def __init__(
        self,
        path: Path,
        notify: Callable[[str], None] = lambda _: None,
        cores: Cores = Cores(),
    ) -> None:
        self._file = path.open("a")
        self._notify = notify
        self._cores = cores
        cores.hold(is_holder=False)
        self._depth = 0
        self.waited_s = 0.0

    def __enter__(self) -> GpuLock:
        if self._depth == 0:
            start = time.perf_counter()
            self._notify("waiting")
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._notify("holding")
            self._cores.hold(is_holder=True)
            self.waited_s += time.perf_counter() - start
        self._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._cores.hold(is_holder=False)
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._notify("released")
