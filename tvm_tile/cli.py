"""The command ``tvm-tile``: compile | run | explain | schedule | devices | calibrate."""

from __future__ import annotations

import argparse
import difflib
import itertools
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_tile._version import __version__
from tvm_tile.device import Device, MemoryLevel, devices
from tvm_tile.device.record import SUFFIX, write_record
from tvm_tile.errors import InputError, ModelError, SavedModelError, TileError

if TYPE_CHECKING:
    from tvm_tile.runtime import CompiledModel

_SAVED_SUFFIX = ".tvmtile"
_EXIT_ERROR = 2  # as argparse does


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the words after the program's name; those of this process by default.

    Returns:
        The exit status: 0, or 2 after an error that was explained on standard error.
    """
    try:
        arguments = _parser().parse_args(argv)
        arguments.run(arguments)
    except TileError as error:
        print(f"tvm-tile: error: {error}", file=sys.stderr)
        return _EXIT_ERROR
    except BrokenPipeError:
        # `tvm-tile explain ... | head`: the reader has seen enough. Python would complain
        # again when it flushes standard output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"tvm-tile: error: {error}", file=sys.stderr)
        return _EXIT_ERROR
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tvm-tile", description="Compile neural networks for GPUs, without tuning."
    )
    parser.add_argument("--version", action="version", version=f"tvm-tile {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, help_text: str, model_help: str) -> argparse.ArgumentParser:
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
            type=_named_shape,
            action="append",
            default=[],
            metavar="NAME=1x3x320x320",
            help="fix the shape of an input; may be repeated",
        )
        return sub

    either = "an ONNX file, or a saved model (.tvmtile)"
    sub = command("compile", _compile, "Compile a model and save it.", "an ONNX file")
    sub.add_argument("-o", "--output", type=Path, help="default: the model's name, .tvmtile")

    sub = command("run", _run, "Run a model and describe its outputs.", either)
    sub.add_argument(
        "--input-file",
        dest="input_files",
        type=Path,
        action="append",
        default=[],
        metavar="X.npy",
        help="one file an input, in order; without any, random inputs",
    )
    sub.add_argument("--seed", type=int, default=0, help="of the random inputs")
    sub.add_argument("-o", "--output", type=Path, help="write the outputs to this .npz")
    sub.add_argument("--time", action="store_true", help="also measure one call")

    sub = command("explain", _explain, "Tell how each kernel was made and what it costs.", either)
    sub.add_argument("--svg", type=Path, help="also draw which functions became one kernel")

    sub = command("schedule", _schedule, "Print the TensorIR of the kernels.", "an ONNX file")
    sub.add_argument("--kernel", help="only this one")

    commands.add_parser("devices", help="List known devices.").set_defaults(run=_devices)

    sub = commands.add_parser("calibrate", help="Measure the GPU and write its device record.")
    sub.set_defaults(run=_calibrate)
    sub.add_argument(
        "-o", "--output", type=Path, help="default: the device's name, such as nvidia_h200.json"
    )
    sub.add_argument("--repeats", type=int, default=15, help="of each measurement (15)")
    return parser


def _named_shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, extents = text.rpartition("=")
    try:
        shape = tuple(int(extent) for extent in extents.split("x")) if extents else ()
    except ValueError:
        shape = (-1,)
    if not name or any(extent < 0 for extent in shape):
        raise argparse.ArgumentTypeError(f"{text!r} does not look like NAME=1x3x320x320")
    return name, shape


def _compile(arguments: argparse.Namespace) -> None:
    output = arguments.output or Path(arguments.model.stem + _SAVED_SUFFIX)
    _check_folder(output)
    if arguments.model.suffix == _SAVED_SUFFIX:
        raise ModelError(
            "the model must not be compiled yet", str(arguments.model), "pass the ONNX file"
        )
    model = _open_model(arguments)
    model.save(output)
    megabytes = output.stat().st_size / 1e6
    print(
        f"{output}: {len(model.report.kernels)} kernels for {model.device_name}, {megabytes:.1f} MB"
    )


def _run(arguments: argparse.Namespace) -> None:
    import numpy as np

    if arguments.output is not None:
        _check_folder(arguments.output)
    files = [_read_array(path) for path in arguments.input_files]
    model = _open_model(arguments)
    values = files or _random_inputs(model, arguments.seed)
    results = model(*values)
    results = results if isinstance(results, tuple) else (results,)
    named = {
        signature.name: result for signature, result in zip(model.outputs, results, strict=True)
    }
    for name, result in named.items():
        print(f"{name}: {_describe(result)}")
    if arguments.output is not None:
        np.savez(arguments.output, **named)
    if arguments.time:
        timing = model.time(*values)
        print(f"one call: {timing.median_s * 1e3:.3f} ms (spread {timing.iqr_s * 1e3:.3f} ms)")


def _explain(arguments: argparse.Namespace) -> None:
    if arguments.svg is not None:
        _check_folder(arguments.svg)
    model = _open_model(arguments)
    if arguments.svg is not None:
        arguments.svg.write_text(model.report.draw(), encoding="utf-8")
    print(model.explain())


def _schedule(arguments: argparse.Namespace) -> None:
    from tvm_tile.pipeline import schedule

    kernels = schedule(arguments.model, arguments.device or "auto", inputs=dict(arguments.inputs))
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


def _devices(_: argparse.Namespace) -> None:
    from tvm_tile.device.detect import detect_device

    headings = ("device", "target", "processors", "GB", "TB/s", "fp32 TFLOP/s", "KiB a block")
    rows = [(*headings, "measured"), *(_device_row(device) for device in devices())]
    _print_table(rows, names=2)
    print(f"auto is {detect_device().name} on this machine")


def _device_row(device: Device) -> tuple[str, ...]:
    target = dict(device.target)
    memory = device.memory(MemoryLevel.GLOBAL)
    return (
        device.name,
        str(target.get("arch", target.get("mcpu", target["kind"]))),
        str(device.multi_processor_count),
        f"{memory.capacity / 1e9:.0f}",
        f"{memory.bandwidth / 1e12:.2f}",
        f"{device.flops('float32') / 1e12:.1f}",
        f"{device.memory(MemoryLevel.SHARED).capacity >> 10}",
        "-" if device.measured is None else device.measured.date,
    )


def _print_table(rows: Sequence[Sequence[str]], *, names: int) -> None:
    """Print columns: the first ``names`` of them flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        left = [cell.ljust(width) for cell, width in itertools.islice(cells, names)]
        print("  ".join((*left, *(cell.rjust(width) for cell, width in cells))))


