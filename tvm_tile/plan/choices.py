"""Times of a kernel's blocks inside a persistent kernel, from those of the kernel by itself.

How kernels are predicted by themselves is in :mod:`tvm_tile.tile.time`. Inside a persistent
kernel nothing is launched, and a vEU that shares its multiprocessor with others waits for them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.plan.execution_plan import RKernel, aligned
from tvm_tile.tile.rules import CONTRACTION, Rule

_USUAL_REGISTERS = 64  # of a thread, where nothing is known


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel as it would be launched.

    Attributes:
        rule: name of the rule that wrote it.
        blocks: blocks of its grid.
        threads: threads of a block.
        shared_bytes: bytes of shared memory of a block.
        registers: registers of a thread; ``None`` where not known.
        seconds: predicted amid a model, launch included.
        flops: floating-point operations.
        traffic: bytes that it reads and writes.
        weights: bytes of weights among them: constants that it reads once.
        is_amid_flow: whether it is to be part of a kernel with loops and branches.
    """

    rule: Rule
    blocks: int
    threads: int
    shared_bytes: int
    registers: int | None
    seconds: float
    flops: float
    traffic: float
    weights: int = 0
    is_amid_flow: bool = False

    @property
    def is_stream(self) -> bool:
        """Whether the kernel is bound by reading constants, which none before it has touched."""
        return 2 * self.weights > self.traffic


def make_choice(launch: Launch, device: Device, *, barriers: bool) -> RKernel:
    """A kernel as a choice that vEUs can run.

    Args:
        launch: the kernel by itself.
        device: the device that it is made for.
        barriers: whether threads of a block wait for one another.
    """
    return RKernel(
        launch.blocks,
        launch.threads,
        launch.shared_bytes,
        launch.registers or _USUAL_REGISTERS,
        _block_seconds(launch, device),
        _busy_seconds(launch, device),
        0,
        barriers,
    )


def with_weights_in_place(
    choice: RKernel, resident_bytes: int, flops: float, device: Device
) -> RKernel:
    """``choice``, changed to one whose blocks find their weights in shared memory.

    Args:
        choice: without them.
        resident_bytes: bytes of a block's weights.
        flops: floating-point operations of the kernel.
        device: the device that it is made for.
    """
    times, processors = device.times.persistent, device.multi_processor_count
    reading = resident_bytes / (device.memory(MemoryLevel.SHARED).bandwidth / processors)
    adding = times.sum_inefficiency * flops / choice.blocks / (device.flops("float32") / processors)
    busy = max(reading, adding)
    return replace(
        choice,
        block_seconds=times.resident_cycles / device.clock + busy,
        busy_seconds=busy,
        resident_bytes=aligned(resident_bytes),
    )


def _block_seconds(launch: Launch, device: Device) -> float:
    """Seconds of one block, from its first instruction to its last."""
    warps = -(-launch.threads // device.warp_size)
    registers = launch.registers or _USUAL_REGISTERS
    fits = min(
        device.max_threads_per_multi_processor // device.warp_size // warps,
        device.registers_per_multi_processor // (registers * warps * device.warp_size),
        device.shared_memory_per_multi_processor // max(1, launch.shared_bytes),
    )
    turns = -(-launch.blocks // (device.multi_processor_count * max(1, fits)))
    times, clock = device.times.persistent, device.clock
    seconds = max(times.shortest_cycles / clock, launch.seconds - times.launch_seconds) / turns
    if launch.rule.is_timed_inside or (times.stream is not None and launch.is_stream):
        return seconds
    # Beside others a block is slower than as a kernel: its code and its operands are in no
    # first-level cache, and it shares its multiprocessor.
    is_product = launch.is_amid_flow and launch.rule is CONTRACTION
    slowdown = times.product_slowdown if is_product else times.slowdown
    return slowdown * seconds + times.cold_start_cycles / clock


def _busy_seconds(launch: Launch, device: Device) -> float:
    """Seconds of its multiprocessor's throughput that a block takes."""
    times = device.times.persistent
    if times.stream is not None and launch.is_stream:
        rate = device.read_bandwidth * times.stream.share
        return launch.traffic / rate * device.multi_processor_count / launch.blocks
    work = max(launch.flops / device.flops("float32"), launch.traffic / device.l2_bandwidth)
    share = device.multi_processor_count / launch.blocks
    return min(work * times.inefficiency * share, launch.seconds)
