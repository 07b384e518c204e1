"""An AMD GPU's tiles, written in OpenCL and run on the CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tvm_tile.device import Device
from tvm_tile.device.emulated import EMULATED
from tvm_tile.tile.register_use import USES, register_use


def on_the_cpu(device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device's limits and rates, so its tiles, in OpenCL: no waves, no matrix units."""
    limits = {key: value for key, value in device.target if key.startswith("max_")}
    on_cpu = replace(
        device,
        kernel_language="opencl",
        target=tuple(sorted({**dict(EMULATED.target), **limits}.items())),
        matrix_instructions=(),
    )
    # Tiles as its own compiler's use of registers has them.
    place = (on_cpu.kernel_language, on_cpu.warp_size)
    monkeypatch.setitem(USES, place, register_use(device))
    return on_cpu
