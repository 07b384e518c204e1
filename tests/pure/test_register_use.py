"""How compilers use registers, by device."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_tile.device import Device, devices, find_device
from tvm_tile.tile.cost import compiled_registers
from tvm_tile.tile.register_use import register_use
from tvm_tile.tile.rows.held_rows import HeldRows, construct_held

H200, MI300X, RX7900XTX = (
    find_device(name) for name in ("nvidia/h200", "amd/mi300x", "amd/rx7900xtx")
)


def rows(length: int) -> HeldRows:
    """Rows as of a layer norm, with a scale and a shift."""
    return HeldRows(
        *(4096, length, 4, ("x",), ("scale", "shift"), 4),
        bytes_moved=8.0,
        stages=2,
        instructions=18,
        bytes_loaded=4,
        bytes_beside=8,
        bytes_stored=4,
    )


def registers_of(elements: int, device: Device) -> int:
    tiles = construct_held(rows(elements * 64), device)
    found = {t.registers for t in tiles if t.elements == elements and not t.is_shared}
    (registers,) = found
    return registers


@pytest.mark.parametrize("device", devices(), ids=lambda device: device.name)
def test_only_amds_compiler_is_eager(device: Device) -> None:
    assert register_use(device).is_eager == (device.kernel_language == "rocm")


@pytest.mark.parametrize(("elements", "measured"), [(4, 21), (8, 28), (12, 46), (24, 80)])
def test_rows_take_what_was_measured(elements: int, measured: int) -> None:
    assert registers_of(elements, MI300X) == pytest.approx(measured, rel=0.2)


def test_parameters_of_few_vectors_wait() -> None:
    # Of two vectors one at a time; of three, and more, all at once.
    few, many = registers_of(8, MI300X), registers_of(12, MI300X)
    assert many - few > 2 * (12 - 8)
    assert registers_of(12, H200) - registers_of(8, H200) == 4


def test_what_is_loaded_ahead_costs_more_where_its_addresses_do() -> None:
    def taken(device: Device, ahead: int) -> int:
        one = np.array([256]), np.array([16]), np.array([ahead])
        return int(compiled_registers(device, *one)[0])

    grown = [taken(device, 40) - taken(device, 0) for device in (H200, RX7900XTX)]
    assert grown[0] < 40 < grown[1]
    assert taken(RX7900XTX, 40) == pytest.approx(138, rel=0.2)  # 121 to 155, as measured
