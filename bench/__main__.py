"""Measure, and report what was measured.

python -m bench run --suite ops --systems tvm_tile,torch,dlight [--limit-s 600] [--resume]
python -m bench report [--results bench/results]
python -m bench list
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from bench import suites, systems
from bench.machine import probe
from bench.runner import Plan, Runner, begin_preloading
from bench.workload import Workload

RESULTS = Path(__file__).parent / "results"


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and do what it says; the exit status."""
    arguments = _parser().parse_args(argv)
    done: int = arguments.do(arguments)
    return done


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="measure a suite on some systems")
    run.set_defaults(do=_run)
    run.add_argument("--suite", required=True, help="A,B,... of " + " ".join(suites.names()))
    run.add_argument("--systems", required=True, help="A,B,... of " + " ".join(systems.names()))
    run.add_argument("--device", default="nvidia/h200", help="the record to compile for")
    run.add_argument("--limit-s", type=float, default=float("inf"), help="for the whole run")
    run.add_argument(
        "--phase-limit-s", type=float, default=120.0, help="to compile or time one workload once"
    )
    run.add_argument("--resume", action="store_true", help="leave out what is already measured")
    run.add_argument("--retry", action="store_true", help="with --resume: failures once more")
    run.add_argument("--jobs", type=int, help="workloads compiled at once; by default all cores")
    run.add_argument("--workloads", help="only these: A,B,...")
    run.add_argument("--families", help="only these: A,B,...")
    run.add_argument("--dtypes", help="only these: A,B,...")
    run.add_argument("--batches", help="only these: A,B,...")
    run.add_argument("--every", type=int, default=1, help="only every so many-th workload")
    run.add_argument("--seed", type=int, default=1, help="of the inputs")
    run.add_argument("--results", type=Path, default=RESULTS, help="the folder of SUITE.jsonl")
    run.add_argument(
        "--again", action="store_true", help="a second run, into SUITE.again.jsonl: do they agree?"
    )
    run.add_argument("--start-method", default="forkserver", choices=("forkserver", "spawn"))
    run.add_argument("--commit", help="where the checkout has no history")
    report = commands.add_parser("report", help="tables and plots of what was measured")
    report.set_defaults(do=_report)
    report.add_argument("--results", type=Path, default=RESULTS, help="the folder")
    listing = commands.add_parser("list", help="suites and systems")
    listing.set_defaults(do=_list)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    start = time.monotonic()
    chosen = _chosen(arguments)
    if not chosen:
        print("no workload of the suite is left by these filters", file=sys.stderr)
        return 2
    names = arguments.systems.split(",")
    unknown = [name for name in names if name not in systems.names() and ":" not in name]
    if unknown:
        print(f"no such system: {', '.join(unknown)}; see `bench list`", file=sys.stderr)
        return 2
    plan = Plan(
        workloads=chosen,
        systems=tuple((name, _label(name)) for name in names),
        device=arguments.device,
        results=arguments.results,
        ending=".again.jsonl" if arguments.again else ".jsonl",
        commit=arguments.commit or _commit(),
        command=_command(arguments),
        jobs=arguments.jobs or max(1, len(os.sched_getaffinity(0)) - 2),
        limit_s=arguments.limit_s,
        phase_limit_s=arguments.phase_limit_s,
        seed=arguments.seed,
        start_method=arguments.start_method,
    )
    if arguments.start_method == "forkserver":
        begin_preloading(names)  # while this machine is looked at
    machine = probe(names)
    print(f"{machine.gpu_count} x {machine.gpu}, driver {machine.driver}, {machine.versions}")
    print(f"peaks {dict(machine.peak_flops)}, copy {machine.copy_bandwidth}")
    runner = Runner(plan, machine, lambda line: print(line, flush=True), start)
    done = runner.done() if arguments.resume else {}
    runner.run([key for key, r in done.items() if r.status == "ok" or not arguments.retry])
    return 0


def _chosen(arguments: argparse.Namespace) -> tuple[Workload, ...]:
    fitting = suites.choose(
        arguments.suite.split(","),
        name=_words(arguments.workloads),
        family=_words(arguments.families),
        dtype=_words(arguments.dtypes),
        batch=_words(arguments.batches),
    )
    return fitting[:: arguments.every]


def _words(text: str | None) -> list[str] | None:
    return None if text is None else text.split(",")


def _command(arguments: argparse.Namespace) -> str:
    """What to type for the same measurement; where its results go is no part of it."""
    parts = ["python -m bench run"]
    for name in ("suite", "systems", "device", "workloads", "families", "dtypes", "batches"):
        value = getattr(arguments, name)
        parts += [f"--{name} {value}"] if value is not None else []
    return " ".join(parts)


def _label(name: str) -> tuple[str, str]:
    system = systems.load_system(name)
    return system.name, system.variant


def _commit() -> str:
    command = ("git", "describe", "--always", "--dirty", "--abbrev=12")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def _report(arguments: argparse.Namespace) -> int:
    from bench.report import main as write_report

    for path in write_report(arguments.results):
        print(path)
    return 0


def _list(_: argparse.Namespace) -> int:
    for name in suites.names():
        suite = suites.load_suite(name)
        print(f"{name}: {len(suite.workloads())} workloads; {suite.SOURCE}")
    print("systems:", " ".join(systems.names()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
