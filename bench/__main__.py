"""Measure, and report what was measured.

python -m bench run --suite ops --systems tvm_tile,torch,dlight [--limit-s 600] [--resume]
python -m bench traffic --suite models --systems tvm_tile,tvm_tile_unfused
python -m bench code --suite models --devices amd/mi300x,amd/rx9070xt --batches 1
python -m bench compare main~5 --suite ops,gemm
python -m bench decisions --devices nvidia/h200,emulated [--update]
python -m bench fuzz --seed 0 --count 500 --device emulated
python -m bench report [--results bench/results]
python -m bench predictions [--results bench/results]
python -m bench list
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import decisions, suites, systems
from bench.code import record as code
from bench.code.build import Builds
from bench.compare import command as comparison
from bench.fuzz import arguments as fuzz_arguments
from bench.machine import probe
from bench.runner import Plan, Runner, begin_preloading
from bench.systems.tvm_tile import TvmTile
from bench.traffic.measure import Measurement
from bench.traffic.ncu import CACHE_CONTROLS
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
    _add_plan(run)
    run.add_argument("--resume", action="store_true", help="leave out what is already measured")
    run.add_argument("--retry", action="store_true", help="with --resume: failures once more")
    run.add_argument(
        "--again", action="store_true", help="a second run, into SUITE.again.jsonl: do they agree?"
    )
    run.add_argument("--start-method", default="forkserver", choices=("forkserver", "spawn"))
    traffic = commands.add_parser(
        "traffic", help="bytes to and from the GPU's memory, by Nsight Compute; ours only"
    )
    traffic.set_defaults(do=_traffic)
    _add_plan(traffic)
    traffic.add_argument(
        "--cache-control",
        default=",".join(CACHE_CONTROLS),
        help="all: caches are emptied before each kernel; none: never; by default one run of each",
    )
    traffic.add_argument("--ncu", default="ncu", help="the program, where it is not on the path")
    coding = commands.add_parser(
        "code", help="compile for devices, present or not: what the machine code takes of them"
    )
    coding.set_defaults(do=_code)
    coding.add_argument("--devices", required=True, help="records: A,B,...")
    _add_filters(coding)
    coding.add_argument("--commit", help="where the checkout has no history")
    coding.add_argument("--results", type=Path, default=RESULTS, help="the folder of code.jsonl")
    comparing = commands.add_parser(
        "compare", help="two commits: which kernels, predictions and times differ"
    )
    comparing.set_defaults(do=_compare)
    comparison.add_arguments(comparing)
    _add_filters(comparing, comparison.KERNELS)
    deciding = commands.add_parser(
        "decisions", help="networks of few layers: which tiles and times are others than before"
    )
    deciding.set_defaults(do=_decisions)
    decisions.add_arguments(deciding)
    _add_filters(deciding, "shallow")
    fuzzing = commands.add_parser(
        "fuzz", help="random graphs: compiled, compared with PyTorch, shrunk where they are wrong"
    )
    fuzzing.set_defaults(do=_fuzz)
    fuzz_arguments.add_arguments(fuzzing, RESULTS)
    _add_tables(commands)
    return parser


def _add_tables(commands: Any) -> None:
    """Commands that look at what there is, and measure nothing."""
    report = commands.add_parser("report", help="tables and plots of what was measured")
    report.set_defaults(do=_report)
    report.add_argument("--results", type=Path, default=RESULTS, help="the folder")
    guessing = commands.add_parser(
        "predictions", help="how well times of what was measured are predicted"
    )
    guessing.set_defaults(do=_predictions)
    guessing.add_argument("--results", type=Path, default=RESULTS, help="the folder")
    listing = commands.add_parser("list", help="suites and systems")
    listing.set_defaults(do=_list)


def _add_plan(parser: argparse.ArgumentParser) -> None:
    """What to measure, and within which limits."""
    _add_filters(parser)
    parser.add_argument("--systems", required=True, help="A,B,... of " + " ".join(systems.names()))
    parser.add_argument("--device", default="nvidia/h200", help="the record to compile for")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="for the whole run")
    parser.add_argument(
        "--phase-limit-s", type=float, default=120.0, help="to compile or time one workload once"
    )
    parser.add_argument("--jobs", type=int, help="workloads compiled at once; by default all cores")
    parser.add_argument("--seed", type=int, default=1, help="of the inputs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of SUITE.jsonl")
    parser.add_argument("--commit", help="where the checkout has no history")


def _add_filters(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Which workloads; of which suites must be said unless there is a ``default``."""
    known = "A,B,... of " + " ".join(suites.names())
    parser.add_argument("--suite", required=default is None, default=default, help=known)
    parser.add_argument("--workloads", help="only these: A,B,...")
    parser.add_argument("--families", help="only these: A,B,...")
    parser.add_argument("--dtypes", help="only these: A,B,...")
    parser.add_argument("--batches", help="only these: A,B,...")
    parser.add_argument("--contexts", help="only with so many tokens in the cache: A,B,...")
    parser.add_argument("--every", type=int, default=1, help="only every so many-th workload")


