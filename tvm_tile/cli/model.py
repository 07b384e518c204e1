"""Arguments that all commands on a model share, and how they open it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tvm_tile.cli.completion import device_names
from tvm_tile.cli.shapes import SHAPE, named_shape
from tvm_tile.cli.spelling import in_words
from tvm_tile.cli.verbosity import Verbosity, tell
from tvm_tile.errors import InputError

if TYPE_CHECKING:
    from tvm_tile.options import Options
    from tvm_tile.runtime import CompiledModel

SAVED_SUFFIX = ".tvmtile"
SOURCE = "an ONNX file, one that torch.export.save wrote (.pt2), or a saved Relay program"
SOURCE_OR_SAVED = "an ONNX, .pt2 or Relay file, or a saved model (.tvmtile)"
_LOW_BIT: dict[str, bool | Literal["auto"]] = {"auto": "auto", "all": True, "none": False}


def add_model_command(
    commands: Any,
    name: str,
    run: Any,
    help_text: str,
    model_help: str,
    *,
    on_many: bool = False,
) -> argparse.ArgumentParser:
    """A command on a model; ``on_many`` devices, if it takes one after the other."""
    sub: argparse.ArgumentParser = commands.add_parser(name, help=help_text, description=help_text)
    sub.set_defaults(run=run)
    sub.add_argument("model", type=Path, help=model_help)
    device = sub.add_argument(
        "--device",
        action="append" if on_many else "store",
        help="such as nvidia/h200, the file of a record that `tvm-tile calibrate` wrote, cuda or "
        "rocm; by default auto, the GPU that is present" + "; may be repeated" * on_many,
    )
    device.completer = device_names  # type: ignore[attr-defined]  # where argcomplete looks
    sub.add_argument(
        "--input",
        dest="inputs",
        type=named_shape,
        action="append",
        default=[],
        metavar=SHAPE,
        help="fix the shape of an input, or leave extents open: tokens=1x[1:4096] from 1 to 4096, "
        "[32:4096:32] in steps of 32, [n=1:4096] equal to all others named n; may be repeated",
    )
    sub.add_argument(
        "--params", type=Path, help="a Relay program's parameters (relay.save_param_dict)"
    )
    return sub


def add_compiled_command(
    commands: Any, name: str, run: Any, help_text: str
) -> argparse.ArgumentParser:
    """A command on a model that is compiled for it, or was saved."""
    sub = add_model_command(commands, name, run, help_text, SOURCE_OR_SAVED)
    add_options(sub)
    add_verify_key(sub)
    return sub


def add_options(sub: argparse.ArgumentParser) -> None:
    """Give a command the options of a compilation."""
    sub.add_argument("--tf32", action="store_true", help="let tensor cores round float32 operands")
    sub.add_argument(
        "--low-bit",
        choices=_LOW_BIT,
        help="which weights that arrive as codes of a few bits stay so (auto: what is faster)",
    )
    sub.add_argument(
        "--zeros",
        choices=("multiply", "skip"),
        help="whether blocks of zeros among weights may be left out (multiply)",
    )
    sub.add_argument(
        "--topk", type=count(0), help="measure so many schedules of each kernel on the GPU"
    )
    sub.add_argument(
        "--max-loss",
        type=float,
        metavar="SHARE",
        help="by how much tiles may be slower than the best at any open extent (0.02)",
    )
    sub.add_argument("--cache", help="a folder for compiled models, or: none")


def add_verify_key(sub: argparse.ArgumentParser) -> None:
    """Give a command the option that wants saved models signed."""
    sub.add_argument(
        "--verify-key", type=Path, help="an Ed25519 public key (PEM): refuse what it has not signed"
    )


def count(least: int) -> Callable[[str], int]:
    """A reader of whole numbers from ``least`` on."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} on")
        return int(text)

    return read


def open_model(arguments: argparse.Namespace, *, shows_notes: bool = False) -> CompiledModel:
    """Load a saved model, or compile any other, with its progress on standard error.

    What should be known of the compilation is told there, too, unless the command ``shows_notes``
    itself, with the report.
    """
    import tvm_tile

    key = getattr(arguments, "verify_key", None)
    if arguments.model.suffix == SAVED_SUFFIX:
        if given := next(_for_compiling(arguments), ""):
            raise InputError(
                "a saved model has its device and its shapes already",
                f"{given} was given",
                f"leave {given} out, or pass the model that it was made from",
            )
        return tvm_tile.load(arguments.model, key=key)
    if key is not None:
        raise InputError(
            "saved models (.tvmtile) are signed, others are not",
            f"--verify-key was given for {arguments.model}",
            "leave it out, or pass a saved model",
        )
    model = _compiled(arguments)
    for note in () if shows_notes else model.report.notes:
        tell(f"note: {in_words(note)}", arguments.verbosity)
    return model


def _compiled(arguments: argparse.Namespace) -> CompiledModel:
    """Compile the model of a command."""
    import tvm_tile
    from tvm_tile.cli.progress import ConsoleProgress

    given: dict[str, Any] = {
        "device": arguments.device or "auto",
        "inputs": dict(arguments.inputs) or None,
        "params": arguments.params,
        "options": options_of(arguments),
    }
    if arguments.verbosity is Verbosity.QUIET:
        return tvm_tile.compile(arguments.model, **given)
    is_verbose = arguments.verbosity is Verbosity.VERBOSE
    with ConsoleProgress(lines=is_verbose) as progress:
        model = tvm_tile.compile(arguments.model, **given, progress=progress)
    if is_verbose:
        for stage in model.report.stages:
            tell(f"{stage.name}: {stage.seconds:.2f} s", arguments.verbosity)
    return model


def _for_compiling(arguments: argparse.Namespace) -> Iterator[str]:
    """Options that were given although a compiled model cannot heed them."""
    if arguments.inputs:
        yield "--input"
    for name in ("device", "params", "tf32", "low_bit", "zeros", "topk", "max_loss", "cache"):
        given = getattr(arguments, name, None)
        if given is not None and given is not False:  # 0 is a value
            yield f"--{name.replace('_', '-')}"


def options_of(arguments: argparse.Namespace) -> Options:
    """Compilation options of a command."""
    from tvm_tile.options import Options

    given = {name: getattr(arguments, name) for name in ("zeros", "topk", "max_loss", "cache")}
    given = {name: value for name, value in given.items() if value is not None}
    if given.get("cache") == "none":
        given["cache"] = False
    if arguments.low_bit is not None:
        given["low_bit"] = _LOW_BIT[arguments.low_bit]
    return Options(tf32=arguments.tf32, **given)
