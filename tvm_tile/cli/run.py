"""``tvm-tile run``."""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tvm_tile.cli.inputs import add_inputs, random_inputs_of, read_inputs
from tvm_tile.cli.model import add_compiled_command, open_model
from tvm_tile.cli.verbosity import tell
from tvm_tile.errors.arguments import check_output
from tvm_tile.files.whole_file import replacing


def add(commands: Any) -> None:
    """Tell the parser of the command."""
    text = "Run a model and describe its outputs."
    sub = add_compiled_command(commands, "run", run, text)
    add_inputs(sub)
    sub.add_argument("-o", "--output", type=Path, help="write the outputs to this .npz")
    sub.add_argument("--time", action="store_true", help="also measure one call")


def run(arguments: argparse.Namespace) -> None:
    """Run a model, and describe, write and time what it returns."""
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


def describe_array(value: Any) -> str:
    """Type, shape and range of an array, for people."""
    shape = "x".join(map(str, value.shape)) or "scalar"
    text = f"{value.dtype} {shape}"
    if value.size == 0:
        return text
    numbers = value.astype("float64")
    return f"{text}, from {numbers.min():.6g} to {numbers.max():.6g}, mean {numbers.mean():.6g}"


def write_arrays(arrays: Mapping[str, Any], path: Path) -> None:
    """Write a .npz file, whole or not at all; any name will do, unlike with ``numpy.savez``.

    Raises:
        OSError: the file cannot be written.
    """
    import numpy as np

    with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
