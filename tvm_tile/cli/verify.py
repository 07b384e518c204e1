"""``tvm-tile verify``."""

from __future__ import annotations

import argparse
from typing import Any

from tvm_tile.cli.model import SAVED_SUFFIX, SOURCE, add_model_command, add_options, open_model
from tvm_tile.cli.status import ExitStatus
from tvm_tile.errors import ModelError


def add(commands: Any) -> None:
    """Tell the parser of the command."""
    text = "Compare each kernel, and the whole, with others' results."
    add_options(add_model_command(commands, "verify", run, text, SOURCE))


def run(arguments: argparse.Namespace) -> ExitStatus:
    """Compile a model, and compare what it computes with what others compute."""
    if arguments.model.suffix == SAVED_SUFFIX:
        raise ModelError(
            "a model is verified where it is compiled",
            str(arguments.model),
            "pass the file that it was made from",
        )
    found = open_model(arguments).verify()
    print(found.render())
    return ExitStatus.RIGHT if found.is_right else ExitStatus.DIFFERS
