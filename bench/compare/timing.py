"""Times of both commits in one run: in turns on one GPU, so that its clock's drifts meet both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, local
from typing import Any

from bench.compare.process import Ended, Worker
from bench.compare.requests import Check, Failed, Prepare, Ready, Time
from bench.gpu import HostStage
from bench.protocol import Times, measure
from bench.workload import Workload

Say = Callable[[str], None]
_SIDES = ("before", "after")


@dataclass(frozen=True, slots=True)
class Timed:
    """A workload's times at both commits.

    Attributes:
        workload: itself.
        before, after: None where it did not run.
        reason: why; empty where both did.
    """

    workload: Workload
    before: Times | None
    after: Times | None
    reason: str = ""


class Pairs:
    """Pairs of processes, one at each commit, that compile side by side and time in turns.

    Args:
        packages: folders in which the package lies, before and after.
        device: name of the record.
        log: the file that what they print is added to.
        limit_s: seconds that one answer may take.
        workers: pairs; the GPU is used by one at a time.
        say: hears of each workload.
    """

    def __init__(
        self,
        packages: tuple[Path, Path],
        device: str,
        log: Path,
        limit_s: float,
        workers: int,
        say: Say,
    ) -> None:
        self._packages = packages
        self._device = device
        self._log = log
        self._limit_s = limit_s
        self._workers = workers
        self._say = say
        self._gpu = Lock()
        self._own = local()
        self._started: list[Worker] = []

    def times(self, workloads: Sequence[Workload]) -> tuple[Timed, ...]:
        """Of each workload."""
        try:
            with ThreadPoolExecutor(self._workers) as pool:
                return tuple(pool.map(self._times, workloads))
        finally:
            for worker in self._started:
                with suppress(OSError):
                    worker.end()

    def _times(self, workload: Workload) -> Timed:
        pair = self._pair()
        try:
            found = self._measured(workload, pair)
        except Ended as reason:
            for worker in pair:
                worker.end()  # the other's answer would be that to another request
            self._own.pair = None
            found = Timed(workload, None, None, str(reason))
        told = found.reason
        if found.before is not None and found.after is not None:
            ratio = found.after.median_ms / found.before.median_ms
            told = f"{found.before.median_ms:.4f} ms, then {found.after.median_ms:.4f}: {ratio:.3f}"
        self._say(f"{workload}: {told}")
        return found

    def _pair(self) -> tuple[Worker, Worker]:
        """This thread's processes."""
        pair: tuple[Worker, Worker] | None = getattr(self._own, "pair", None)
        if pair is None:
            before, after = (Worker(own, self._log, self._limit_s) for own in self._packages)
            pair = self._own.pair = before, after
            self._started += pair
        return pair

    def _measured(self, workload: Workload, pair: tuple[Worker, Worker]) -> Timed:
        for worker in pair:
            worker.send(Prepare(workload, self._device))
        reason = _reason([worker.answer() for worker in pair])
        if reason:
            return Timed(workload, None, None, reason)
        with self._gpu:
            answers = [worker.ask(Check()) for worker in pair]
            reason = _reason(answers)
            if reason:
                return Timed(workload, None, None, reason)
            clocks = {name: _clock(worker) for name, worker in zip(_SIDES, pair, strict=True)}
            runs: dict[str, Callable[[], Any]] = dict.fromkeys(_SIDES, lambda: None)
            # Each has its own clock, so that no stage of this process is asked.
            found = measure(runs, HostStage(), cold=answers[0].is_operator, clocks=clocks)
        before, after = (found[name] for name in _SIDES)
        return Timed(workload, before, after)


def _reason(answers: Sequence[Ready | Failed]) -> str:
    """Why there is nothing to time; empty where both are ready."""
    for name, answer in zip(_SIDES, answers, strict=True):
        if isinstance(answer, Failed):
            return f"{name}: {answer.reason}"
    return ""


def _clock(worker: Worker) -> Callable[[Callable[[], Any], int], list[float]]:
    """How :func:`bench.protocol.measure` times what runs in another process."""

    def seconds(_: Callable[[], Any], count: int) -> list[float]:
        found: list[float] = worker.ask(Time(count))
        return found

    return seconds
