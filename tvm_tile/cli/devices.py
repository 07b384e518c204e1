"""``tvm-tile devices``."""

from __future__ import annotations

import argparse
from typing import Any

from tvm_tile.cli.output import print_table
from tvm_tile.device import Device, MemoryLevel, devices
from tvm_tile.errors import DeviceError


def add(commands: Any) -> None:
    """Tell the parser of the command."""
    commands.add_parser("devices", help="List known devices.").set_defaults(run=run)


def run(_: argparse.Namespace) -> None:
    """Print a table of all devices that there is a record of."""
    headings = ("device", "target", "processors", "GB", "TB/s", "fp32 TFLOP/s", "KiB a block")
    rows = [(*headings, "measured"), *(_row(device) for device in devices())]
    print_table(rows, names=2)
    print(f"auto is {device_of_auto()} on this machine")


def device_of_auto() -> str:
    """The name of what ``--device auto`` is here; ``"no device"`` without a GPU that serves."""
    from tvm_tile.device.detect import detect_device

    try:
        return detect_device().name
    except DeviceError:
        return "no device"


def _row(device: Device) -> tuple[str, ...]:
    """Cells on a device."""
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
