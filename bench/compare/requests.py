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
    """Compile a workload and get it ready to be timed: :class:`Ready` or :class:`Failed`."""

    workload: Workload
    device: str


@dataclass(frozen=True, slots=True)
class Time:
    """Run what was prepared so many times: seconds of each run, a list."""

    count: int


@dataclass(frozen=True, slots=True)
class Ready:
    """It runs, and rightly.

    Attributes:
        is_operator: as in :class:`bench.workload.Case`.
    """

    is_operator: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """It does not, or wrongly."""

    reason: str


Request = Describe | Prepare | Time
