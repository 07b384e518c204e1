"""Tune operators of the suite ``ops`` in float32 with TVM's MetaSchedule, several at once.

    python -m bench.metaschedule [--operators C0,D5,...] [--trials 256] [--limit-s S] [--jobs N]

Goes on from the records in the folder, and saves after every round of some 64 trials: interrupt it
when you like, and run it again.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

from bench.metaschedule.operator import DTYPE, Place, describe, tune_operator, workloads
from bench.metaschedule.records import DatabaseError, Records
from bench.metaschedule.search import Limits

FOLDER = Path(__file__).parent.parent / "results" / "metaschedule"
# Two of each family, compute- and memory-bound, the ones with most to tune first.
OPERATORS = ("C0", "C3", "M4", "M1", "D13", "D5", "P1", "P2", "R2", "R0", "E2", "E15")


def main(argv: list[str] | None = None) -> int:
    """Tune; the exit status is 1 where an operator failed."""
    arguments = _parser().parse_args(argv)
    names = arguments.operators.split(",")
    known = {workload.name for workload in workloads()}
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
            print(describe(Records(arguments.folder, name, DTYPE).read_history()))
        except DatabaseError as error:
            print(f"{name}: {error}")
    return 1 if failed else 0


def _tune_all(names: list[str], arguments: argparse.Namespace, locks: Path) -> int:
    """Each operator in a process of its own, some at once, on one GPU each; how many failed."""
    import torch

    gpus = itertools.cycle(range(torch.cuda.device_count()))
    deadline = time.monotonic() + arguments.limit_s
    together = min(arguments.jobs, len(names))
    # Each operator is at some time waiting for the GPU, so there are more threads than cores.
    cores = len(os.sched_getaffinity(0))
    threads = arguments.threads or max(2, -(-3 * cores // (2 * together)))
    # Not daemons: each has processes of its own.
    context = multiprocessing.get_context("spawn")
    waiting, running, failed = list(names), [], 0
    while waiting or running:
        while waiting and len(running) < arguments.jobs:
            gpu = next(gpus)
            limits = Limits(arguments.trials, deadline, threads)
            place = Place(arguments.device, gpu, locks / f"gpu{gpu}.lock", together)
            job = (waiting.pop(0), arguments.folder, limits, place)
            running.append(context.Process(target=tune_operator, args=job))
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


def _missing() -> str:
    """What this machine lacks; empty where it can tune."""
    import importlib.util

    if importlib.util.find_spec("xgboost") is None:
        return "MetaSchedule's cost model needs XGBoost: pip install xgboost-cpu"
    import torch

    return "" if torch.cuda.is_available() else "tuning needs an NVIDIA GPU: candidates are timed"


if __name__ == "__main__":
    sys.exit(main())
