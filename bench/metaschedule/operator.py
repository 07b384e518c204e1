"""One operator tuned in a process of its own, which :mod:`bench.metaschedule.__main__` starts.

Not in that module: a process started anew cannot find the functions of a ``__main__``.
"""

from __future__ import annotations

import functools
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from bench.metaschedule.records import DatabaseError, History, Records
from bench.metaschedule.search import Limits
from bench.suites import choose, load_suite
from bench.workload import Workload

DTYPE = "float32"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operator is tuned.

    Attributes:
        device: the name of the record to tune for.
        gpu: the index of the GPU to measure on.
        lock: the file to lock while measuring on it.
        together: operators that are tuned at once on this machine.
    """

    device: str
    gpu: int
    lock: Path
    together: int


def workloads() -> tuple[Workload, ...]:
    """The operators that can be tuned."""
    return choose(["ops"], dtype=[DTYPE])


def tune_operator(name: str, folder: Path, limits: Limits, place: Place) -> None:
    """Tune one operator in this process, which sees one GPU only.

    Raises:
        SystemExit: its records are damaged, or it has no single function.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = str(place.gpu)
    from bench.functions import fused_function
    from bench.gpu import GpuLock
    from bench.metaschedule.measure import GpuTimer
    from bench.metaschedule.search import make_target, tensors_of, tune
    from tvm_tile import find_device

    workload = next(item for item in workloads() if item.name == name)
    device = find_device(place.device)
    function = fused_function(load_suite("ops").case(workload), device)
    if function is None:
        raise SystemExit(f"{name}: not a single function after fusion")
    cores = len(os.sched_getaffinity(0))
    conditions = f"{_environment()}, {cores} cores, {place.together} operators at once"
    try:
        with GpuTimer(tensors_of(function), GpuLock(place.lock)) as timer:
            tune(
                function,
                make_target(device),
                Records(folder, name, DTYPE),
                timer.measure,
                limits,
                waited_s=lambda: timer.waited_s,
                conditions=conditions,
                on_round=lambda history: print(describe(history), flush=True),
            )
    except DatabaseError as error:
        raise SystemExit(f"{name}: {error}") from error


def describe(history: History) -> str:
    """One line: trials, seconds and what they were spent on, the best time."""
    last = history.last
    best = "none valid" if last.best_s is None else f"best {last.best_s * 1e6:.1f} us"
    parts = f"search {last.search_s:.0f}, build {last.build_s:.0f}, measure {last.measure_s:.0f}"
    end = ", search space exhausted" if history.exhausted else ""
    return (
        f"{history.workload}: {last.trials} trials ({last.valid} valid) in {last.seconds:.0f} s "
        f"({parts}), {best}{end}"
    )


@functools.cache
def _environment() -> str:
    import torch
    import tvm
    import xgboost

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    versions = f"tvm {tvm.__version__}, xgboost {xgboost.__version__}"
    return f"{gpu}, {versions}, python {platform.python_version()}"
