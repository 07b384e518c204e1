"""What hardware is there: frozen data that every decision reads.

Numbers are per device unless said otherwise. Sizes are bytes, rates are bytes or
floating-point operations per second, times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

# Bytes of the widest load or store of one thread.
VECTOR_BYTES = 16
# Bytes of shared memory that a CUDA kernel may declare; more it must ask for at launch.
STATIC_SHARED_LIMIT = 48 * 1024


class MemoryLevel(Enum):
    """Where a tile can live, nearest to the arithmetic first (Roller, section 3)."""

    REGISTER = "register"
    SHARED = "shared"
    GLOBAL = "global"


@dataclass(frozen=True, slots=True)
class Memory:
    """One level of the memory hierarchy.

    Attributes:
        level: which level this is.
        scope: the storage scope TensorIR uses for it.
        capacity: bytes; per block for SHARED, per thread for REGISTER.
        bandwidth: bytes per second over the whole device.
        transaction_size: bytes the hardware moves at once; tiles align to it.
    """

    level: MemoryLevel
    scope: str
    capacity: int
    bandwidth: float
    transaction_size: int


@dataclass(frozen=True, slots=True)
class MatrixInstruction:
    """A matrix unit's instruction: ``shape`` is (m, n, k)."""

    shape: tuple[int, int, int]
    in_dtype: str
    acc_dtype: str
    intrinsic: str


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU, as data. A new GPU is one more record.

    Attributes:
        name: ``vendor/model``, what users pass to :func:`tvm_tile.compile`.
        target: items of the TVM target, as sorted (key, value) pairs.
        kernel_language: ``"cuda"``, ``"rocm"`` or ``"opencl"``.
        multi_processor_count: streaming multiprocessors (compute units on AMD).
        warp_size: threads that execute together.
        max_threads_per_block: the largest block.
        max_threads_per_multi_processor: resident threads on one multiprocessor.
        registers_per_multi_processor: 32-bit registers.
        shared_memory_per_multi_processor: bytes.
        bank_count: shared-memory banks, four bytes wide each.
        memories: one record a level, nearest first.
        peak_flops: sorted (dtype, operations per second) pairs without matrix units.
        l2_capacity: bytes of second-level cache.
        l2_bandwidth: bytes per second.
        launch_latency: seconds from one kernel to the next inside a graph.
        matrix_instructions: what the matrix units can do.
        supports_grid_barrier: whether all blocks of a launch can wait for one another.
        supports_graphs: whether launches can be captured and replayed as a graph.
    """

    name: str
    target: tuple[tuple[str, str | int], ...]
    kernel_language: str
    multi_processor_count: int
    warp_size: int
    max_threads_per_block: int
    max_threads_per_multi_processor: int
    registers_per_multi_processor: int
    shared_memory_per_multi_processor: int
    bank_count: int
    memories: tuple[Memory, ...]
    peak_flops: tuple[tuple[str, float], ...]
    l2_capacity: int
    l2_bandwidth: float
    launch_latency: float
    matrix_instructions: tuple[MatrixInstruction, ...]
    supports_grid_barrier: bool
    supports_graphs: bool

    def memory(self, level: MemoryLevel) -> Memory:
        """The record of one memory level."""
        return next(memory for memory in self.memories if memory.level is level)

    def flops(self, dtype: str) -> float:
        """Peak operations per second for ``dtype``; float32's where it is not listed."""
        rates = dict(self.peak_flops)
        return rates.get(dtype, rates["float32"])
