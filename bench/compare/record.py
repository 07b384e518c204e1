"""What one commit makes of one workload: a JSON line with every kernel."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.lines import line_of, read_keyed
from bench.workload import Workload

Key = tuple[str, str, str, int]
_DIGITS = 16
_HASH = re.compile(r"(_\d+)?_[0-9a-f]{8,16}$")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function of a compiled workload.

    Attributes:
        name: its symbol, which ends with a hash of the function before it was scheduled.
        operators: in it.
        rule: that wrote its schedule.
        tile: as the report describes it.
        grid: blocks.
        block: threads of a block.
        calls: of it, in one run.
        seconds: predicted.
        fallback: why the rule is not one of ours; empty where it is.
        texts: the texts of the GPU's kernels that it became, each by its digest.
    """

    name: str
    operators: str
    rule: str
    tile: str
    grid: int
    block: int
    calls: int
    seconds: float
    fallback: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A workload, compiled.

    Attributes:
        suite, workload, dtype, batch: which one.
        status: ``"ok"``, or the reason why it is not.
        seconds: that compiling took, wall-clock.
        predicted_s: seconds of one run, launches included; fallbacks count as nothing.
        kernels: that a run calls, by name.
        host: digest of what launches them: host code, bytecode and constants.
    """

    suite: str
    workload: str
    dtype: str
    batch: int | None
    status: str
    seconds: float = 0.0
    predicted_s: float = 0.0
    kernels: tuple[Kernel, ...] = ()
    host: str = ""

    @property
    def key(self) -> Key:
        """What no two workloads share."""
        batch = -1 if self.batch is None else self.batch
        return (self.suite, self.workload, self.dtype, batch)

    @property
    def title(self) -> str:
        """Of the workload, as :class:`bench.workload.Workload` calls itself."""
        batch = "" if self.batch is None else f" batch {self.batch}"
        return f"{self.suite} {self.workload} {self.dtype}{batch}"

    @classmethod
    def failed(cls, workload: Workload, reason: str) -> Compiled:
        """A workload that came to nothing."""
        place = (workload.suite, workload.name, workload.dtype, workload.batch)
        return cls(*place, status=" ".join(reason.split()))


def key_of(workload: Workload) -> Key:
    """The key of its record."""
    return Compiled.failed(workload, "").key


def read(path: Path) -> dict[Key, Compiled]:
    """The records of a file, the last of each key; empty where there is none."""
    return read_keyed(path, _from_json)


def append(path: Path, record: Compiled) -> None:
    """Add a record to a file, which need not be there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(line_of(record))


def plain_name(name: str) -> str:
    """A kernel's name without the hash of its function: ``matmul_0f3a99c1`` is ``matmul``."""
    return _HASH.sub("", name)


def digest(data: bytes) -> str:
    """Of a text or of bytecode."""
    return hashlib.sha256(data).hexdigest()[:_DIGITS]


def _from_json(data: dict[str, Any]) -> Compiled:
    kernels = tuple(
        Kernel(**{**kernel, "texts": tuple(kernel["texts"])}) for kernel in data["kernels"]
    )
    return Compiled(**{**data, "kernels": kernels})
