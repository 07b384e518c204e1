"""Frozen data on the hardware, which every decision reads.

Numbers are per device unless said otherwise. Sizes are bytes, rates are bytes or
floating-point operations per second, times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

from tvm_tile.device.times import DependentLaunchTimes, KernelTimes

# Bytes of the widest load or store of one thread.
VECTOR_BYTES = 16
# Bytes of shared memory that a CUDA kernel may declare; more it must ask for at launch.
STATIC_SHARED_LIMIT = 48 * 1024
# Type of a product's operands -> the type by which records name instructions that are as fast.
RATED_AS = MappingProxyType(
    {"float8_e4m3fn": "float8_e4m3", "float8_e5m2": "float8_e4m3", "uint8": "int8"}
)


class MemoryLevel(Enum):
    """Levels of memory that a tile can live in, nearest to the arithmetic first (Roller, 3)."""

    REGISTER = "register"
    SHARED = "shared"
    GLOBAL = "global"


@dataclass(frozen=True, slots=True)
class Memory:
    """One level of the memory hierarchy.

    Attributes:
        level: the level that this memory is.
        scope: the storage scope TensorIR uses for it.
        capacity: bytes; per block for SHARED, per thread for REGISTER.
        bandwidth: bytes per second over the whole device.
    """

    level: MemoryLevel
    scope: str
    capacity: int
    bandwidth: float


@dataclass(frozen=True, slots=True)
class MatrixInstruction:
    """A matrix unit's instruction: ``shape`` is (m, n, k)."""

    shape: tuple[int, int, int]
    in_dtype: str
    acc_dtype: str
    intrinsic: str


@dataclass(frozen=True, slots=True)
class Reading:
    """One number that was measured.

    Attributes:
        quantity: the attribute of :class:`Device` that it is for, such as ``"peak_flops"``.
        variant: which of several forms was measured, such as ``"float16"`` or ``"float16 wgmma"``;
            may be empty.
        value: median of the repeats, in ``unit``.
        unit: ``"B/s"``, ``"op/s"`` (floating-point or integer), ``"s"`` or ``"Hz"``.
        spread: interquartile range over the median; None where it was not kept.
    """

    quantity: str
    variant: str
    value: float
    unit: str
    spread: float | None


