"""``tvm-tile schedule``."""

from __future__ import annotations

import argparse
import difflib
from typing import Any

from tvm_tile.cli.model import SOURCE, add_model_command
from tvm_tile.errors import InputError


def add(commands: Any) -> None:
    """Tell the parser of the command."""
    text = "Print the TensorIR of the kernels."
    sub = add_model_command(commands, "schedule", run, text, SOURCE)
    sub.add_argument("--kernel", help="only this one")


def run(arguments: argparse.Namespace) -> None:
    """Print the scheduled kernels of a model, or one of them."""
    from tvm_tile.compiling import schedule

    kernels = schedule(
        arguments.model,
        arguments.device or "auto",
        inputs=dict(arguments.inputs),
        params=arguments.params,
    )
    if arguments.kernel is not None:
        if arguments.kernel not in kernels:
            closest = difflib.get_close_matches(arguments.kernel, kernels, n=3, cutoff=0.3)
            raise InputError(
                "the kernel must be one of this model's",
                arguments.kernel,
                f"use {' or '.join(closest or list(kernels)[:3])}; "
                "`tvm-tile explain` lists all of them",
            )
        kernels = {arguments.kernel: kernels[arguments.kernel]}
    print("\n\n".join(kernels.values()))
