"""``tvm-tile run``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_tile.cli.model import (
    SOURCE_OR_SAVED,
    add_model_command,
    add_options,
    add_verify_key,
    count,
    open_model,
)
from tvm_tile.cli.output import check_output
from tvm_tile.cli.shapes import EXTENT, named_extent
from tvm_tile.cli.verbosity import tell
from tvm_tile.errors import InputError

if TYPE_CHECKING:
    from tvm_tile.runtime import CompiledModel


def add(commands: Any) -> None:
    """Tell the parser of the command."""
    text = "Run a model and describe its outputs."
    sub = add_model_command(commands, "run", run, text, SOURCE_OR_SAVED)
    add_options(sub)
    add_verify_key(sub)
    sub.add_argument(
        "--input-file",
        dest="input_files",
        type=Path,
        action="append",
        default=[],
        metavar="X.npy",
        help="one file an input, in order; without any, random inputs",
    )
    sub.add_argument("--seed", type=count(0), default=0, help="of the random inputs")
    sub.add_argument(
        "--extent",
        dest="extents",
        type=named_extent,
        action="append",
        default=[],
        metavar=EXTENT,
        help="an open extent of the random inputs, by default the greatest; may be repeated",
    )
    sub.add_argument("-o", "--output", type=Path, help="write the outputs to this .npz")
    sub.add_argument("--time", action="store_true", help="also measure one call")


def run(arguments: argparse.Namespace) -> None:
    """Run a model, and describe, write and time what it returns."""
    from tvm_tile.cli.arrays import describe_array, read_array, write_arrays

    if arguments.output is not None:
        check_output(arguments.output)
    files = [read_array(path) for path in arguments.input_files]
    if files and arguments.extents:
        raise InputError(
            "--extent is of random inputs", "--input-file was given", "leave one of them out"
        )
    model = open_model(arguments)
    values = files or _random_inputs(model, arguments)
    results = model(*values)
    if model.is_emulated:
        tell("emulated: the CPU runs the GPU's kernels, slowly", arguments.verbosity)
    results = results if isinstance(results, tuple) else (results,)
    named = {
        signature.name: result for signature, result in zip(model.outputs, results, strict=True)
    }
    for name, result in named.items():
        print(f"{name}: {describe_array(result)}")
    if arguments.output is not None:
        write_arrays(named, arguments.output)
    if arguments.time:
        timing = model.time(*values)
        where = ", emulated, which says nothing about any GPU" if model.is_emulated else ""
        spread = f"(spread {timing.iqr_s * 1e3:.3f} ms)"
        print(f"one call{where}: {timing.median_s * 1e3:.3f} ms {spread}")


def _random_inputs(model: CompiledModel, arguments: argparse.Namespace) -> list[Any]:
    from tvm_tile.runtime.extents import settled
    from tvm_tile.runtime.random_inputs import random_inputs

    return random_inputs(settled(model.inputs, dict(arguments.extents)), arguments.seed)
