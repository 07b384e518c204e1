"""Compile the suites' workloads at one commit, some at a time, and keep what became of each."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from threading import Lock

from bench.compare.process import Ended, Worker
from bench.compare.record import Compiled, Key, append, digest, key_of, read
from bench.compare.requests import Describe
from bench.compare.trees import Tree
from bench.workload import Workload

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Collection:
    """What to compile, and how.

    Attributes:
        workloads: of the suites.
        device: name of the record.
        machine_code: whether kernels are compiled to machine code, too.
        workers: processes at once.
        limit_s: seconds that one workload may take.
        folder: for results, texts and logs.
        measures: git's name of the benchmark's own files, on which results depend, too.
    """

    workloads: Sequence[Workload]
    device: str
    machine_code: bool
    workers: int
    limit_s: float
    folder: Path
    measures: str

    @property
    def texts(self) -> Path:
        """The folder of the kernels' texts."""
        return self.folder / "texts"

    def file(self, tree: Tree) -> Path:
        """Where the results at a commit are kept; the same package has the same file."""
        facts = (self.device, str(self.machine_code), self.measures, _versions())
        return self.folder / f"{tree.digest[:12]}.{digest(' '.join(facts).encode())[:8]}.jsonl"

    def collect(self, tree: Tree, say: Say, *, afresh: bool = False) -> dict[Key, Compiled]:
        """What the package makes of the workloads; what is known is compiled again if asked to."""
        known = {} if afresh else read(self.file(tree))
        missing = [workload for workload in self.workloads if key_of(workload) not in known]
        say(f"{tree.label}: {len(missing)} workloads to compile")
        if missing:
            self.texts.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory() as temporary:
                tree.extract(Path(temporary))
                known |= _Pool(self, Path(temporary), self.file(tree), say).compiled(missing)
        wanted = map(key_of, self.workloads)
        return {key: known[key] for key in wanted if key in known}


def _versions() -> str:
    """Of what the texts depend on besides the package."""
    from importlib.metadata import version

    return " ".join(f"{name} {version(name)}" for name in ("apache-tvm", "apache-tvm-ffi", "torch"))


class _Pool:
    """Processes that compile from one queue; one that crashes or hangs is replaced."""

    def __init__(self, collection: Collection, package: Path, file: Path, say: Say) -> None:
        self._collection = collection
        self._package = package
        self._file = file
        self._say = say
        self._todo: Queue[Workload] = Queue()
        self._found: dict[Key, Compiled] = {}
        self._lock = Lock()

    def compiled(self, workloads: Sequence[Workload]) -> dict[Key, Compiled]:
        """The records of the workloads, which are on disk as soon as they are there."""
        for workload in workloads:
            self._todo.put(workload)
        count = min(self._collection.workers, len(workloads))
        with ThreadPoolExecutor(count) as pool:
            tasks = [pool.submit(self._work) for _ in range(count)]
            try:
                for task in tasks:
                    task.result()
            except BaseException:
                with self._todo.mutex:
                    self._todo.queue.clear()  # or the others go on to the end
                raise
        return self._found

    def _work(self) -> None:
        worker: Worker | None = None
        try:
            while True:
                workload = self._todo.get_nowait()
                try:
                    worker = worker or self._start()
                    self._keep(worker.ask(self._request(workload)))
                except Ended as reason:
                    worker = None
                    # Which may have come from outside: it is not kept for the next time.
                    self._tell(Compiled.failed(workload, str(reason)))
        except Empty:
            return
        finally:
            if worker is not None:
                worker.end()

    def _start(self) -> Worker:
        log = self._file.with_suffix(".log")
        return Worker(self._package, log, self._collection.limit_s)

    def _request(self, workload: Workload) -> Describe:
        own = self._collection
        return Describe(workload, own.device, own.texts, own.machine_code)

    def _keep(self, record: Compiled) -> None:
        with self._lock:
            append(self._file, record)
        self._tell(record)

    def _tell(self, record: Compiled) -> None:
        with self._lock:
            self._found[record.key] = record
            status = f"{record.seconds:.1f} s" if record.status == "ok" else record.status
            self._say(f"[{self._todo.qsize()} left] {record.title}: {status}")
