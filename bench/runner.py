"""Runs a suite: processes that each do one workload at a time, watched from here.

Workloads are compiled side by side; whoever measures holds the GPU alone (a lock among the
processes). A system that crashes or hangs costs its own result only: its process is replaced and
the workload starts again without it. Every finished result is on disk at once, so a run that is
cut off can be resumed.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

from bench import record as records
from bench.machine import Machine
from bench.record import Record
from bench.systems import preloaded
from bench.worker import Task, main
from bench.workload import Workload

Say = Callable[[str], None]
_TICK_S = 0.5
_END_S = 5.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run, and within which limits.

    Attributes:
        workloads: with the suite of each, in the order in which they are to be measured.
        systems: name as in :mod:`bench.systems` -> (record's system, record's variant).
        device: name of the device record to compile for.
        results: the folder of the JSON Lines files, one a suite.
        ending: of their names, behind the suite's.
        commit: of this project, for the records.
        command: for the records.
        jobs: workloads compiled at once.
        limit_s: everything ends after this many seconds; what is in progress then is not
            recorded.
        phase_limit_s: compiling for one system, or timing it once, may take so long.
        seed: of the inputs.
        start_method: of processes: ``"forkserver"``, or ``"spawn"``, which imports everything
            in each.
    """

    workloads: tuple[Workload, ...]
    systems: tuple[tuple[str, tuple[str, str]], ...]
    device: str
    results: Path
    ending: str = ".jsonl"
    commit: str = ""
    command: str = ""
    jobs: int = 1
    limit_s: float = float("inf")
    phase_limit_s: float = 120.0
    seed: int = 1
    start_method: str = "forkserver"


def begin_preloading(systems: Iterable[str]) -> None:
    """Start the process from which workers are forked; it imports what the systems share.

    Not one of these imports may touch the driver, whose state does not survive forking: TVM's asks
    torch whether there is a GPU, and with this variable torch asks NVML instead.
    """
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    forkserver.set_forkserver_preload(list(preloaded(systems)))
    forkserver.ensure_running()