def _plan(arguments: argparse.Namespace, command: str) -> Plan | None:
    """What the arguments of :func:`_add_plan` say; None, and a message, where they are wrong."""
    chosen = _chosen(arguments)
    if not chosen:
        print("no workload of the suite is left by these filters", file=sys.stderr)
        return None
    names = arguments.systems.split(",")
    unknown = [name for name in names if name not in systems.names() and ":" not in name]
    if unknown:
        print(f"no such system: {', '.join(unknown)}; see `bench list`", file=sys.stderr)
        return None
    return Plan(
        workloads=chosen,
        systems=tuple((name, _label(name)) for name in names),
        device=arguments.device,
        results=arguments.results,
        commit=arguments.commit or commit(),
        command=_command(arguments, command),
        jobs=arguments.jobs or max(1, len(os.sched_getaffinity(0)) - 2),
        limit_s=arguments.limit_s,
        phase_limit_s=arguments.phase_limit_s,
        seed=arguments.seed,
    )


def _run(arguments: argparse.Namespace) -> int:
    start = time.monotonic()
    plan = _plan(arguments, "run")
    if plan is None:
        return 2
    ending = ".again.jsonl" if arguments.again else ".jsonl"
    plan = replace(plan, ending=ending, start_method=arguments.start_method)
    names = [name for name, _ in plan.systems]
    if arguments.start_method == "forkserver":
        begin_preloading(names)  # while this machine is looked at
    machine = probe(names)
    print(f"{machine.gpu_count} x {machine.gpu}, driver {machine.driver}, {machine.versions}")
    print(f"peaks {dict(machine.peak_flops)}, copy {machine.copy_bandwidth}")
    runner = Runner(plan, machine, lambda line: print(line, flush=True), start)
    done = runner.done() if arguments.resume else {}
    runner.run([key for key, r in done.items() if r.status == "ok" or not arguments.retry])
    return 0


def _traffic(arguments: argparse.Namespace) -> int:
    start = time.monotonic()
    plan = _plan(arguments, "traffic")
    if plan is None:
        return 2
    names = [name for name, _ in plan.systems]
    foreign = [name for name in names if not isinstance(systems.load_system(name), TvmTile)]
    if foreign:
        print(f"only of systems of ours, and not of {', '.join(foreign)}", file=sys.stderr)
        return 2
    caches = tuple(arguments.cache_control.split(","))
    if not set(caches) <= set(CACHE_CONTROLS):
        print(f"--cache-control is of {', '.join(CACHE_CONTROLS)}", file=sys.stderr)
        return 2
    if shutil.which(arguments.ncu) is None:
        print(f"{arguments.ncu} is not there: Nsight Compute is needed, see --ncu", file=sys.stderr)
        return 2
    machine = probe(names, with_peaks=False)
    measurement = Measurement(plan, machine, arguments.ncu, caches)
    measurement.run(lambda line: print(line, flush=True), start)
    return 0


def _code(arguments: argparse.Namespace) -> int:
    chosen = _chosen(arguments)
    if not chosen:
        print("no workload of the suite is left by these filters", file=sys.stderr)
        return 2
    devices = arguments.devices.split(",")
    builds = Builds(chosen, devices, arguments.commit or commit(), _command(arguments, "code"))
    for record in builds.records(lambda line: print(line, flush=True)):
        code.store(arguments.results / code.FILE, record)
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    return _of_chosen(arguments, comparison.run)


def _decisions(arguments: argparse.Namespace) -> int:
    return _of_chosen(arguments, decisions.run)


def _of_chosen(
    arguments: argparse.Namespace, run: Callable[[argparse.Namespace, Sequence[Workload]], int]
) -> int:
    chosen = _chosen(arguments)
    if not chosen:
        print("no workload of the suites is left by these filters", file=sys.stderr)
        return 2
    return run(arguments, chosen)


def _chosen(arguments: argparse.Namespace) -> tuple[Workload, ...]:
    fitting = suites.choose(
        arguments.suite.split(","),
        name=_words(arguments.workloads),
        family=_words(arguments.families),
        dtype=_words(arguments.dtypes),
        batch=_words(arguments.batches),
        context=_words(arguments.contexts),
    )
    return fitting[:: arguments.every]


def _words(text: str | None) -> list[str] | None:
    return None if text is None else text.split(",")


def _command(arguments: argparse.Namespace, command: str) -> str:
    """What to type for the same measurement; where its results go is no part of it."""
    parts = [f"python -m bench {command}"]
    filters = ("workloads", "families", "dtypes", "batches", "contexts")
    for name in ("suite", "systems", "device", "devices", *filters):
        value = getattr(arguments, name, None)
        parts += [f"--{name} {value}"] if value is not None else []
    return " ".join(parts)


def _label(name: str) -> tuple[str, str]:
    system = systems.load_system(name)
    return system.name, system.variant


def commit() -> str:
    """What this checkout is at."""
    command = ("git", "describe", "--always", "--dirty", "--abbrev=12")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def _fuzz(arguments: argparse.Namespace) -> int:
    from bench.fuzz.command import run

    return run(arguments, arguments.commit or commit())


def _report(arguments: argparse.Namespace) -> int:
    from bench.report import main as write_report

    for path in write_report(arguments.results):
        print(path)
    return 0


def _predictions(arguments: argparse.Namespace) -> int:
    from bench.report import predictions
    from bench.report.data import load
    from bench.report.markdown import join

    found = load(arguments.results)
    print(join(predictions.section(found), *map(predictions.fronts, found)), end="")
    return 0


def _list(_: argparse.Namespace) -> int:
    for name in suites.names():
        suite = suites.load_suite(name)
        print(f"{name}: {len(suite.workloads())} workloads; {suite.SOURCE}")
    print("systems:", " ".join(systems.names()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
