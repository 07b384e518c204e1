"""That all vEUs of a plan are resident at once, from what the built kernel takes.

A persistent kernel whose blocks wait for one another ends only if all of them run at the same time.
A cooperative launch refuses what does not fit; this refuses it when it is compiled, with numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.errors import DeviceTooSmallError
from tvm_tile.plan.execution_plan import ExecutionPlan

_REGISTERS_AT_ONCE = 256  # that a warp is given: eight for each of its threads
_RESERVED = 1024  # bytes of shared memory that the driver keeps of each block
_BLOCKS = 32  # that a multiprocessor holds at most


@dataclass(frozen=True, slots=True)
class Residency:
    """What a built kernel takes of a multiprocessor.

    Attributes:
        registers: of a thread.
        shared_bytes: of a block, static and dynamic.
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
    """What a plan's kernel takes.

    Args:
        plan: of the kernel.
        registers: of a thread, from its machine code.
        shared_bytes: of a block, static and dynamic.
        device: that it is launched on.
    """
    warps = -(-plan.block_size // device.warp_size)
    of_warp = -(-registers * device.warp_size // _REGISTERS_AT_ONCE) * _REGISTERS_AT_ONCE
    limits = (
        device.max_threads_per_multi_processor // (warps * device.warp_size),
        device.registers_per_multi_processor // (of_warp * warps),
        device.shared_memory_per_multi_processor // (shared_bytes + _RESERVED),
        _BLOCKS,
    )
    fits = plan.block_size <= device.max_threads_per_block
    fits &= shared_bytes <= device.memory(MemoryLevel.SHARED).capacity
    resident = min(limits) if fits else 0
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
            "leave the kernels to launches of their own: Options(coschedule=False)",
        )
