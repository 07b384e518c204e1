"""Tune operators of the suite ``ops`` in float32 with TVM's MetaSchedule, several at once.

    python -m bench.metaschedule [--operators C0,D5,...] [--trials 256] [--limit-s S] [--jobs N]

Goes on from the records in the folder, and saves after every round of some 64 trials: interrupt it
when you like, and run it again.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.metaschedule.records import DatabaseError, History, Records

FOLDER = Path(__file__).parent.parent / "results" / "metaschedule"
# Two of each family, compute- and memory-bound, the ones with most to tune first.
OPERATORS = ("C0", "C3", "M4", "M1", "D13", "D5", "P1", "P2", "R2", "R0", "E2", "E15")
DTYPE = "float32"


def main(argv: list[str] | None = None) -> int:
    """Tune; the exit status is 1 where an operator failed."""
    arguments = _parser().parse_args(argv)
    names = arguments.operators.split(",")
    known = {workload.name for workload in _workloads()}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no such operator: {', '.join(unknown)}", file=sys.stderr)
        return 2
    missing = _missing()
    if missing:
        print(missing, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        failed = _tune_all(names, arguments, Path(scratch))
    for name in names:
        try:
            print(_line(Records(arguments.folder, name, DTYPE).read_history()))
        except DatabaseError as error:
            print(f"{name}: {error}")
    return 1 if failed else 0


def _tune_all(names: list[str], arguments: argparse.Namespace, locks: Path) -> int:
    """Each operator in a process of its own, some at once, on one GPU each; how many failed."""
    import torch

    gpus = itertools.cycle(range(torch.cuda.device_count()))
    deadline = time.monotonic() + arguments.limit_s
    # Not daemons: each has processes of its own.
    context = multiprocessing.get_context("spawn")
    waiting, running, failed = list(names), [], 0
    while waiting or running:
        while waiting and len(running) < arguments.jobs:
            gpu = next(gpus)
            job = (waiting.pop(0), arguments, deadline, gpu, locks / f"gpu{gpu}.lock")
            running.append(context.Process(target=_tune_operator, args=job))
            running[-1].start()
        time.sleep(0.2)
        failed += sum(process.exitcode not in (None, 0) for process in running)
        running = [process for process in running if process.exitcode is None]
    return failed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.metaschedule",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--operators", default=",".join(OPERATORS), help="A,B,...")
    parser.add_argument("--trials", type=int, default=256, help="of each, in all runs together")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    parser.add_argument("--jobs", type=int, default=12, help="operators at once")
    parser.add_argument("--device", default="nvidia/h200")
    parser.add_argument("--threads", type=int, help="of each operator; by default, 3 for 2 cores")
    return parser


def _workloads() -> list[Any]:
    from bench.suites import load_suite

    return [workload for workload in load_suite("ops").workloads() if workload.dtype == DTYPE]


def _missing() -> str:
    """What this machine lacks; empty where it can tune."""
    import importlib.util

    if importlib.util.find_spec("xgboost") is None:
        return "MetaSchedule's cost model needs XGBoost: pip install xgboost-cpu"
    import torch

    return "" if torch.cuda.is_available() else "tuning needs an NVIDIA GPU: candidates are timed"


def _tune_operator(
    name: str, arguments: argparse.Namespace, deadline: float, gpu: int, lock: Path
) -> None:
    """Tune one operator in this process, on the GPU of that index, which ``lock`` is for.

    Raises:
        SystemExit: its records are damaged, or it has no single function.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    from bench.functions import fused_function
    from bench.gpu import GpuLock
    from bench.metaschedule.measure import GpuTimer
    from bench.metaschedule.search import Limits, make_target, tensors_of, tune
    from bench.suites import load_suite
    from tvm_tile import find_device

    suite = load_suite("ops")
    workload = next(item for item in _workloads() if item.name == name)
    device = find_device(arguments.device)
    function = fused_function(suite.case(workload), device)
    if function is None:
        raise SystemExit(f"{name}: not a single function after fusion")
    cores = len(os.sched_getaffinity(0))
    together = min(arguments.jobs, len(arguments.operators.split(",")))
    threads = arguments.threads or max(2, -(-3 * cores // (2 * together)))
    # Each operator is at some time waiting for the GPU, so there are more threads than cores.
    limits = Limits(arguments.trials, deadline, threads)
    records = Records(arguments.folder, name, DTYPE)
    conditions = f"{_environment()}, {cores} cores, {together} operators at once"
    try:
        with GpuTimer(tensors_of(function), GpuLock(lock)) as timer:
            tune(
                function,
                make_target(device),
                records,
                timer.measure,
                limits,
                waited_s=lambda: timer.waited_s,
                conditions=conditions,
                on_round=lambda history: print(_line(history), flush=True),
            )
    except DatabaseError as error:
        raise SystemExit(f"{name}: {error}") from error


@functools.cache
def _environment() -> str:
    import torch
    import tvm
    import xgboost

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    versions = f"tvm {tvm.__version__}, xgboost {xgboost.__version__}"
    return f"{gpu}, {versions}, python {platform.python_version()}"


def _line(history: History) -> str:
    last = history.last
    best = "none valid" if last.best_s is None else f"best {last.best_s * 1e6:.1f} us"
    parts = f"search {last.search_s:.0f}, build {last.build_s:.0f}, measure {last.measure_s:.0f}"
    end = ", search space exhausted" if history.exhausted else ""
    return (
        f"{history.workload}: {last.trials} trials ({last.valid} valid) in {last.seconds:.0f} s "
        f"({parts}), {best}{end}"
    )


if __name__ == "__main__":
    sys.exit(main())
