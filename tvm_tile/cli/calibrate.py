"""``tvm-tile calibrate``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tvm_tile.cli.model import count
from tvm_tile.cli.output import print_table
from tvm_tile.cli.verbosity import tell
from tvm_tile.device import Device
from tvm_tile.device.record import SUFFIX, write_record
from tvm_tile.errors import InputError
from tvm_tile.errors.arguments import check_output


def add(commands: Any) -> None:
    """Tell the parser of the command."""
    sub = commands.add_parser("calibrate", help="Measure the GPU and write its device record.")
    sub.set_defaults(run=run)
    sub.add_argument(
        "-o", "--output", type=Path, help="default: the device's name, such as nvidia_h200.json"
    )
    sub.add_argument("--repeats", type=count(1), default=15, help="of each measurement (15)")
    sub.add_argument(
        "--fit",
        action="store_true",
        help="measure tiles, too, for a few minutes, and fit the model of kernels' times to them",
    )


def run(arguments: argparse.Namespace) -> None:
    """Measure the GPU, write its record, and print it beside the built-in one."""
    from tvm_tile.calibrate import calibrate, compare
    from tvm_tile.calibrate.fit import require_scipy

    # Told before a minute of measuring rather than after.
    if arguments.output is not None:
        check_output(arguments.output)
        if arguments.output.suffix != SUFFIX:
            raise InputError(
                f"the file of a device record must end in {SUFFIX}",
                str(arguments.output),
                f"use {arguments.output.with_suffix(SUFFIX)}",
            )
    if arguments.fit:
        require_scipy()
    progress = partial(tell, verbosity=arguments.verbosity)
    measured, built_in = calibrate(arguments.repeats, progress)
    output = arguments.output or Path(re.sub(r"\W+", "_", measured.name) + SUFFIX)
    if arguments.fit:
        measured = _fitted(measured, output.with_suffix(f".tiles{SUFFIX}"), progress)
    write_record(measured, output)
    headings = ("quantity", "measured", f"built in ({built_in.name})")
    print_table([headings, *compare(measured, built_in)], names=1)
    print(f"{output}: use it with --device {output}")


def _fitted(device: Device, path: Path, progress: Callable[[str], None]) -> Device:
    """The device with times fitted to tiles that are measured now, and written to ``path``."""
    from tvm_tile.calibrate.fit import fitted_record, numbers_of
    from tvm_tile.calibrate.tiles import measure_tiles, timer_on

    told = device.measured
    assert told is not None  # it has just been
    with timer_on(device) as timer:
        samples = measure_tiles(device, timer, gpu=told.gpu, date=told.date, progress=progress)
    versions = ", ".join(map(" ".join, told.versions))
    origin = f"driver {told.driver}, {versions}; tvm-tile calibrate --fit"
    samples = replace(samples, origin=origin)
    samples.write(path)
    fitted = fitted_record(device, samples)
    before = numbers_of(device.times.chip)
    for name, value in numbers_of(fitted.times.chip).items():
        print(f"{name}: {value:.4g}, before {before[name]:.4g}")
    print(fitted.times.chip.origin)
    print(f"{path}: the measured tiles")
    return fitted
