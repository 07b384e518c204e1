"""What was measured: one JSON line for each workload and system."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.lines import line_of, rewrite

Key = tuple[str, str, str, int, str, str]


@dataclass(frozen=True, slots=True)
class Record:
    """One workload on one system.

    Attributes:
        suite: the suite.
        workload: the source's own id.
        family: conv, matmul, ...
        dtype: of the floating-point inputs.
        batch: of a model; None where it means nothing.
        system: such as ``"tvm_tile"``, ``"torch"``, ``"torch_compile"``.
        variant: ``"top1"`` or ``"top10"`` for tvm_tile, trials for metaschedule, else empty.
        status: ``"ok"``, or the reason why it is not.
        median_ms: of the repeats; None unless it ran.
        iqr_ms: interquartile range of the repeats.
        repeats: how many.
        compile_s: wall-clock from the model to ready to run, without waiting for the GPU.
        schedule_s: the part of ``compile_s`` that is not nvcc or NVRTC (ours only).
        error: relative error against the reference.
        tolerance: what ``error`` must not exceed.
        flops: operations of the workload.
        bytes: its least traffic.
        peak_flops: measured operations per second for the dtype, behind ``floor_ms``.
        copy_bandwidth: measured bytes per second, behind ``floor_ms``.
        floor_ms: the larger of flops over peak_flops and bytes over copy_bandwidth.
        kernels: of the compiled workload, where the system tells.
        fallbacks: how many of them are not the system's own work (ours only).
        predicted_ms: what the system's model says that a run takes (ours only).
        read_bandwidth: bytes per second that the device record says can be read.
        steps: of a decoder, whose tokens were compared with the reference's, given its tokens.
        same_tokens: of these, how many are the same.
        calls: of one step that were compared with each other.
        differing_calls: of these, how many differ in any bit from the first.
        chained_ms: of a step, behind others whose tokens it takes on the device.
        dram_bytes: measured traffic, where it was measured.
        jobs: workloads compiled at once, which slows ``compile_s``.
        note: what the reader must know, such as a chosen tile.
        gpu: its name.
        driver: its driver.
        versions: of what took part, as ``"torch 2.11.0, ..."``.
        commit: of this project.
        command: what was run.
        date: day of the measurement, ISO 8601, UTC.
    """

    suite: str
    workload: str
    family: str
    dtype: str
    batch: int | None
    system: str
    variant: str
    status: str
    median_ms: float | None = None
    iqr_ms: float | None = None
    repeats: int = 0
    compile_s: float | None = None
    schedule_s: float | None = None
    error: float | None = None
    tolerance: float | None = None
    flops: float | None = None
    bytes: float | None = None
    peak_flops: float | None = None
    copy_bandwidth: float | None = None
    floor_ms: float | None = None
    kernels: int | None = None
    fallbacks: int | None = None
    predicted_ms: float | None = None
    read_bandwidth: float | None = None
    steps: int | None = None
    same_tokens: int | None = None
    calls: int | None = None
    differing_calls: int | None = None
    chained_ms: float | None = None
    dram_bytes: float | None = None
    jobs: int = 1
    note: str = ""
    gpu: str = ""
    driver: str = ""
    versions: str = ""
    commit: str = ""
    command: str = ""
    date: str = ""

    @property
    def key(self) -> Key:
        """What no two lines of a file share."""
        batch = -1 if self.batch is None else self.batch
        return (self.suite, self.workload, self.dtype, batch, self.system, self.variant)

    @property
    def is_right(self) -> bool:
        """Whether it ran and its outputs are within tolerance: only then its time counts."""
        return self.status == "ok"


def read(path: Path) -> dict[Key, Record]:
    """The records of a file; of several with one key the last. Empty where there is no file.

    A line that a killed run left half-written is skipped.
    """
    records: dict[Key, Record] = {}
    if not path.exists():
        return records
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            fields: dict[str, Any] = json.loads(line)
        except json.JSONDecodeError:
            continue
        record = Record(**fields)
        records[record.key] = record
    return records


def append(path: Path, records: Iterable[Record]) -> None:
    """Add lines to a file, which is created where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        file.seek(max(0, file.tell() - 1))
        if file.read() not in ("", "\n"):
            file.write("\n")  # a killed run left half a line: ours must not be its other half
        file.writelines(map(line_of, records))


def tidy(path: Path) -> None:
    """Rewrite a file: one line a key, sorted; all or nothing. A file that is missing stays so."""
    records = read(path)
    if not records:
        return
    rewrite(path, (records[key] for key in sorted(records)))
