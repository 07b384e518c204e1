"""Messages on standard error, fewer or more: ``--quiet`` and ``--verbose``."""

from __future__ import annotations

import argparse
import sys
from enum import Enum


class Verbosity(Enum):
    """How much is told beside results and errors."""

    QUIET = "quiet"
    """Nothing."""
    NORMAL = "normal"
    """How far the command is, and what should be known of its results."""
    VERBOSE = "verbose"
    """Also each kernel on a line of its own, each stage's seconds, and errors' tracebacks."""


def add_verbosity(parser: argparse.ArgumentParser) -> None:
    """Give a command the options ``--quiet`` and ``--verbose``."""
    parser.set_defaults(verbosity=Verbosity.NORMAL)
    either = parser.add_mutually_exclusive_group()
    texts = {
        Verbosity.QUIET: "tell nothing but results and errors",
        Verbosity.VERBOSE: "tell of each kernel and stage, and where errors came from",
    }
    for verbosity, text in texts.items():
        either.add_argument(
            f"-{verbosity.value[0]}",
            f"--{verbosity.value}",
            dest="verbosity",
            action="store_const",
            const=verbosity,
            default=argparse.SUPPRESS,
            help=text,
        )


def tell(text: str, verbosity: Verbosity) -> None:
    """Print a line on standard error, unless the user wants quiet."""
    if verbosity is not Verbosity.QUIET:
        print(text, file=sys.stderr, flush=True)
