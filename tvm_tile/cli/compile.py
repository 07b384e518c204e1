"""``tvm-tile compile``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tvm_tile.cli.model import SAVED_SUFFIX, SOURCE, add_model_command, add_options, open_model
from tvm_tile.cli.output import describe_size
from tvm_tile.errors import ModelError
from tvm_tile.errors.arguments import check_output


def add(commands: Any) -> None:
    """Tell the parser of the command."""
    sub = add_model_command(commands, "compile", run, "Compile a model and save it.", SOURCE)
    add_options(sub)
    sub.add_argument("-o", "--output", type=Path, help="default: the model's name, .tvmtile")
    sub.add_argument("--key", type=Path, help="sign it with this Ed25519 private key (PEM)")


def run(arguments: argparse.Namespace) -> None:
    """Compile a model, and save it."""
    output = arguments.output or Path(arguments.model.stem + SAVED_SUFFIX)
    check_output(output)  # compiling can take minutes: better told before than after
    if arguments.model.suffix == SAVED_SUFFIX:
        raise ModelError(
            "the model must not be compiled yet", str(arguments.model), "pass the ONNX file"
        )
    model = open_model(arguments)
    model.save(output, key=arguments.key)
    kernels, size = len(model.report.kernels), describe_size(output.stat().st_size)
    print(f"{output}: {kernels} kernels for {model.device_name}, {size}")