@dataclass(frozen=True, slots=True)
class Measurement:
    """Origin of a record's measured numbers; numbers without a reading were not measured.

    Attributes:
        date: year, month and, where known, day: ``"2026-11-21"``.
        gpu: the driver's name for the GPU.
        driver: its version.
        versions: (package, version) pairs of what took the measurements.
        readings: the numbers.
    """

    date: str
    gpu: str
    driver: str
    versions: tuple[tuple[str, str], ...]
    readings: tuple[Reading, ...]


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU, as data. A new GPU is one more record.

    Attributes:
        name: ``vendor/model``, what users pass to :func:`tvm_tile.compile`.
        target: items of the TVM target, as sorted (key, value) pairs.
        kernel_language: ``"cuda"``, ``"rocm"`` or ``"opencl"``.
        multi_processor_count: streaming multiprocessors (compute units on AMD).
        lanes_per_multi_processor: float32 multiply-adds that a multiprocessor does in a cycle.
        warp_size: threads that execute together.
        max_threads_per_block: threads of the largest block.
        max_threads_per_multi_processor: resident threads on one multiprocessor.
        registers_per_multi_processor: 32-bit registers of one multiprocessor.
        shared_memory_per_multi_processor: bytes of shared memory of one multiprocessor.
        max_blocks_per_multi_processor: resident blocks on one multiprocessor.
        register_unit: registers of a thread are given out in multiples of this number.
        reserved_shared_memory: bytes that a resident block takes besides its own; may be zero.
        bank_count: shared-memory banks, four bytes wide each.
        memories: one record a level, nearest first.
        peak_flops: sorted (dtype, operations per second) pairs without matrix units.
        matrix_flops: dense operations a second of the matrix units, by the inputs' dtype;
            ``"tf32"`` is float32 rounded to ten bits of mantissa. Of ``"float16 2:4"`` the left
            operand has two numbers in four, and those with the zeros are counted, too; where there
            is no reading of it, it is twice the rate without zeros, as data sheets have it.
        clock: sustained cycles per second of a multiprocessor.
        read_bandwidth: bytes per second when global memory is only read; the bandwidth of
            ``memories`` counts reads and writes of a copy together.
        l2_capacity: bytes of second-level cache.
        l2_bandwidth: bytes per second that the second-level cache delivers to all multiprocessors.
        launch_latency: seconds from one kernel to the next inside a graph.
        stream_launch_latency: the same latency for kernels that are queued one by one.
        grid_barrier_latency: seconds that one wait of all blocks for one another takes, with
            one block on each multiprocessor; None where they cannot.
        matrix_instructions: matrix instructions that the units have.
        supports_grid_barrier: whether all blocks of a launch can wait for one another.
        supports_graphs: whether launches can be captured and replayed as a graph.
        dependent_launches: gains of kernels of a graph that start while the one before them ends,
            and wait for that one's end themselves; None where kernels cannot.
        times: parameters of the kernels' time models.
        measured: when and on what its numbers were measured; None for data sheets' numbers.
    """

    name: str
    target: tuple[tuple[str, str | int], ...]
    kernel_language: str
    multi_processor_count: int
    lanes_per_multi_processor: int
    warp_size: int
    max_threads_per_block: int
    max_threads_per_multi_processor: int
    registers_per_multi_processor: int
    shared_memory_per_multi_processor: int
    bank_count: int
    max_blocks_per_multi_processor: int
    register_unit: int
    reserved_shared_memory: int
    memories: tuple[Memory, ...]
    peak_flops: tuple[tuple[str, float], ...]
    matrix_flops: tuple[tuple[str, float], ...]
    clock: float
    read_bandwidth: float
    l2_capacity: int
    l2_bandwidth: float
    launch_latency: float
    stream_launch_latency: float
    grid_barrier_latency: float | None
    matrix_instructions: tuple[MatrixInstruction, ...]
    supports_grid_barrier: bool
    supports_graphs: bool
    dependent_launches: DependentLaunchTimes | None
    times: KernelTimes
    measured: Measurement | None

    @property
    def is_emulated(self) -> bool:
        """Whether the CPU runs its kernels: right numbers, and times that mean nothing."""
        return self.kernel_language == "opencl"

    @property
    def is_estimated(self) -> bool:
        """Whether predicted times go by parameters that were fitted to another device."""
        return self.times.fitted_on != self.name

    @property
    def supports_dependent_launches(self) -> bool:
        """Whether a kernel of a graph can start while the one before it ends."""
        return self.dependent_launches is not None

    @property
    def has_shuffles(self) -> bool:
        """Whether kernels can let the lanes of a warp read each other's registers."""
        return self.kernel_language != "opencl"

    @property
    def has_asynchronous_copies(self) -> bool:
        """Whether threads can copy to shared memory without waiting; warps' matrix instructions
        of that generation came with them."""
        return any(own.intrinsic in ("mma", "wgmma") for own in self.matrix_instructions)

    @property
    def cluster_size(self) -> int:
        """Blocks that read each other's shared memory, as far as that is portable; they came with
        warpgroups' instructions."""
        return 8 if any(own.intrinsic == "wgmma" for own in self.matrix_instructions) else 1

    def memory(self, level: MemoryLevel) -> Memory:
        """The record of one memory level."""
        return next(memory for memory in self.memories if memory.level is level)

    def flops(self, dtype: str) -> float:
        """Peak operations per second for ``dtype``, such as ``"float16"``, without matrix units;
        float32's where it is not listed."""
        rates = dict(self.peak_flops)
        return rates.get(dtype, rates["float32"])

    def matrix_rate(self, dtype: str) -> float:
        """Peak operations per second of matrix units for operands of ``dtype``; 0 if none."""
        return dict(self.matrix_flops).get(RATED_AS.get(dtype, dtype), 0.0)


def with_tf32(device: Device) -> Device:
    """A device as seen by who may round float32 to tf32: its tf32 instructions are float32's.

    No record says so by itself: the sums are float32's, but the operands lose thirteen bits of
    their mantissa.
    """
    rates = {"float32" if dtype == "tf32" else dtype: rate for dtype, rate in device.matrix_flops}
    instructions = (
        replace(i, in_dtype="float32") if i.in_dtype == "tf32" else i
        for i in device.matrix_instructions
    )
    return replace(
        device,
        matrix_flops=tuple(sorted(rates.items())),
        matrix_instructions=tuple(instructions),
    )
