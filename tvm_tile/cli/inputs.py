"""The inputs that commands run a model with: files, or random ones."""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_tile.cli.model import count
from tvm_tile.cli.shapes import EXTENT, named_extent
from tvm_tile.errors import InputError

if TYPE_CHECKING:
    from tvm_tile.runtime import CompiledModel


def add_inputs(sub: argparse.ArgumentParser) -> None:
    """Give a command the options that say what a model is run with."""
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


def read_inputs(arguments: argparse.Namespace) -> list[Any]:
    """The arrays in the files that were given, none where there are none.

    Raises:
        InputError: a file cannot be read, or extents of random inputs were given, too.
    """
    files = [_array(path) for path in arguments.input_files]
    if files and arguments.extents:
        raise InputError(
            "--extent is of random inputs", "--input-file was given", "leave one of them out"
        )
    return files


def random_inputs_of(model: CompiledModel, arguments: argparse.Namespace) -> list[Any]:
    """Random arrays that a model takes, as the options say."""
    from tvm_tile.runtime.extents import settled
    from tvm_tile.runtime.random_inputs import random_inputs

    return random_inputs(settled(model.inputs, dict(arguments.extents)), arguments.seed)


def _array(path: Path) -> Any:
    """The array in a .npy file.

    Raises:
        InputError: the file cannot be read, or holds something else.
    """
    import numpy as np

    try:
        value = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError, SyntaxError, zipfile.BadZipFile) as error:
        raise InputError(
            "an input file must be a NumPy array",
            f"{path}: {error}",
            "write it with numpy.save(path, array)",
        ) from error
    if not isinstance(value, np.ndarray):
        raise InputError(
            "an input file must hold one array",
            f"{path} is an archive of several",
            "write one .npy file an input",
        )
    return value
