"""What processes at one commit are asked, and what they answer: the same at both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.workload import Workload


@dataclass(frozen=True, slots=True)
class Describe:
    """Compile a workload and say what became of it: a :class:`bench.compare.record.Compiled`.

    Attributes:
        workload: itself.
        device: name of the record.
        texts: the folder in which the kernels' texts are kept, each by its digest.
        machine_code: whether kernels are compiled to machine code, too.
    """

    workload: Workload
    device: str
    texts: Path
    machine_code: bool


@dataclass(frozen=True, slots=True)
class Prepare:
    """Compile, without the GPU, what is to be timed: :class:`Ready` or :class:`Failed`."""

    workload: Workload
    device: str


@dataclass(frozen=True, slots=True)
class Check:
    """Run what was prepared next to the benchmark's reference: :class:`Ready` or :class:`Failed`.

    This and :class:`Time` use the GPU, so that only one process may be asked at a time.
    """


@dataclass(frozen=True, slots=True)
class Time:
    """Run what was checked so many times: seconds of each run, a list."""

    count: int


@dataclass(frozen=True, slots=True)
class Ready:
    """It compiles, or runs rightly.

    Attributes:
        is_operator: as in :class:`bench.workload.Case`.
    """

    is_operator: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """It does not, and why."""

    reason: str


Request = Describe | Prepare | Check | Time
