"""Run many small jobs in worker processes that may crash or hang."""

from __future__ import annotations

import multiprocessing
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

Job = str
# Made once in each worker; then called for every job.
MakeWorker = Callable[[], Callable[[Job], Any]]

_START_SECONDS = 300.0


class Crash(Exception):
    """The worker died or ran out of time; the argument says which."""


def run_jobs(
    make_worker: MakeWorker,
    jobs: Sequence[Job],
    *,
    workers: int,
    timeout: float,
    limit_s: float = float("inf"),
    most_jobs: int | None = None,
    is_spoiled: Callable[[Any], bool] = lambda result: False,
) -> Iterator[tuple[Job, Any]]:
    """Run every job and yield (job, its result, or a :class:`Crash`) in order of completion.

    Args:
        make_worker: importable function that returns the function to call for each job.
        jobs: what to pass to it, one at a time.
        workers: how many processes work at once.
        timeout: seconds that one job may take; its process is then killed and replaced.
        limit_s: seconds after which no more results are waited for.
        most_jobs: after so many, a process is replaced by a new one: what jobs leave behind in
            memory then does not grow for ever.
        is_spoiled: whether a process that came to this result must not do another job: after an
            error, a process can do nothing more on a GPU.
    """
    end = time.monotonic() + limit_s
    todo: queue.SimpleQueue[Job] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[Job, Any]] = queue.SimpleQueue()
    for job in jobs:
        todo.put(job)
    for _ in range(workers):
        threading.Thread(
            target=_supervise,
            args=(make_worker, todo, done, timeout, most_jobs, is_spoiled),
            daemon=True,
        ).start()
    for _ in jobs:
        try:
            left = max(0.0, end - time.monotonic())
            yield done.get(timeout=min(left, threading.TIMEOUT_MAX))
        except queue.Empty:
            return


def _supervise(
    make_worker: MakeWorker,
    todo: queue.SimpleQueue[Job],
    done: queue.SimpleQueue[tuple[Job, Any]],
    timeout: float,
    most_jobs: int | None,
    is_spoiled: Callable[[Any], bool],
) -> None:
    worker: Worker | None = None
    left = 0
    while True:
        try:
            job = todo.get_nowait()
        except queue.Empty:
            break
        try:
            if worker is not None and left == 0 and most_jobs is not None:
                worker.stop()
                worker = None
            if worker is None:
                worker, left = Worker(make_worker), most_jobs or 0
            left -= 1
            result = worker.call(job, timeout)
            done.put((job, result))
            if is_spoiled(result):
                worker.stop()
                worker = None
        except Crash as crash:
            done.put((job, crash))
            if worker is not None:
                worker.stop()
            worker = None
    if worker is not None:
        worker.stop()


class Worker:
    def __init__(self, make_worker: MakeWorker) -> None:
        # Not forked: a fork would copy TVM's threads in an unknown state.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(make_worker, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._receive(_START_SECONDS)

    def call(self, job: Job, timeout: float) -> Any:
        self._pipe.send(job)
        return self._receive(timeout)

    def _receive(self, timeout: float) -> Any:
        try:
            if not self._pipe.poll(timeout):
                raise Crash(f"no result after {timeout:.0f} s")
            return self._pipe.recv()
        except (EOFError, OSError) as error:
            self._process.join(5)
            raise Crash(f"process ended with code {self._process.exitcode}") from error

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _serve(make_worker: MakeWorker, pipe: Connection) -> None:
    work = make_worker()
    pipe.send(None)
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        pipe.send(work(job))
