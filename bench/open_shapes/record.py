"""What is measured of open extents, as JSON lines: points, and compilations."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bench.lines import rewrite

POINTS = "open_shapes.jsonl"
COMPILATIONS = "open_shapes_compilations.jsonl"
SYSTEMS = ("open", "static", "padded", "dynamic")

Key = tuple[str, str, str, int]


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where and of what a record is.

    Attributes:
        gpu: its name.
        driver: its driver.
        versions: of what took part.
        commit: of this project.
        command: what was run.
        date: day of the measurement, ISO 8601, UTC.
    """

    gpu: str
    driver: str
    versions: str
    commit: str
    command: str
    date: str


@dataclass(frozen=True, slots=True)
class Point:
    """One system at one extent of a model.

    Attributes:
        model: its name.
        system: one of :data:`SYSTEMS`.
        variant: of a system that is measured in several ways.
        extent: of the call.
        status: ``"ok"``, or the reason why it is not; a wrong one has times, which do not count.
        median_ms: of a call from an idle device, launches included.
        first_quartile_ms: of the same calls.
        third_quartile_ms: of the same calls.
        repeats: how many.
        error: relative error against eager PyTorch in float32.
        tolerance: what ``error`` must not exceed.
        first_call_s: seconds of the first call at this extent.
        compiled: kernels (of ours), or graphs (of torch.compile), that were compiled in that call.
        padded_to: the extent that the input was padded to.
        provenance: where and of what.
    """

    model: str
    system: str
    variant: str
    extent: int
    status: str
    median_ms: float | None = None
    first_quartile_ms: float | None = None
    third_quartile_ms: float | None = None
    repeats: int = 0
    error: float | None = None
    tolerance: float | None = None
    first_call_s: float | None = None
    compiled: int = 0
    padded_to: int | None = None
    provenance: Provenance | None = None

    @property
    def key(self) -> Key:
        """What no two records share."""
        return (self.model, self.system, self.variant, self.extent)

    @property
    def is_right(self) -> bool:
        """Whether its time counts."""
        return self.status == "ok" and self.median_ms is not None


@dataclass(frozen=True, slots=True)
class Compilation:
    """What was compiled before anything was timed.

    Attributes:
        model: its name.
        system: one of :data:`SYSTEMS`.
        variant: of a system that is measured in several ways.
        extent: that it is for; the greatest one, if it is for all.
        status: ``"ok"``, or why there is none.
        seconds: it took, one kernel at a time.
        kernels: that were built, where the system tells.
        fallbacks: those of them that no rule of ours wrote.
        jobs: compilations at once, which slows each.
        is_cached: whether schedules and machine code of an earlier run could be read: then
            ``seconds`` is not what compiling takes.
        provenance: where and of what.
    """

    model: str
    system: str
    variant: str
    extent: int
    status: str
    seconds: float
    kernels: int | None = None
    fallbacks: int | None = None
    jobs: int = 1
    is_cached: bool = False
    provenance: Provenance | None = None

    @property
    def key(self) -> Key:
        """What no two records share."""
        return (self.model, self.system, self.variant, self.extent)


Recorded = TypeVar("Recorded", Point, Compilation)


def read(path: Path, kind: type[Recorded]) -> dict[Key, Recorded]:
    """The records of a file, of several with one key the last; empty where there is no file.

    A line that a killed run left half-written is skipped.
    """
    records: dict[Key, Recorded] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            fields: dict[str, Any] = json.loads(line)
        except json.JSONDecodeError:
            continue
        origin = fields.pop("provenance", None)
        made = kind(**fields, provenance=Provenance(**origin) if origin else None)
        records[made.key] = made
    return records


def keep(path: Path, chosen: Iterable[Recorded]) -> None:
    """Write a file anew, in order, with these records alone; a missing one stays so."""
    if path.exists():
        rewrite(path, sorted(chosen, key=lambda record: record.key))


def tidy(path: Path, kind: type[Recorded]) -> None:
    """Write a file anew: one line for each key."""
    keep(path, read(path, kind).values())
