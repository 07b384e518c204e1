"""Resources of machine code, beside those that the model of tiles predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tvm_tile.device.device import Device
from tvm_tile.report.compiled import KernelReport
from tvm_tile.report.resources import Resources
from tvm_tile.tile.residency import fitting_blocks, given_registers


def with_resources(
    kernels: Sequence[KernelReport], built: Mapping[str, tuple[Resources, ...]], device: Device
) -> tuple[KernelReport, ...]:
    """Kernels with what their machine code takes.

    Args:
        kernels: kernels of a model.
        built: name of a kernel -> what it was built to; those that are missing stay as they are.
        device: the device that they are made for.
    """
    known = (replace(kernel, resources=built.get(kernel.name, ())) for kernel in kernels)
    return tuple(replace(kernel, resident=_resident(kernel, device)) for kernel in known)


def with_launches(
    kernels: Sequence[KernelReport], counts: Mapping[str, int]
) -> tuple[KernelReport, ...]:
    """Kernels with how many launches a call of each is; those that are missing stay as they are."""
    return tuple(replace(k, launches=counts.get(k.name, k.launches)) for k in kernels)


def _resident(kernel: KernelReport, device: Device) -> int:
    """Blocks of a function's main kernel on a multiprocessor; 0 where that is not known."""
    if kernel.main is None:
        return 0
    registers = given_registers(device, kernel.main.registers)
    shared = max(kernel.main.shared, kernel.shared_bytes)
    return fitting_blocks(device, kernel.block, registers, shared)