class Worker:
    """A process and what it is doing."""

    def __init__(self, context: BaseContext, lock: Path, gpu_index: int) -> None:
        self.connection, theirs = context.Pipe()
        self.gpu_index = gpu_index
        self._process = context.Process(target=main, args=(theirs, lock, gpu_index), daemon=False)
        self._process.start()
        theirs.close()
        self.task: Task | None = None
        self.system = ""
        self.phase = "starting"
        self.remaining_s = float("inf")
        self.since = time.monotonic()
        self.is_waiting = False
        self.is_holding = False
        self.is_fruitless = True

    def give(self, task: Task, limit_s: float) -> None:
        """Start a task."""
        self.task = task
        self.is_waiting = False
        self.is_fruitless = True
        self.enter("", "starting", limit_s)
        self.connection.send(task)

    def enter(self, system: str, phase: str, limit_s: float) -> None:
        """A phase begins, and with it its time."""
        self.system, self.phase = system, phase
        self.remaining_s, self.since = limit_s, time.monotonic()

    def pause(self, state: str) -> None:
        """Waiting for the GPU does not count."""
        if not self.is_waiting:
            self.remaining_s -= time.monotonic() - self.since
        self.is_waiting, self.is_holding = state == "waiting", state == "holding"
        self.since = time.monotonic()

    @property
    def is_late(self) -> bool:
        """Whether its phase has used up its time."""
        spent = 0.0 if self.is_waiting else time.monotonic() - self.since
        return self.task is not None and spent > self.remaining_s

    def end(self) -> int:
        """Kill the process if it lives; its exit status, negative for a signal."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join(timeout=_END_S)  # in vain while the driver keeps a hanging kernel
        self.connection.close()
        return self._process.exitcode or 0

    def leave(self) -> None:
        """Let an idle process end by itself."""
        self.connection.close()
        self._process.join(timeout=_END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


class Runner:
    """Carries out a plan."""

    def __init__(
        self, plan: Plan, machine: Machine, say: Say = print, start: float | None = None
    ) -> None:
        self.plan = plan
        self.machine = machine
        self.say = say
        self._systems = dict(plan.systems)
        # Of the time that the plan allows; what came before this runner counts.
        self._start = time.monotonic() if start is None else start
        self._lines = 0
        self._total = 0
        self._held: Counter[str] = Counter()

    def run(self, skip: Iterable[records.Key] = ()) -> None:
        """Measure everything that is not in ``skip``."""
        todo = deque(self._tasks(frozenset(skip)))
        self._total = sum(len(task.systems) for task in todo)
        self.say(f"{self._total} results to get, {self.plan.jobs} workloads at once")
        with tempfile.TemporaryDirectory() as folder:
            context = multiprocessing.get_context(self.plan.start_method)
            workers: list[Worker] = []

            def hire() -> Worker:
                counts = Counter(dict.fromkeys(range(self.machine.gpu_count), 0))
                counts.update(worker.gpu_index for worker in workers)
                index = min(counts, key=counts.__getitem__)
                return Worker(context, Path(folder) / f"gpu{index}.lock", index)

            try:
                while todo or any(worker.task for worker in workers):
                    if self._is_over(todo, workers):
                        break
                    self._hand_out(todo, workers, hire)
                    self._listen(workers, todo)
            finally:
                for worker in workers:
                    if worker.task is None:
                        worker.leave()
                    else:
                        worker.end()
        spent = ", ".join(f"{phase} {seconds:.0f}" for phase, seconds in self._held.most_common())
        self.say(f"seconds for which the GPU was held: {spent or 'none'}")
        for suite in {workload.suite for workload in self.plan.workloads}:
            records.tidy(self._file(suite))

    def _file(self, suite: str) -> Path:
        return self.plan.results / f"{suite.rpartition('.')[2]}{self.plan.ending}"

    def done(self) -> dict[records.Key, Record]:
        """What earlier runs have left on disk."""
        found: dict[records.Key, Record] = {}
        for suite in {workload.suite for workload in self.plan.workloads}:
            found.update(records.read(self._file(suite)))
        return found

    def _tasks(self, skip: frozenset[records.Key]) -> Iterable[Task]:
        for workload in self.plan.workloads:
            wanted = []
            for name in self._systems:
                blank = self._record(workload, name, {"status": ""})
                if blank.key in skip:
                    continue
                reason = self.machine.missing.get(name)
                if reason:
                    self._write(replace(blank, status=f"missing: {reason}"))
                else:
                    wanted.append(name)
            if wanted:
                threads = max(1, len(os.sched_getaffinity(0)) // self.plan.jobs)
                yield Task(workload, tuple(wanted), self.plan.device, self.plan.seed, threads)

    def _is_over(self, todo: deque[Task], workers: list[Worker]) -> bool:
        spent = time.monotonic() - self._start
        if spent <= self.plan.limit_s:
            return False
        left = len(todo) + sum(worker.task is not None for worker in workers)
        self.say(f"out of time: {left} workloads are left; --resume goes on with them")
        return True

    def _hand_out(
        self, todo: deque[Task], workers: list[Worker], hire: Callable[[], Worker]
    ) -> None:
        idle = [worker for worker in workers if worker.task is None]
        while todo and (idle or len(workers) < self.plan.jobs):
            if not idle:
                idle.append(hire())
                workers.append(idle[-1])
            idle.pop().give(todo.popleft(), self.plan.phase_limit_s)

    def _listen(self, workers: list[Worker], todo: deque[Task]) -> None:
        by_connection: dict[Connection, Worker] = {w.connection: w for w in workers}
        for connection in wait(list(by_connection), timeout=_TICK_S):
            worker = by_connection[connection]  # type: ignore[index]
            try:
                self._hear(worker, worker.connection.recv())
            except (EOFError, ConnectionResetError):
                status = worker.end()
                how = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
                self._bury(worker, f"crashed: its process ended ({how})", workers, todo)
        for worker in [worker for worker in workers if worker.is_late]:
            worker.end()
            limit = self.plan.phase_limit_s
            self._bury(worker, f"hangs: more than {limit:.0f} s", workers, todo)

    def _hear(self, worker: Worker, message: tuple[Any, ...]) -> None:
        kind, *content = message
        if worker.is_holding and kind in ("phase", "released"):
            now = time.monotonic()
            self._held[worker.phase] += now - worker.since
        if kind == "phase":
            worker.enter(*content, self.plan.phase_limit_s)
        elif kind in ("waiting", "holding", "released"):
            worker.pause(kind)
        elif kind == "idle":
            worker.task = None
        elif kind == "result" and worker.task is not None:
            name, fields = content
            worker.is_fruitless = False
            self._write(self._record(worker.task.workload, name, fields))
            left = tuple(system for system in worker.task.systems if system != name)
            worker.task = replace(worker.task, systems=left)
            worker.system = "" if worker.system == name else worker.system

    def _bury(self, worker: Worker, why: str, workers: list[Worker], todo: deque[Task]) -> None:
        """A process is gone: blame the system that it was at, and do the others again."""
        workers.remove(worker)
        task, worker.task = worker.task, None
        if task is None:
            return
        blamed = [name for name in task.systems if name == worker.system]
        if not blamed and worker.is_fruitless and task.is_second_try:
            # Twice nothing came of it, and no system was at work: the workload is to blame.
            blamed = list(task.systems)
        for name in blamed:
            status = f"{why} while {worker.phase}"
            self._write(self._record(task.workload, name, {"status": status}))
        left = tuple(name for name in task.systems if name not in blamed)
        if left:
            again = replace(task, systems=left, is_second_try=worker.is_fruitless and not blamed)
            todo.appendleft(again)

    def _record(self, workload: Workload, name: str, fields: Mapping[str, Any]) -> Record:
        system, variant = self._systems[name]
        made = Record(
            suite=workload.suite,
            workload=workload.name,
            family=workload.family,
            dtype=workload.dtype,
            batch=workload.batch,
            system=system,
            variant=variant,
            jobs=self.plan.jobs,
            commit=self.plan.commit,
            command=self.plan.command,
            **fields,
        )
        return self.machine.describe(made)

    def _write(self, made: Record) -> None:
        records.append(self._file(made.suite), [made])
        self._lines += 1
        spent = time.monotonic() - self._start
        batch = "" if made.batch is None else f" b{made.batch}"
        name = f"{made.workload} {made.dtype}{batch} {made.system} {made.variant}".rstrip()
        found = made.status
        if made.median_ms is not None:
            share = (made.floor_ms or 0.0) / made.median_ms
            found = f"{made.median_ms:.4f} ms, {share:.2f} of the floor, error {made.error:.0e}"
            found += "" if made.status == "ok" else f", {made.status}"
        self.say(f"[{self._lines}/{self._total} {spent:4.0f} s] {name}: {found}")
