"""``tvm-tile explain``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tvm_tile.cli.model import add_compiled_command, open_model
from tvm_tile.cli.output import write_text
from tvm_tile.errors.arguments import check_output
from tvm_tile.report.detail import DETAILS, SORTS, check_word


def add(commands: Any) -> None:
    """Tell the parser of the command."""
    text = "Tell what a run takes, which parts of the model take most, and why."
    sub = add_compiled_command(commands, "explain", run, text)
    sub.add_argument("--detail", default="summary", metavar="WHAT", help=", ".join(DETAILS))
    sub.add_argument("--sort", default="time", metavar="HOW", help=", ".join(SORTS))
    sub.add_argument("--json", action="store_true", help="for other programs")
    sub.add_argument("--svg", type=Path, help="also draw which functions became one kernel")
    sub.add_argument("--svg-extents", type=Path, help="also draw times over open extents")


def run(arguments: argparse.Namespace) -> None:
    """Print a model's report, and draw what was asked for."""
    from tvm_tile.cli.terminal import show
    from tvm_tile.report.screen.report_json import json_of
    from tvm_tile.report.shown import Report

    check_word("--detail", arguments.detail, DETAILS)
    check_word("--sort", arguments.sort, SORTS)
    asked = (arguments.svg, Report.draw), (arguments.svg_extents, Report.draw_extents)
    drawings = [(path, draw) for path, draw in asked if path is not None]
    for path, _ in drawings:
        check_output(path)
    model = open_model(arguments, shows_notes=True)
    for path, draw in drawings:
        write_text(path, draw(model.report))
    if arguments.json:
        print(json_of(model.report, arguments.sort))
    else:
        told = arguments.detail
        show(lambda width: model.report.parts(told, sort=arguments.sort, width=width))
