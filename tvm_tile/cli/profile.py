"""``tvm-tile profile``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tvm_tile.cli.inputs import add_inputs, random_inputs_of, read_inputs
from tvm_tile.cli.model import add_compiled_command, count, open_model
from tvm_tile.cli.output import write_text
from tvm_tile.cli.verbosity import tell
from tvm_tile.errors.arguments import check_output


def add(commands: Any) -> None:
    """Tell the parser of the command."""
    text = "Measure each kernel of a run, beside what it was predicted to take."
    sub = add_compiled_command(commands, "profile", run, text)
    add_inputs(sub)
    sub.add_argument("--runs", type=count(1), default=10, help="that are measured (10)")
    sub.add_argument("--json", action="store_true", help="for other programs")
    sub.add_argument(
        "--veus", action="store_true", help="also when each rTask of persistent kernels runs"
    )
    sub.add_argument("--trace", type=Path, help="also write a trace for ui.perfetto.dev (.json)")


def run(arguments: argparse.Namespace) -> None:
    """Print what kernels of a model took, and write a trace if that was asked for."""
    from tvm_tile.cli.terminal import show

    if arguments.trace is not None:
        check_output(arguments.trace)
    files = read_inputs(arguments)
    model = open_model(arguments)
    values = files or random_inputs_of(model, arguments)
    profile = model.profile(*values, runs=arguments.runs, veus=arguments.veus)
    if model.is_emulated:
        tell("emulated: these times say nothing about any GPU", arguments.verbosity)
    if arguments.trace is not None:
        write_text(arguments.trace, profile.trace())
    if arguments.json:
        print(profile.to_json())
    else:
        show(profile.screen)
