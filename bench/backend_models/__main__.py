"""Check every architecture, or PyTorch's modules, behind ``torch.compile``, and report.

Usage: python -m bench.backend_models [--modules] [--only bert] [--workers 2] [--retry]

Writes bench/results/backend_models.jsonl and .md, or with ``--modules`` backend_modules.jsonl and
.md: modules are trained, too, and gradients compared. Interrupted, it goes on where it stopped;
``--retry`` runs again what was wrong or died, ``--fresh`` everything that it is asked for.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from bench.__main__ import commit
from bench.architectures.zoo import architectures
from bench.backend_models import modules
from bench.backend_models.check import Verdict, make_worker
from bench.backend_models.report import write
from bench.survey import Survey, add_arguments

RESULTS = Path(__file__).parents[1] / "results"


def main() -> int:
    """Parse the command line and do what it says; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modules", action="store_true", help="PyTorch's modules instead")
    add_arguments(parser, RESULTS / "backend_models.jsonl")
    arguments = parser.parse_args()
    if arguments.modules and arguments.results == parser.get_default("results"):
        arguments.results = RESULTS / "backend_modules.jsonl"
    at = commit()

    def died(key: str, why: str, seconds: float) -> Verdict:
        return Verdict(key, "died", why, None, 0, 0, 0, (), seconds, at)

    survey = Survey(_revived, str, died, good=frozenset({"right"}))
    keys = modules.keys() if arguments.modules else [one.key for one in architectures()]
    wanted = [key for key in keys if arguments.only in key]
    survey.run(partial(make_worker, at), wanted, arguments)
    write(arguments.results.with_suffix(".md"), survey.read(arguments.results))
    return 0


def _revived(line: dict[str, object]) -> Verdict:
    return Verdict(**{**line, "eager": tuple(line["eager"])})


if __name__ == "__main__":
    sys.exit(main())
