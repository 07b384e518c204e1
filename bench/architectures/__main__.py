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
from bench.survey import Survey, add_arguments

RESULTS = Path(__file__).parents[1] / "results" / "architectures.jsonl"


def main() -> int:
    """Parse the command line and do what it says; the exit status."""
    arguments = _arguments()
    wanted = [
        (architecture.key, device)
        for architecture in architectures()
        for device in arguments.devices.split(",")
        if arguments.only in architecture.key
    ]
    at = commit()

    def died(key: tuple[str, str], why: str, seconds: float) -> Verdict:
        return Verdict(*key, "died", why, None, 0, (), seconds, at)

    survey = Survey(_revived, " ".join, died, good=frozenset({"right", "compiled"}))
    survey.run(partial(make_worker, at), wanted, arguments)
    write(arguments.results.with_suffix(".md"), survey.read(arguments.results))
    return 0


def _revived(line: dict[str, object]) -> Verdict:
    return Verdict(**{**line, "fallbacks": tuple(line["fallbacks"])})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default=f"{EMULATED},{HALF_DEVICE}", help="A,B of these two")
    add_arguments(parser, RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
