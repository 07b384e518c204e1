"""``tvm-tile run``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tvm_tile.cli.inputs import add_inputs, random_inputs_of, read_inputs
from tvm_tile.cli.model import add_compiled_command, open_model
from tvm_tile.cli.verbosity import tell
from tvm_tile.errors.arguments import check_output


def add(commands: Any) -> None:
    """Tell the parser of the command."""
    text = "Run a model and describe its outputs."
    sub = add_compiled_command(commands, "run", run, text)
    add_inputs(sub)
    sub.add_argument("-o", "--output", type=Path, help="write the outputs to this .npz")
    sub.add_argument("--time", action="store_true", help="also measure one call")


def run(arguments: argparse.Namespace) -> None:
    """Run a model, and describe, write and time what it returns."""
    from tvm_tile.cli.arrays import describe_array, write_arrays

    if arguments.output is not None:
        check_output(arguments.output)
    files = read_inputs(arguments)
    model = open_model(arguments)
    values = files or random_inputs_of(model, arguments)
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
