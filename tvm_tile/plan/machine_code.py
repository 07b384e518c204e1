"""What machine code takes of a multiprocessor, beside what the model of tiles predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tvm_tile.device.device import Device
from tvm_tile.plan.report import KernelReport
from tvm_tile.plan.resources import Resources
from tvm_tile.tile.residency import fitting_blocks, given_registers


def with_resources(
    kernels: Sequence[KernelReport], built: Mapping[str, tuple[Resources, ...]], device: Device
) -> tuple[KernelReport, ...]:
    """Kernels with what their machine code takes.

    Args:
        kernels: of a model.
        built: name of a kernel -> what it was built to; those that are missing stay as they are.
        device: that they are for.
    """
    return tuple(
        replace(kernel, resources=own, resident=_resident(kernel, own, device))
        for kernel in kernels
        for own in [built.get(kernel.name, ())]
    )


def _resident(kernel: KernelReport, own: Sequence[Resources], device: Device) -> int:
    """Blocks of a function's kernel on a multiprocessor; 0 where its block is not known."""
    if not kernel.block or len(own) != 1:
        return 0
    registers = given_registers(device, own[0].registers)
    shared = max(own[0].shared, kernel.shared_bytes)
    return fitting_blocks(device, kernel.block, registers, shared)
