"""Proof that all vEUs of a plan are resident at once, from what the built kernel takes.

A persistent kernel whose blocks wait for one another ends only if all of them run at the same time.
A cooperative launch refuses what does not fit; this refuses it when it is compiled, with numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tile.device.device import Device
from tvm_tile.errors import DeviceTooSmallError
from tvm_tile.plan.execution_plan import ExecutionPlan
from tvm_tile.tile.residency import fitting_blocks, given_registers


@dataclass(frozen=True, slots=True)
class Residency:
    """Resources of a multiprocessor that a built kernel takes.

    Attributes:
        registers: registers of a thread.
        shared_bytes: bytes of shared memory of a block, static and dynamic.
        block_size: threads of a block.
        resident: blocks that a multiprocessor holds.
        grid: blocks that are launched.
        processors: multiprocessors of the device.
    """

    registers: int
    shared_bytes: int
    block_size: int
    resident: int
    grid: int
    processors: int

    @property
    def holds(self) -> bool:
        """Whether all blocks of the grid are resident at once."""
        return self.grid <= self.resident * self.processors

    def describe(self) -> str:
        """How many blocks there are, and how many are resident."""
        where = f"{self.resident} resident on each of {self.processors} multiprocessors"
        return f"{self.grid} blocks, {where}"


def residency(plan: ExecutionPlan, registers: int, shared_bytes: int, device: Device) -> Residency:
    """Resources that a plan's kernel takes.

    Args:
        plan: plan of the kernel.
        registers: registers of a thread, from its machine code.
        shared_bytes: bytes of shared memory of a block, static and dynamic.
        device: the device that it is launched on.
    """
    given = given_registers(device, registers)
    resident = fitting_blocks(device, plan.block_size, given, shared_bytes)
    processors = device.multi_processor_count
    return Residency(registers, shared_bytes, plan.block_size, resident, plan.num_veus, processors)


def require_residency(proof: Residency) -> None:
    """Refuse a kernel that could wait for ever.

    Raises:
        DeviceTooSmallError: not all of its blocks are resident at once.
    """
    if not proof.holds:
        raise DeviceTooSmallError(
            f"{proof.grid} blocks that wait for one another must be resident at once",
            f"{proof.resident} on each of {proof.processors} multiprocessors: {proof.registers} "
            f"registers a thread, {proof.block_size} threads and {proof.shared_bytes} bytes of "
            "shared memory a block",
            "leave the kernels to launches of their own",
        )