def _calibrate(arguments: argparse.Namespace) -> None:
    from tvm_tile.calibrate import calibrate, compare

    # Told before a minute of measuring rather than after.
    if arguments.output is not None:
        _check_folder(arguments.output)
        if arguments.output.suffix != SUFFIX:
            raise InputError(
                f"the file of a device record must end in {SUFFIX}",
                str(arguments.output),
                f"use {arguments.output.with_suffix(SUFFIX)}",
            )
    measured, built_in = calibrate(
        arguments.repeats, lambda line: print(line, file=sys.stderr, flush=True)
    )
    output = arguments.output or Path(re.sub(r"\W+", "_", measured.name) + SUFFIX)
    write_record(measured, output)
    headings = ("quantity", "measured", f"built in ({built_in.name})")
    _print_table([headings, *compare(measured, built_in)], names=1)
    print(f"{output}: use it with --device {output}")


def _open_model(arguments: argparse.Namespace) -> CompiledModel:
    """Load a saved model, or compile any other, with its progress on standard error."""
    import tvm_tile
    from tvm_tile.progress import ConsoleProgress

    if arguments.model.suffix == _SAVED_SUFFIX:
        if arguments.inputs or arguments.device is not None:
            given = "--input" if arguments.inputs else "--device"
            raise InputError(
                "a saved model has its device and its shapes already",
                f"{given} was given",
                f"leave {given} out, or pass the model that it was made from",
            )
        return tvm_tile.load(arguments.model)
    with ConsoleProgress() as progress:
        return tvm_tile.compile(
            arguments.model,
            device=arguments.device or "auto",
            inputs=dict(arguments.inputs) or None,
            progress=progress,
        )


def _check_folder(output: Path) -> None:
    # Compiling can take minutes: better told before than after.
    if not output.parent.is_dir():
        raise SavedModelError(
            "the folder of the output must exist", str(output.parent), "create it, or use another"
        )


def _read_array(path: Path) -> Any:
    import numpy as np

    try:
        value = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
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


def _random_inputs(model: CompiledModel, seed: int) -> list[Any]:
    import ml_dtypes  # noqa: F401  (teaches NumPy the name "bfloat16")
    import numpy as np

    generator = np.random.default_rng(seed)
    values: list[Any] = []
    for signature in model.inputs:
        if "float" in signature.dtype:
            value: Any = generator.standard_normal(signature.shape)
        else:
            # 0 and 1 are in range whatever the integers mean: labels, token numbers, masks.
            value = generator.integers(0, 2, signature.shape)
        values.append(value.astype(signature.dtype))
    return values


def _describe(value: Any) -> str:
    shape = "x".join(map(str, value.shape)) or "scalar"
    text = f"{value.dtype} {shape}"
    if value.size == 0:
        return text
    return f"{text}, from {value.min():.6g} to {value.max():.6g}, mean {value.mean():.6g}"


if __name__ == "__main__":
    sys.exit(main())
