"""NVIDIA GPUs, one record each.

H200's and H100's are files that ``tvm-tile calibrate`` writes; their readings say which of their
numbers were measured. Every other number is from NVIDIA's data sheets and architecture white
papers, not measured, and these are derived or estimated for every other card:

* shared-memory bandwidth: 128 bytes a clock and multiprocessor, at the boost clock;
* register bandwidth: three 4-byte operands a lane and clock, 128 lanes (64 on sm_70 and
  sm_80), at the boost clock;
* launch and grid-barrier latencies, and second-level cache bandwidth where no bytes a clock are
  published: estimates;
* the clock is the boost clock, and reading is as fast as the memory interface.

The parameters of their kernels' time models are H200's, as shares and cycles: estimates, too, and
so is what dependent launches are worth, from compute capability 9.0 on.

Resident blocks, and how registers and shared memory are given out, are from the CUDA programming
guide's table of compute capabilities.

``peak_flops`` counts CUDA cores only; ``matrix_flops`` is dense, with sums in float32 (int32,
float64).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

from tvm_tile.device.device import Device, MatrixInstruction, Memory, MemoryLevel
from tvm_tile.device.record import from_json

_REGISTER, _SHARED, _GLOBAL = MemoryLevel
_MIB = 1 << 20
_KIB = 1 << 10
# 255 registers of 4 bytes is what one thread can name on every card since Kepler.
_BYTES_PER_THREAD = 255 * 4
_SHARED_LINE = 128
_OPERAND_BYTES = 12  # of a lane


@dataclass(frozen=True, slots=True)
class _Generation:
    """What a multiprocessor of an architecture is like.

    Attributes:
        arch: compute capability, as compilers name it.
        lanes: float32 lanes.
        threads, blocks: that are resident.
        shared: bytes of shared memory.
        shared_per_block: bytes that one block can opt in to.
        matrix_instructions: those that kernels of ours have.
        supports_dependent_launches: whether kernels may start early.
    """

    arch: str
    lanes: int
    threads: int
    blocks: int
    shared: int
    shared_per_block: int
    matrix_instructions: tuple[MatrixInstruction, ...] = ()
    supports_dependent_launches: bool = False


def _cuda_device(
    name: str,
    generation: _Generation,
    *,
    multi_processor_count: int,
    clock: float,
    global_capacity: int,
    global_bandwidth: float,
    l2_capacity: int,
    l2_bandwidth: float,
    flops: dict[str, float],
    matrix_flops: dict[str, float],
) -> Device:
    """Fill in what all NVIDIA cards have in common; bytes, Hz, and bytes or operations a second.

    ``clock`` is the boost clock, and ``global_bandwidth`` counts reads and writes together.
    """
    lanes, shared_per_block = generation.lanes, generation.shared_per_block
    off_chip = Memory(_GLOBAL, "global", global_capacity, global_bandwidth)
    return Device(
        name=name,
        target=_target(generation.arch, shared_per_block),
        kernel_language="cuda",
        multi_processor_count=multi_processor_count,
        lanes_per_multi_processor=lanes,
        warp_size=32,
        max_threads_per_block=1024,
        max_threads_per_multi_processor=generation.threads,
        registers_per_multi_processor=65536,
        shared_memory_per_multi_processor=generation.shared,
        bank_count=32,
        max_blocks_per_multi_processor=generation.blocks,
        register_unit=8,
        reserved_shared_memory=generation.shared - shared_per_block,
        memories=(*_on_chip(multi_processor_count * clock, lanes, shared_per_block), off_chip),
        peak_flops=tuple(sorted(flops.items())),
        matrix_flops=tuple(sorted(matrix_flops.items())),
        clock=clock,
        read_bandwidth=global_bandwidth,
        l2_capacity=l2_capacity,
        l2_bandwidth=l2_bandwidth,
        launch_latency=2e-6,
        stream_launch_latency=2.5e-6,
        grid_barrier_latency=1e-6,
        matrix_instructions=generation.matrix_instructions,
        supports_grid_barrier=True,
        supports_graphs=True,
        dependent_launches=(
            H200.dependent_launches if generation.supports_dependent_launches else None
        ),
        times=H200.times.without_warpgroups,
        measured=None,
    )


def _on_chip(clocks: float, lanes: int, shared_per_block: int) -> tuple[Memory, Memory]:
    """Registers and shared memory of a card whose multiprocessors do ``clocks`` cycles a second."""
    return (
        Memory(_REGISTER, "local", _BYTES_PER_THREAD, clocks * lanes * _OPERAND_BYTES),
        Memory(_SHARED, "shared.dyn", shared_per_block, clocks * _SHARED_LINE),
    )


def _target(arch: str, shared_per_block: int) -> tuple[tuple[str, str | int], ...]:
    """Attributes of the TVM target of an NVIDIA GPU."""
    return (
        ("arch", arch),
        ("kind", "cuda"),
        ("max_num_threads", 1024),
        ("max_shared_memory_per_block", shared_per_block),
        ("max_threads_per_block", 1024),
        ("registers_per_block", 65536),
        ("thread_warp_size", 32),
    )


def _shipped_record(name: str) -> Device:
    """A device record that comes with the package."""
    file = resources.files("tvm_tile.device") / "records" / name
    return from_json(file.read_text(encoding="utf-8"))


H200 = _shipped_record("nvidia_h200.json")
H100 = _shipped_record("nvidia_h100.json")

_MMA = tuple(
    # Of a warp, and 32 bytes of depth, with sums in float32; they began with asynchronous copies.
    MatrixInstruction((16, 8, 16), dtype, "float32", "mma")
    for dtype in ("bfloat16", "float16")
)
_VOLTA = _Generation("sm_70", 64, 2048, 32, 96 * _KIB, 96 * _KIB)
_TURING = _Generation("sm_75", 64, 1024, 16, 64 * _KIB, 64 * _KIB)
_AMPERE = _Generation("sm_80", 64, 2048, 32, 164 * _KIB, 163 * _KIB, _MMA)
_AMPERE_86 = _Generation("sm_86", 128, 1536, 16, 100 * _KIB, 99 * _KIB, _MMA)
_ADA = _Generation("sm_89", 128, 1536, 24, 100 * _KIB, 99 * _KIB, _MMA)
# Without the "a" of their own instructions, which no kernel of ours has: so is their code for the
# chips that follow them, as GB10 does the RTX 5090.
_BLACKWELL = _Generation("sm_100", 128, 2048, 32, 228 * _KIB, 227 * _KIB, _MMA, True)
_BLACKWELL_120 = _Generation("sm_120", 128, 1536, 24, 100 * _KIB, 99 * _KIB, _MMA, True)

A100 = _cuda_device(
    "nvidia/a100",  # SXM, 80 GB
    _AMPERE,
    multi_processor_count=108,
    clock=1.41e9,
    global_capacity=80 * 10**9,
    global_bandwidth=2.039e12,
    l2_capacity=40 * _MIB,
    l2_bandwidth=7.2e12,  # 5120 bytes a clock
    flops={"float16": 78e12, "float32": 19.5e12, "float64": 9.7e12},
    matrix_flops={
        "bfloat16": 312e12,
        "float16": 312e12,
        "float64": 19.5e12,
        "int8": 624e12,
        "tf32": 156e12,
    },
)

RTX4090 = _cuda_device(
    "nvidia/rtx4090",
    _ADA,
    multi_processor_count=128,
    clock=2.52e9,
    global_capacity=24 * 10**9,
    global_bandwidth=1.008e12,
    l2_capacity=72 * _MIB,
    l2_bandwidth=5.0e12,
    flops={"float16": 82.6e12, "float32": 82.6e12, "float64": 1.29e12},
    matrix_flops={  # sums in float32, which halves them on this card
        "bfloat16": 165.2e12,
        "float16": 165.2e12,
        "float8_e4m3": 330.3e12,
        "int8": 660.6e12,
        "tf32": 82.6e12,
    },
)

RTX3090 = _cuda_device(
    "nvidia/rtx3090",
    _AMPERE_86,
    multi_processor_count=82,
    clock=1.695e9,
    global_capacity=24 * 10**9,
    global_bandwidth=936e9,
    l2_capacity=6 * _MIB,
    l2_bandwidth=2.5e12,
    flops={"float16": 35.6e12, "float32": 35.6e12, "float64": 0.56e12},
    matrix_flops={  # sums in float32, which halves them on this card
        "bfloat16": 71e12,
        "float16": 71e12,
        "int8": 284e12,
        "tf32": 35.6e12,
    },
)

V100 = _cuda_device(
    "nvidia/v100",  # SXM2, 32 GB: the GPU of the papers
    _VOLTA,
    multi_processor_count=80,
    clock=1.53e9,
    global_capacity=32 * 10**9,
    global_bandwidth=0.9e12,
    l2_capacity=6 * _MIB,
    l2_bandwidth=3.1e12,  # 2048 bytes a clock
    flops={"float16": 31.4e12, "float32": 15.7e12, "float64": 7.8e12},
    matrix_flops={"float16": 125e12},
)

L40S = _cuda_device(
    "nvidia/l40s",
    _ADA,
    multi_processor_count=142,
    clock=2.52e9,
    global_capacity=48 * 10**9,
    global_bandwidth=864e9,
    l2_capacity=96 * _MIB,
    l2_bandwidth=5.5e12,  # the RTX 4090's, by their multiprocessors
    flops={"float16": 91.6e12, "float32": 91.6e12, "float64": 1.43e12},
    matrix_flops={
        "bfloat16": 362e12,
        "float16": 362e12,
        "float8_e4m3": 733e12,
        "int8": 733e12,
        "tf32": 183e12,
    },
)

L4 = _cuda_device(
    "nvidia/l4",
    _ADA,
    multi_processor_count=58,
    clock=2.04e9,
    global_capacity=24 * 10**9,
    global_bandwidth=300e9,
    l2_capacity=48 * _MIB,
    l2_bandwidth=1.8e12,  # the RTX 4090's, by their multiprocessors and clocks
    flops={"float16": 30.3e12, "float32": 30.3e12, "float64": 0.47e12},
    matrix_flops={
        "bfloat16": 121e12,
        "float16": 121e12,
        "float8_e4m3": 242e12,
        "int8": 242e12,
        "tf32": 60e12,
    },
)

A10 = _cuda_device(
    "nvidia/a10",
    _AMPERE_86,
    multi_processor_count=72,
    clock=1.695e9,
    global_capacity=24 * 10**9,
    global_bandwidth=600e9,
    l2_capacity=6 * _MIB,
    l2_bandwidth=2.2e12,  # the RTX 3090's, by their multiprocessors
    flops={"float16": 31.2e12, "float32": 31.2e12, "float64": 0.49e12},
    matrix_flops={
        "bfloat16": 125e12,
        "float16": 125e12,
        "int8": 250e12,
        "tf32": 62.5e12,
    },
)

T4 = _cuda_device(
    "nvidia/t4",
    _TURING,
    multi_processor_count=40,
    clock=1.59e9,
    global_capacity=16 * 10**9,
    global_bandwidth=320e9,
    l2_capacity=4 * _MIB,
    l2_bandwidth=1.3e12,  # the V100's bytes a clock and multiprocessor
    flops={"float16": 16.2e12, "float32": 8.1e12, "float64": 0.25e12},
    matrix_flops={"float16": 65e12},  # by instructions of half the depth of ours, which began later
)

B200 = _cuda_device(
    "nvidia/b200",
    _BLACKWELL,
    multi_processor_count=148,
    clock=1.965e9,
    global_capacity=180 * 10**9,
    global_bandwidth=8e12,
    l2_capacity=126 * _MIB,
    l2_bandwidth=11.9e12,  # the H100's bytes a clock and multiprocessor
    flops={"float16": 148.9e12, "float32": 74.4e12, "float64": 37.2e12},
    # A warp's products, of which no rate is published: A100's of a clock and multiprocessor. (The
    # card's own unit, tcgen05, four times as fast, is not used.)
    matrix_flops={
        "bfloat16": 595e12,
        "float16": 595e12,
        "float64": 37.2e12,
        "int8": 1191e12,
        "tf32": 298e12,
    },
)

RTX5090 = _cuda_device(
    "nvidia/rtx5090",
    _BLACKWELL_120,
    multi_processor_count=170,
    clock=2.407e9,
    global_capacity=32 * 10**9,
    global_bandwidth=1.792e12,
    l2_capacity=96 * _MIB,
    l2_bandwidth=6.3e12,  # the RTX 4090's bytes a clock and multiprocessor
    flops={"float16": 104.8e12, "float32": 104.8e12, "float64": 1.64e12},
    matrix_flops={  # sums in float32, which halves them on this card
        "bfloat16": 209.5e12,
        "float16": 209.5e12,
        "float8_e4m3": 419e12,
        "int8": 838e12,
        "tf32": 104.8e12,
    },
)

CUDA_DEVICES: tuple[Device, ...] = (
    *(H200, H100, A100, RTX4090, RTX3090, V100),
    *(L40S, L4, A10, T4, RTX5090, B200),
)
"""The records for NVIDIA GPUs, from which :mod:`tvm_tile.device.describe` derives others."""
