"""``tvm-tile devices`` and ``tvm-tile calibrate``."""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tvm_tile.device import Device, MemoryLevel, devices
from tvm_tile.device.record import SUFFIX, write_record
from tvm_tile.errors import InputError, SavedModelError


def list_devices(_: argparse.Namespace) -> None:
    """Print a table of all devices that there is a record of."""
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


def measure_device(arguments: argparse.Namespace) -> None:
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
    measured, built_in = calibrate(arguments.repeats, _tell)
    output = arguments.output or Path(re.sub(r"\W+", "_", measured.name) + SUFFIX)
    if arguments.fit:
        measured = _fitted(measured, output.with_suffix(f".tiles{SUFFIX}"))
    write_record(measured, output)
    headings = ("quantity", "measured", f"built in ({built_in.name})")
    _print_table([headings, *compare(measured, built_in)], names=1)
    print(f"{output}: use it with --device {output}")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _fitted(device: Device, path: Path) -> Device:
    """The device with times fitted to tiles that are measured now, and written to ``path``."""
    from tvm_tile.calibrate.fit import fit_times
    from tvm_tile.calibrate.samples import groups_of
    from tvm_tile.calibrate.tiles import measure_tiles, timer_on

    assert device.measured is not None  # it has just been
    samples = measure_tiles(device, timer_on(device), gpu=device.measured.gpu, progress=_tell)
    samples.write(path)
    fitted, fits = fit_times(device, groups_of(samples, device))
    for fit in fits:
        print(f"{fit.family}, fitted to: {fit.fitted.describe()}")
        if fit.held_out:
            print(f"{fit.family}, held out: {fit.held_out.describe()}")
        for name, value, error in fit.values:
            before = getattr(getattr(device.times, fit.family), name)
            print(f"  {name}: {value:.4g} ± {error:.0%}, before {before:.4g}")
    print(f"{path}: the measured tiles")
    return fitted


def check_output(output: Path) -> None:
    """Refuse an output that could not be written.

    Raises:
        SavedModelError: its folder does not exist, or it is a folder itself.
    """
    # Compiling can take minutes: better told before than after.
    if not output.parent.is_dir():
        raise SavedModelError(
            "the folder of the output must exist", str(output.parent), "create it, or use another"
        )
    if output.is_dir():
        raise SavedModelError("the output must be a file", f"{output} is a folder", "name the file")
