"""``tvm-tile report``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tvm_tile.cli.model import add_compiled_command, open_model
from tvm_tile.errors.arguments import check_output


def add(commands: Any) -> None:
    """Tell the parser of the command."""
    text = "Write a page that shows a model's kernels, what they take, and why."
    sub = add_compiled_command(commands, "report", run, text)
    sub.add_argument("-o", "--output", type=Path, required=True, help="the HTML file to write")


def run(arguments: argparse.Namespace) -> None:
    """Write a model's page."""
    check_output(arguments.output)
    open_model(arguments).save_report(arguments.output, title=arguments.model.name)
