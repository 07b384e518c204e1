"""Many small jobs whose findings are kept in one file, line by line: cut off, a survey goes on."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from bench.isolated import Crash, MakeWorker, run_jobs
from bench.lines import put, read_keyed


class Finding(Protocol):
    """What became of one job, in one record of a file."""

    @property
    def key(self) -> Any: ...

    @property
    def status(self) -> str: ...

    @property
    def detail(self) -> str: ...


Found = TypeVar("Found", bound=Finding)


class Survey(Generic[Found]):
    """Jobs and the file of what became of them.

    Args:
        revived: makes a finding of a line of the file.
        job_of: the job of a finding's key.
        died: the finding of a job whose process crashed or ran out of time, given its key, why, and
            the seconds it had.
        good: statuses that need no second try.
    """

    def __init__(
        self,
        revived: Callable[[dict[str, Any]], Found],
        job_of: Callable[[Any], str],
        died: Callable[[Any, str, float], Found],
        good: frozenset[str],
    ) -> None:
        self._revived = revived
        self._job_of = job_of
        self._died = died
        self._good = good

    def read(self, path: Path) -> dict[Any, Found]:
        """The file's findings, by key."""
        return read_keyed(path, self._revived)

    def run(
        self, make_worker: MakeWorker, keys: Sequence[Any], arguments: argparse.Namespace
    ) -> None:
        """Do those jobs that ``arguments`` (of :func:`add_arguments`) ask for, and keep what
        becomes of each as soon as it is known."""
        path = arguments.results
        known = self.read(path)
        keys_of = {self._job_of(key): key for key in keys}
        jobs = [
            job
            for job, key in keys_of.items()
            if arguments.fresh
            or key not in known
            or (arguments.retry and known[key].status not in self._good)
        ]
        results = run_jobs(make_worker, jobs, workers=arguments.workers, timeout=arguments.timeout)
        for count, (job, found) in enumerate(results, 1):
            if isinstance(found, Crash):
                found = self._died(keys_of[job], str(found), arguments.timeout)
            put(path, self.read(path), found)
            print(f"{count}/{len(jobs)} {job}: {found.status} {found.detail}", flush=True)


def add_arguments(parser: argparse.ArgumentParser, results: Path) -> None:
    """What every survey takes on its command line; ``results`` is its file."""
    parser.add_argument("--only", default="", help="only those whose name contains this")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=400.0, help="seconds for one of them")
    parser.add_argument("--retry", action="store_true", help="run again what did not go well")
    parser.add_argument("--fresh", action="store_true", help="run again what was run before")
    parser.add_argument("--results", type=Path, default=results)
