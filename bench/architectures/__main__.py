"""Check every architecture, and report.

Usage: python -m bench.architectures [--only bert] [--devices emulated] [--workers 2] [--retry]

Writes bench/results/architectures.jsonl and .md. Interrupted, it goes on where it stopped;
``--retry`` runs again what was refused, wrong or died, ``--fresh`` everything that it is asked for.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from bench.__main__ import commit
from bench.architectures.check import EMULATED, HALF_DEVICE, Verdict, make_worker
from bench.architectures.report import write
from bench.architectures.zoo import architectures
from bench.isolated import Crash, run_jobs
from bench.lines import put, read_keyed

RESULTS = Path(__file__).parents[1] / "results" / "architectures.jsonl"
GOOD = frozenset({"right", "compiled"})


def main() -> int:
    """Parse the command line and do what it says; the exit status."""
    arguments = _arguments()
    known = read(arguments.results)
    wanted = [
        (architecture.key, device)
        for architecture in architectures()
        for device in arguments.devices.split(",")
        if arguments.only in architecture.key
    ]
    todo = [
        key
        for key in wanted
        if arguments.fresh
        or key not in known
        or (arguments.retry and known[key].status not in GOOD)
    ]
    at = commit()
    jobs = [" ".join(key) for key in todo]
    results = run_jobs(
        partial(make_worker, at), jobs, workers=arguments.workers, timeout=arguments.timeout
    )
    for count, (job, found) in enumerate(results, 1):
        verdict = found
        if isinstance(found, Crash):
            name, device = job.split()
            seconds = arguments.timeout
            verdict = Verdict(name, device, "died", str(found), None, 0, (), seconds, at)
        known = read(arguments.results)
        put(arguments.results, known, verdict)
        print(f"{count}/{len(jobs)} {job}: {verdict.status} {verdict.detail}", flush=True)
    write(arguments.results.with_suffix(".md"), read(arguments.results))
    return 0


def read(path: Path) -> dict[tuple[str, str], Verdict]:
    """The file's verdicts, by architecture and device."""
    return read_keyed(path, lambda line: Verdict(**{**line, "fallbacks": tuple(line["fallbacks"])}))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default=f"{EMULATED},{HALF_DEVICE}", help="A,B of these two")
    parser.add_argument("--only", default="", help="only those whose name contains this")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=400.0, help="seconds for one of them")
    parser.add_argument("--retry", action="store_true", help="run again what did not go well")
    parser.add_argument("--fresh", action="store_true", help="run again what was run before")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
