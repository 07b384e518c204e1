"""The command ``tvm-tile``: compile | run | explain | verify | schedule | sign | devices...."""

from __future__ import annotations

import argparse
import difflib
import functools
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tvm_tile._version import __version__
from tvm_tile.cli_devices import check_output, list_devices, measure_device
from tvm_tile.cli_shapes import EXTENT, SHAPE, named_extent, named_shape
from tvm_tile.errors import InputError, ModelError, TileError
from tvm_tile.plan.detail import DETAILS, SORTS, check_word

if TYPE_CHECKING:
    from tvm_tile.options import Options
    from tvm_tile.runtime import CompiledModel

_SAVED_SUFFIX = ".tvmtile"
_EXIT_OK = 0
_EXIT_DIFFERS = 1
_EXIT_ERROR = 2  # as argparse does
_EXIT_INTERRUPTED = 128 + signal.SIGINT  # as shells do


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the words after the program's name; those of this process by default.

    Returns:
        The exit status: 0; 1 where ``verify`` found that something differs; 2 after an error that
        was explained on standard error. Ctrl-C ends the process with 130, if the words are those
        of the process.
    """
    if argv is None:
        # An exception might be taken for a failure of whatever TVM was just calling.
        signal.signal(signal.SIGINT, _interrupted)
    try:
        arguments = _parser().parse_args(argv)
        status: int | None = arguments.run(arguments)
    except TileError as error:
        print(f"tvm-tile: error: {error}", file=sys.stderr)
        return _EXIT_ERROR
    except BrokenPipeError:
        # `tvm-tile explain ... | head`: the reader has seen enough. Python would complain
        # again when it flushes standard output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = None
    except OSError as error:
        print(f"tvm-tile: error: {error}", file=sys.stderr)
        return _EXIT_ERROR
    return status or 0


def _interrupted(_signal: int, _frame: object) -> NoReturn:
    # \x1b[?25h: the progress bar hides the cursor. Files are whole or not there at all.
    show_cursor = "\r\x1b[K\x1b[?25h" if sys.stderr.isatty() else ""
    os.write(2, f"{show_cursor}tvm-tile: interrupted\n".encode())
    os._exit(_EXIT_INTERRUPTED)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tvm-tile", description="Compile neural networks for GPUs, without tuning."
    )
    parser.add_argument("--version", action="version", version=f"tvm-tile {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = functools.partial(_add_command, commands)
    source = "an ONNX file, one that torch.export.save wrote (.pt2), or a saved Relay program"
    either = "an ONNX, .pt2 or Relay file, or a saved model (.tvmtile)"
    sub = command("compile", _compile, "Compile a model and save it.", source)
    _add_options(sub)
    sub.add_argument("-o", "--output", type=Path, help="default: the model's name, .tvmtile")
    sub.add_argument("--key", type=Path, help="sign it with this Ed25519 private key (PEM)")

    sub = command("run", _run, "Run a model and describe its outputs.", either)
    _add_options(sub)
    _add_verify_key(sub)
    sub.add_argument(
        "--input-file",
        dest="input_files",
        type=Path,
        action="append",
        default=[],
        metavar="X.npy",
        help="one file an input, in order; without any, random inputs",
    )
    sub.add_argument("--seed", type=_count(0), default=0, help="of the random inputs")
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

    text = "Tell what a run takes, which parts of the model take most, and why."
    sub = command("explain", _explain, text, either)
    _add_options(sub)
    _add_verify_key(sub)
    sub.add_argument("--detail", default="summary", metavar="WHAT", help=", ".join(DETAILS))
    sub.add_argument("--sort", default="time", metavar="HOW", help=", ".join(SORTS))
    sub.add_argument("--json", action="store_true", help="for other programs")
    sub.add_argument("--svg", type=Path, help="also draw which functions became one kernel")
    sub.add_argument("--svg-extents", type=Path, help="also draw times over open extents")

    sub = command(
        "verify", _verify, "Compare each kernel, and the whole, with others' results.", source
    )
    _add_options(sub)

    sub = command("schedule", _schedule, "Print the TensorIR of the kernels.", source)
    sub.add_argument("--kernel", help="only this one")

    _add_others(commands)
    return parser


def _add_others(commands: Any) -> None:
    """The commands that compile no model."""
    sub = commands.add_parser("sign", help="Sign a saved model, in its place.")
    sub.set_defaults(run=_sign)
    sub.add_argument("model", type=Path, help="a saved model (.tvmtile)")
    sub.add_argument("--key", type=Path, required=True, help="an Ed25519 private key (PEM)")

    commands.add_parser("devices", help="List known devices.").set_defaults(run=list_devices)

    sub = commands.add_parser("calibrate", help="Measure the GPU and write its device record.")
    sub.set_defaults(run=measure_device)
    sub.add_argument(
        "-o", "--output", type=Path, help="default: the device's name, such as nvidia_h200.json"
    )
    sub.add_argument("--repeats", type=_count(1), default=15, help="of each measurement (15)")
    sub.add_argument(
        "--fit",
        action="store_true",
        help="measure tiles, too, for a few minutes, and fit the kernels' time models to them",
    )


def _add_command(
    commands: Any, name: str, run: Any, help_text: str, model_help: str
) -> argparse.ArgumentParser:
    """A command on a model."""
    sub = commands.add_parser(name, help=help_text, description=help_text)
    sub.set_defaults(run=run)
    sub.add_argument("model", type=Path, help=model_help)
    sub.add_argument(
        "--device",
        help="such as nvidia/h200, or the file of a record that `tvm-tile calibrate` wrote; "
        'by default "auto", the GPU that is present',
    )
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


def _add_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--tf32", action="store_true", help="let tensor cores round float32 operands")
    sub.add_argument(
        "--low-bit", action="store_true", help="keep weights that arrive as codes of a few bits so"
    )
    sub.add_argument(
        "--topk", type=_count(0), help="measure so many schedules of each kernel on the GPU"
    )
    sub.add_argument(
        "--max-loss",
        type=float,
        metavar="SHARE",
        help="by how much tiles may be slower than the best at any open extent (0.02)",
    )
    sub.add_argument("--cache", help="a folder for schedules and machine code, or: none")


def _add_verify_key(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--verify-key", type=Path, help="an Ed25519 public key (PEM): refuse what it has not signed"
    )


def _count(least: int) -> Callable[[str], int]:
    def count(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} on")
        return int(text)

    return count


def _compile(arguments: argparse.Namespace) -> None:
    output = arguments.output or Path(arguments.model.stem + _SAVED_SUFFIX)
    check_output(output)
    if arguments.model.suffix == _SAVED_SUFFIX:
        raise ModelError(
            "the model must not be compiled yet", str(arguments.model), "pass the ONNX file"
        )
    model = _open_model(arguments)
    model.save(output, key=arguments.key)
    kernels, size = len(model.report.kernels), _size(output.stat().st_size)
    print(f"{output}: {kernels} kernels for {model.device_name}, {size}")


def _size(count: float) -> str:
    """Bytes for people, to three digits."""
    for unit in ("bytes", "KB", "MB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} GB"


def _sign(arguments: argparse.Namespace) -> None:
    from tvm_tile.runtime.artifact import sign

    sign(arguments.model, arguments.key)
    print(f"{arguments.model}: signed")


def _run(arguments: argparse.Namespace) -> None:
    from tvm_tile.cli_arrays import describe_array, read_array, write_arrays

    if arguments.output is not None:
        check_output(arguments.output)
    files = [read_array(path) for path in arguments.input_files]
    if files and arguments.extents:
        raise InputError(
            "--extent is of random inputs", "--input-file was given", "leave one of them out"
        )
    model = _open_model(arguments)
    values = files or _random_inputs(model, arguments)
    results = model(*values)
    if model.is_emulated:
        print("emulated: the CPU runs the GPU's kernels, slowly", file=sys.stderr)
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


def _explain(arguments: argparse.Namespace) -> None:
    from tvm_tile.plan.report import Report
    from tvm_tile.plan.report_json import json_of

    check_word("--detail", arguments.detail, DETAILS)
    check_word("--sort", arguments.sort, SORTS)
    asked = (arguments.svg, Report.draw), (arguments.svg_extents, Report.draw_extents)
    drawings = [(path, draw) for path, draw in asked if path is not None]
    for path, _ in drawings:
        check_output(path)
    model = _open_model(arguments)
    for path, draw in drawings:
        path.write_text(draw(model.report), encoding="utf-8")
    if arguments.json:
        print(json_of(model.report, arguments.sort))
    else:
        print(model.explain(arguments.detail, sort=arguments.sort))


def _verify(arguments: argparse.Namespace) -> int:
    if arguments.model.suffix == _SAVED_SUFFIX:
        raise ModelError(
            "a model is verified where it is compiled",
            str(arguments.model),
            "pass the file that it was made from",
        )
    found = _open_model(arguments).verify()
    print(found.render())
    return _EXIT_OK if found.is_right else _EXIT_DIFFERS


def _schedule(arguments: argparse.Namespace) -> None:
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


def _open_model(arguments: argparse.Namespace) -> CompiledModel:
    """Load a saved model, or compile any other, with its progress on standard error."""
    import tvm_tile
    from tvm_tile.progress import ConsoleProgress

    key = getattr(arguments, "verify_key", None)
    if arguments.model.suffix == _SAVED_SUFFIX:
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
    with ConsoleProgress() as progress:
        return tvm_tile.compile(
            arguments.model,
            device=arguments.device or "auto",
            inputs=dict(arguments.inputs) or None,
            params=arguments.params,
            options=_options(arguments),
            progress=progress,
        )


def _for_compiling(arguments: argparse.Namespace) -> Iterator[str]:
    """What was given that a compiled model cannot heed."""
    if arguments.inputs:
        yield "--input"
    for name in ("device", "params", "tf32", "low_bit", "topk", "max_loss", "cache"):
        given = getattr(arguments, name, None)
        if given is not None and given is not False:  # 0 is a value
            yield f"--{name.replace('_', '-')}"


def _options(arguments: argparse.Namespace) -> Options:
    from tvm_tile.options import Options

    given = {name: getattr(arguments, name) for name in ("topk", "max_loss", "cache")}
    given = {name: value for name, value in given.items() if value is not None}
    if given.get("cache") == "none":
        given["cache"] = False
    return Options(tf32=arguments.tf32, low_bit=arguments.low_bit, **given)


if __name__ == "__main__":
    sys.exit(main())
