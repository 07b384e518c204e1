"""The record of a GPU that has none of its own, by what its driver tells."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tvm_tile.device import Device, MemoryLevel, devices
from tvm_tile.errors import DeviceTooSmallError

# The oldest GPUs that there is a record of, and that CUDA 13 still loads code for.
OLDEST_COMPUTE_VERSION = (7, 0)
# Whose instructions, used here, need the "a" target. Code for others runs on their successors, too.
_ARCH_SPECIFIC = (9, 0)


@dataclass(frozen=True, slots=True)
class GpuProperties:
    """What the driver tells about a GPU.

    Attributes:
        name: the marketing name, such as ``"NVIDIA H200"``.
        compute_version: compute capability, such as ``(9, 0)``.
        multi_processor_count: enabled streaming multiprocessors.
        max_shared_memory_per_block: bytes without opting in to more.
        total_global_memory: bytes.
        l2_capacity: bytes.
        max_threads_per_multi_processor, max_blocks_per_multi_processor: that are resident; 0, as
            of all that follows, where a driver does not tell.
        registers_per_multi_processor: 32-bit registers.
        shared_memory_per_block_optin: bytes that a block can opt in to.
        shared_memory_per_multi_processor: bytes.
        clock: cycles per second of a multiprocessor, at most.
        memory_bandwidth: bytes per second of the memory's interface.
    """

    name: str
    compute_version: tuple[int, int]
    multi_processor_count: int
    max_shared_memory_per_block: int
    total_global_memory: int
    l2_capacity: int
    max_threads_per_multi_processor: int = 0
    max_blocks_per_multi_processor: int = 0
    registers_per_multi_processor: int = 0
    shared_memory_per_block_optin: int = 0
    shared_memory_per_multi_processor: int = 0
    clock: float = 0.0
    memory_bandwidth: float = 0.0


def describe_gpu(gpu: GpuProperties) -> Device:
    """The record that fits a GPU best, with the numbers that were read in place of its own.

    A GPU that is one of the records is that record. Any other has what its driver tells; what no
    driver tells, the rates of its units, is derived from its architecture's, by its
    multiprocessors and clock. Of architectures that nobody knows, the newest older one's are taken.

    Raises:
        DeviceTooSmallError: the GPU is older than any that there is a record of.
    """
    if gpu.compute_version < OLDEST_COMPUTE_VERSION:
        oldest, found = (
            ".".join(map(str, v)) for v in (OLDEST_COMPUTE_VERSION, gpu.compute_version)
        )
        raise DeviceTooSmallError(
            f"the GPU must have compute capability {oldest} or newer",
            f"{gpu.name} with {found}",
            'use another GPU, or device="emulated"',
        )
    base = _closest_record(gpu)
    squeezed = re.sub(r"[^a-z0-9]", "", gpu.name.lower())
    if (
        base.name.rpartition("/")[2] in squeezed
        and base.multi_processor_count == gpu.multi_processor_count
    ):
        return base
    return _adjusted(base, gpu)


def newest_records(compute_version: tuple[int, int]) -> list[Device]:
    """The CUDA records of one architecture: this one, else the newest that is older.

    Of another major version only where none is known of this one: what one has the next may lack.
    """
    cards = [device for device in devices() if device.kernel_language == "cuda"]
    older = [device for device in cards if version_of(device) <= compute_version]
    newest = max(version_of(device) for device in older)
    return [device for device in older if version_of(device) == newest]


def _closest_record(gpu: GpuProperties) -> Device:
    is_for_games = "geforce" in gpu.name.lower()  # whose matrix units have half the rates

    def distance(device: Device) -> tuple[bool, int]:
        capacity = device.memory(MemoryLevel.GLOBAL).capacity
        is_other = ("rtx" in device.name) != is_for_games
        return is_other, abs(capacity - gpu.total_global_memory)

    return min(newest_records(gpu.compute_version), key=distance)


def _adjusted(base: Device, gpu: GpuProperties) -> Device:
    """A GPU by what its driver tells; what no driver tells, such as rates, by the architecture's
    of a clock and multiprocessor."""
    is_same = version_of(base) == gpu.compute_version
    # Where it was measured, a record's clock is the sustained one, no driver's.
    clock = base.clock if base.measured or not gpu.clock else gpu.clock
    scale = gpu.multi_processor_count * clock / (base.multi_processor_count * base.clock)
    # How much a block can opt in to differs between architectures.
    known = base.memory(MemoryLevel.SHARED).capacity if is_same else gpu.max_shared_memory_per_block
    shared = gpu.shared_memory_per_block_optin or known
    per_processor = gpu.shared_memory_per_multi_processor or max(
        shared, base.shared_memory_per_multi_processor if is_same else 0
    )
    # A warp's instructions stay from one architecture to the next, a warpgroup's are of one only.
    instructions = [i for i in base.matrix_instructions if is_same or i.intrinsic == "mma"]
    bandwidth = gpu.memory_bandwidth or base.memory(MemoryLevel.GLOBAL).bandwidth
    limited = with_limits(base, arch=_arch(gpu.compute_version), shared_memory=shared)
    return replace(
        limited,
        name="nvidia/" + re.sub(r"[^a-z0-9]+", "-", gpu.name.lower().removeprefix("nvidia ")),
        multi_processor_count=gpu.multi_processor_count,
        max_threads_per_multi_processor=(
            gpu.max_threads_per_multi_processor or base.max_threads_per_multi_processor
        ),
        max_blocks_per_multi_processor=(
            gpu.max_blocks_per_multi_processor or base.max_blocks_per_multi_processor
        ),
        registers_per_multi_processor=(
            gpu.registers_per_multi_processor or base.registers_per_multi_processor
        ),
        shared_memory_per_multi_processor=per_processor,
        reserved_shared_memory=min(base.reserved_shared_memory, per_processor - shared),
        memories=tuple(
            replace(memory, capacity=gpu.total_global_memory, bandwidth=bandwidth)
            if memory.level is MemoryLevel.GLOBAL
            else replace(memory, bandwidth=memory.bandwidth * scale)
            for memory in limited.memories
        ),
        clock=clock,
        read_bandwidth=gpu.memory_bandwidth or base.read_bandwidth,
        peak_flops=tuple((dtype, rate * scale) for dtype, rate in base.peak_flops),
        matrix_flops=tuple((dtype, rate * scale) for dtype, rate in base.matrix_flops),
        l2_capacity=gpu.l2_capacity,
        # However few multiprocessors ask, the memory's interface is behind it.
        l2_bandwidth=max(base.l2_bandwidth * scale, 1.2 * bandwidth),
        matrix_instructions=tuple(instructions),
    )


def with_limits(base: Device, *, arch: str, shared_memory: int) -> Device:
    """A record for another target: its architecture, and bytes of shared memory of a block."""
    target = dict(base.target) | {"arch": arch, "max_shared_memory_per_block": shared_memory}
    return replace(
        base,
        target=tuple(sorted(target.items())),
        memories=tuple(
            replace(memory, capacity=shared_memory)
            if memory.level is MemoryLevel.SHARED
            else memory
            for memory in base.memories
        ),
        # Whatever was measured, was measured on another GPU.
        measured=None,
    )


def version_of(device: Device) -> tuple[int, int]:
    """The compute capability of a record for CUDA, such as ``(9, 0)``."""
    return arch_version(str(dict(device.target)["arch"]))


def arch_version(arch: str) -> tuple[int, int]:
    """The compute capability in a name such as ``"sm_90a"``; ``(0, 0)`` where there is none."""
    # "sm_90a" -> (9, 0), "sm_120" -> (12, 0): the last digit is the minor version.
    digits = re.sub(r"\D", "", arch)
    return (int(digits[:-1]), int(digits[-1])) if len(digits) > 1 else (0, 0)


def _arch(compute_version: tuple[int, int]) -> str:
    suffix = "a" if compute_version == _ARCH_SPECIFIC else ""
    return f"sm_{compute_version[0]}{compute_version[1]}{suffix}"
