"""What was measured: the bytes of each kernel of a model, beside what our model predicts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.lines import put, read_keyed
from bench.traffic.ncu import Launch

if TYPE_CHECKING:
    from tvm_tile.report.compiled import KernelReport

FILE = "traffic.jsonl"
Key = tuple[str, str, str, int, str, str, str]
Place = tuple[str, str, str, int | None]
# How TVM calls the kernels of a function; the first has no number.
_SYMBOL = re.compile(r"(.+)_kernel(_\d+)?")
# How functions are called that were made of several operators.
_JOINED = ("fused_", "joined_")


@dataclass(frozen=True, slots=True)
class FunctionTraffic:
    """A function of a model; bytes are of all its calls.

    Attributes:
        name: the function's; the kernel's symbol where it is none of the model's.
        operators: the operators in it.
        rule: the schedule rule that wrote it.
        calls: how often the model calls it.
        launches: of kernels; more than ``calls`` where it is several kernels.
        read: measured bytes from the GPU's memory.
        written: measured bytes to it, without what the cache still held at the end of a kernel.
        predicted_read: what the graph says must be read: inputs once.
        predicted_written: what the graph says must be written: outputs once.
    """

    name: str
    operators: str
    rule: str
    calls: int
    launches: int
    read: float
    written: float
    predicted_read: float
    predicted_written: float

    @property
    def is_joined(self) -> bool:
        """Whether it was made of several operators."""
        return self.name.startswith(_JOINED)

    @property
    def ratio(self) -> float | None:
        """Measured over predicted bytes that are read; None where nothing is predicted."""
        return self.read / self.predicted_read if self.read and self.predicted_read else None


@dataclass(frozen=True, slots=True)
class Traffic:
    """One run of one model compiled by one system.

    Attributes:
        suite, workload, family, dtype, batch, system, variant: as in a benchmark's record.
        cache_control: ``"all"``: caches were emptied before each kernel; ``"none"``: never.
        status: ``"ok"``, or the reason why it is not.
        functions: in the order of their first launches.
        gpu, driver, versions, commit, command, date: as in a benchmark's record.
    """

    suite: str
    workload: str
    family: str
    dtype: str
    batch: int | None
    system: str
    variant: str
    cache_control: str
    status: str
    functions: tuple[FunctionTraffic, ...] = ()
    gpu: str = ""
    driver: str = ""
    versions: str = ""
    commit: str = ""
    command: str = ""
    date: str = ""

    @property
    def key(self) -> Key:
        """What no two lines of the file share."""
        batch = -1 if self.batch is None else self.batch
        how = (self.system, self.variant, self.cache_control)
        return (self.suite, self.workload, self.dtype, batch, *how)

    @property
    def place(self) -> Place:
        """Suite, workload, dtype and batch: what systems are compared at."""
        return (self.suite, self.workload, self.dtype, self.batch)

    @property
    def is_right(self) -> bool:
        """Whether it was measured."""
        return self.status == "ok"

    @property
    def launches(self) -> int:
        """Of kernels, in one run."""
        return sum(function.launches for function in self.functions)

    @property
    def read(self) -> float:
        """Measured bytes from the GPU's memory in one run."""
        return sum(function.read for function in self.functions)

    @property
    def written(self) -> float:
        """Measured bytes to the GPU's memory in one run."""
        return sum(function.written for function in self.functions)

    @property
    def moved(self) -> float:
        """Measured bytes, both ways."""
        return self.read + self.written

    @property
    def predicted(self) -> float:
        """Bytes that cross memory if no kernel finds anything in the cache."""
        return sum(f.predicted_read + f.predicted_written for f in self.functions)


def by_function(
    launches: Iterable[Launch], reports: Iterable[KernelReport]
) -> tuple[FunctionTraffic, ...]:
    """Launches of one run, summed up by the function that they are of."""
    known = {report.name: report for report in reports}
    own: dict[str, list[Launch]] = {}
    for launch in launches:
        match = _SYMBOL.fullmatch(launch.kernel)
        name = match.group(1) if match and match.group(1) in known else launch.kernel
        own.setdefault(name, []).append(launch)
    return tuple(_summed(name, found, known.get(name)) for name, found in own.items())


def _summed(name: str, launches: Sequence[Launch], report: KernelReport | None) -> FunctionTraffic:
    calls = sum(launch.kernel == launches[0].kernel for launch in launches)
    traffic, written = (report.traffic, report.written) if report else (0.0, 0.0)
    return FunctionTraffic(
        name,
        report.operators if report else "",
        report.rule if report else "",
        calls,
        len(launches),
        sum(launch.read for launch in launches),
        sum(launch.written for launch in launches),
        calls * (traffic - written),
        calls * written,
    )


def whole_runs(records: Iterable[Traffic], place: Place) -> dict[tuple[str, str], Traffic]:
    """(system, variant) -> the run of one workload with its caches as in real life."""
    return {
        (record.system, record.variant): record
        for record in records
        if record.place == place and record.cache_control == "none" and record.is_right
    }


def read(path: Path) -> dict[Key, Traffic]:
    """The records of a file; empty where there is none."""
    return read_keyed(path, _record)


def store(path: Path, record: Traffic) -> None:
    """Add a record to a file, in place of one with its key; all or nothing."""
    put(path, read(path), record)


def _record(fields: dict[str, Any]) -> Traffic:
    functions = tuple(FunctionTraffic(**function) for function in fields["functions"])
    return Traffic(**{**fields, "functions": functions})
