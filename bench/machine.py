"""The machine a run is on: its GPU, what is installed, and the two peaks behind every floor."""

from __future__ import annotations

import multiprocessing
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from bench.record import Record

_PRODUCT = 8192  # a cube of this size: what the vendor's library reaches on it is the peak
_COPY_BYTES = 4 << 30
_REPEATS = 15


@dataclass(frozen=True, slots=True)
class Machine:
    """What all records of a run share.

    Attributes:
        gpu: its name; ``"none"`` without one.
        driver: its driver's version.
        versions: of the systems that take part.
        date: of the run, ISO 8601, UTC.
        peak_flops: dtype -> operations per second of the vendor's product of 8192 cubed.
        copy_bandwidth: bytes read and written per second by a copy of 4 GiB.
        missing: system -> why it cannot run here.
        gpu_count: GPUs like it, each of which measures workloads of its own.
    """

    gpu: str
    driver: str
    versions: str
    date: str
    peak_flops: Mapping[str, float]
    copy_bandwidth: float | None
    missing: Mapping[str, str]
    gpu_count: int = 1

    def describe(self, made: Record) -> Record:
        """The record with this machine's facts and the floor that follows from them."""
        peak = self.peak_flops.get(made.dtype)
        floor = None
        if peak and self.copy_bandwidth and made.flops is not None and made.bytes is not None:
            floor = max(made.flops / peak, made.bytes / self.copy_bandwidth) * 1e3
        return replace(
            made,
            peak_flops=peak,
            copy_bandwidth=self.copy_bandwidth,
            floor_ms=floor,
            gpu=self.gpu,
            driver=self.driver,
            versions=self.versions,
            date=self.date,
        )


def probe(systems: Sequence[str], *, with_peaks: bool = True) -> Machine:
    """Look at this machine from a process of its own, which leaves nothing on the GPU.

    Args:
        systems: those that take part.
        with_peaks: measure the peaks, which takes seconds; else there are none.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_probe, tuple(systems), with_peaks).result()


def _probe(systems: tuple[str, ...], with_peaks: bool) -> Machine:
    import torch
    import tvm

    import tvm_tile
    from bench.systems import load_system

    missing: dict[str, str] = {}
    versions = [f"tvm_tile {tvm_tile.__version__}", f"tvm {tvm.__version__}"]
    for name in systems:
        try:
            system = load_system(name)
            reason = system.missing()
        except ImportError as error:
            reason = str(error)
        if reason:
            missing[name] = reason
        elif system.version() not in versions:
            versions.append(system.version())
    on_gpu = torch.cuda.is_available()
    gpu, driver = _driver()
    return Machine(
        gpu=gpu,
        driver=driver,
        versions=", ".join(versions),
        date=datetime.now(timezone.utc).date().isoformat(),
        peak_flops=_peaks() if on_gpu and with_peaks else {},
        copy_bandwidth=_copy_bandwidth() if on_gpu and with_peaks else None,
        missing=missing,
        gpu_count=max(1, torch.cuda.device_count()),
    )


def _driver() -> tuple[str, str]:
    command = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "none", "none"
    first = done.stdout.splitlines()[0]
    name, _, driver = first.partition(", ")
    return name, driver


def _peaks() -> dict[str, float]:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    peaks = {}
    for name in ("float32", "float16", "bfloat16"):
        shape = (_PRODUCT, _PRODUCT)
        a, b = (torch.randn(shape, device="cuda", dtype=getattr(torch, name)) for _ in range(2))
        out = torch.empty_like(a)
        seconds = _median_seconds(lambda a=a, b=b, out=out: torch.matmul(a, b, out=out))
        peaks[name] = 2 * _PRODUCT**3 / seconds
    return peaks


def _copy_bandwidth() -> float:
    import torch

    source = torch.ones(_COPY_BYTES // 8, device="cuda")  # half of it read, half written
    target = torch.empty_like(source)
    return _COPY_BYTES / _median_seconds(lambda: target.copy_(source))


def _median_seconds(run: Any) -> float:
    from bench.gpu import CudaStage

    stage = CudaStage()
    stage.time(run, 10, cold=True)
    return statistics.median(stage.time(run, _REPEATS, cold=True))
