"""The arguments of ``python -m bench fuzz``."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.fuzz.judge_doors import BOTH


def add_arguments(parser: argparse.ArgumentParser, results: Path) -> None:
    """Add them to a parser; ``results`` is the folder by default."""
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--count", type=int, default=100, help="graphs")
    parser.add_argument("--device", default="emulated", help="as in tvm_tile.compile")
    parser.add_argument(
        "--compile-only", action="store_true", help="for a GPU that is not here: nothing is run"
    )
    parser.add_argument("--open", action="store_true", help="one or two extents of inputs are open")
    parser.add_argument(
        "--door", choices=("torch", "onnx", BOTH), help="of all graphs; drawn for each by default"
    )
    parser.add_argument(
        "--no-special", action="store_true", help="leave NaN and infinities out of the inputs"
    )
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--timeout", type=float, default=90.0, help="seconds for one graph")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="for the whole run")
    parser.add_argument("--shrink-s", type=float, default=90.0, help="to shrink one graph")
    parser.add_argument("--again", action="store_true", help="only what was found before")
    parser.add_argument("--commit", help="where the checkout has no history")
    parser.add_argument("--results", type=Path, default=results, help="the folder of fuzz.jsonl")
