"""Check every architecture behind ``torch.compile``, and report.

Usage: python -m bench.backend_models [--only bert] [--workers 2] [--retry]

Writes bench/results/backend_models.jsonl and .md. Interrupted, it goes on where it stopped;
``--retry`` runs again what was wrong or died, ``--fresh`` everything that it is asked for.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from bench.__main__ import commit
from bench.architectures.zoo import architectures
from bench.backend_models.check import Verdict, make_worker
from bench.backend_models.report import write
from bench.survey import Survey, add_arguments

RESULTS = Path(__file__).parents[1] / "results" / "backend_models.jsonl"


def main() -> int:
    """Parse the command line and do what it says; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser, RESULTS)
    arguments = parser.parse_args()
    at = commit()

    def died(key: str, why: str, seconds: float) -> Verdict:
        return Verdict(key, "died", why, None, 0, 0, 0, (), seconds, at)

    survey = Survey(_revived, str, died, good=frozenset({"right"}))
    keys = [one.key for one in architectures() if arguments.only in one.key]
    survey.run(partial(make_worker, at), keys, arguments)
    write(arguments.results.with_suffix(".md"), survey.read(arguments.results))
    return 0


def _revived(line: dict[str, object]) -> Verdict:
    return Verdict(**{**line, "eager": tuple(line["eager"])})


if __name__ == "__main__":
    sys.exit(main())
