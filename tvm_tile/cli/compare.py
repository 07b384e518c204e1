"""``tvm-tile compare``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_tile.cli.inputs import add_inputs, random_inputs_of, read_inputs
from tvm_tile.cli.model import SAVED_SUFFIX, add_verify_key, count
from tvm_tile.errors import InputError

if TYPE_CHECKING:
    from tvm_tile.runtime import CompiledModel


def add(commands: Any) -> None:
    """Tell the parser of the command."""
    text = "Compare two saved models: what takes more time in the second one, and what less."
    sub: argparse.ArgumentParser = commands.add_parser("compare", help=text, description=text)
    sub.set_defaults(run=run)
    for name, which in (("first", "a"), ("second", "b")):
        sub.add_argument(name, type=Path, help=f"{which}: a saved model ({SAVED_SUFFIX})")
    add_verify_key(sub)
    sub.add_argument(
        "--runs", type=count(0), default=0, help="to measure; by default none: as predicted"
    )
    add_inputs(sub)


def run(arguments: argparse.Namespace) -> None:
    """Print what differs between two models."""
    import tvm_tile
    from tvm_tile.cli.terminal import show

    files = read_inputs(arguments)
    first, second = (
        _opened(path, arguments.verify_key) for path in (arguments.first, arguments.second)
    )
    compared: tuple[Any, ...] = first, second
    if arguments.runs:
        compared = tuple(
            model.profile(*(files or random_inputs_of(model, arguments)), runs=arguments.runs)
            for model in (first, second)
        )
    show(tvm_tile.compare(*compared).screen)


def _opened(path: Path, key: Path | None) -> CompiledModel:
    """A saved model, opened for a comparison."""
    import tvm_tile

    if path.suffix != SAVED_SUFFIX:
        raise InputError(
            f"models are compared as they were saved ({SAVED_SUFFIX})",
            str(path),
            "tvm-tile compile saves one",
        )
    return tvm_tile.load(path, key=key)
