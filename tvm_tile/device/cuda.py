"""NVIDIA GPUs, one record each.

H200's is a file that ``tvm-tile calibrate`` writes; its readings say which of its numbers were
measured. Every other number is from NVIDIA's data sheets and architecture white papers, not
measured, and these are derived or estimated for every card:

* shared-memory bandwidth: 128 bytes a clock and multiprocessor, at the boost clock;
* register bandwidth: three 4-byte operands a lane and clock, 128 lanes (64 on sm_70 and
  sm_80), at the boost clock;
* launch and grid-barrier latencies, and second-level cache bandwidth where no bytes a clock are
  published: estimates;
* the clock is the boost clock, and reading is as fast as the memory interface.

The parameters of their kernels' time models are H200's, as shares and cycles: estimates, too, and
so is what dependent launches are worth, where they are known from compute capability 9.0 on.

Resident blocks, and how registers and shared memory are given out, are from the CUDA programming
guide's table of compute capabilities.

``peak_flops`` counts CUDA cores only; ``matrix_flops`` is dense, with sums in float32 (int32,
float64).
"""

from __future__ import annotations

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


def _cuda_device(
    name: str,
    *,
    arch: str,
    multi_processor_count: int,
    clock: float,
    lanes: int,
    threads_per_multi_processor: int,
    blocks_per_multi_processor: int,
    shared_per_multi_processor: int,
    shared_per_block: int,
    global_capacity: int,
    global_bandwidth: float,
    l2_capacity: int,
    l2_bandwidth: float,
    flops: dict[str, float],
    matrix_flops: dict[str, float],
    matrix_instructions: tuple[MatrixInstruction, ...] = (),
    supports_dependent_launches: bool = False,
) -> Device:
    """Fill in what all NVIDIA cards have in common; bytes, Hz, and bytes or operations a second.

    ``clock`` is the boost clock, ``lanes`` the float32 lanes of one multiprocessor,
    ``shared_per_block`` what one block can opt in to, and ``global_bandwidth`` counts reads and
    writes together.
    """
    off_chip = Memory(_GLOBAL, "global", global_capacity, global_bandwidth)
    return Device(
        name=name,
        target=_target(arch, shared_per_block),
        kernel_language="cuda",
        multi_processor_count=multi_processor_count,
        lanes_per_multi_processor=lanes,
        warp_size=32,
        max_threads_per_block=1024,
        max_threads_per_multi_processor=threads_per_multi_processor,
        registers_per_multi_processor=65536,
        shared_memory_per_multi_processor=shared_per_multi_processor,
        bank_count=32,
        max_blocks_per_multi_processor=blocks_per_multi_processor,
        register_unit=8,
        reserved_shared_memory=shared_per_multi_processor - shared_per_block,
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
        matrix_instructions=matrix_instructions,
        supports_grid_barrier=True,
        supports_graphs=True,
        supports_dependent_launches=supports_dependent_launches,
        dependent_launches=H200.dependent_launches if supports_dependent_launches else None,
        times=H200.times.within_peaks(),
        measured=None,
    )


def _on_chip(clocks: float, lanes: int, shared_per_block: int) -> tuple[Memory, Memory]:
    """Registers and shared memory of a card whose multiprocessors do ``clocks`` cycles a second."""
    return (
        Memory(_REGISTER, "local", _BYTES_PER_THREAD, clocks * lanes * _OPERAND_BYTES),
        Memory(_SHARED, "shared.dyn", shared_per_block, clocks * _SHARED_LINE),
    )


def _target(arch: str, shared_per_block: int) -> tuple[tuple[str, str | int], ...]:
    return (
        ("arch", arch),
        ("kind", "cuda"),
        ("max_num_threads", 1024),
        ("max_shared_memory_per_block", shared_per_block),
        ("max_threads_per_block", 1024),
        ("registers_per_block", 65536),
        ("thread_warp_size", 32),
    )


def _mma(*dtypes: str) -> tuple[MatrixInstruction, ...]:
    """Instructions of a warp, of 32 bytes of depth, with sums in float32."""
    return tuple(MatrixInstruction((16, 8, 16), dtype, "float32", "mma") for dtype in dtypes)


def _shipped_record(name: str) -> Device:
    file = resources.files("tvm_tile.device") / "records" / name
    return from_json(file.read_text(encoding="utf-8"))


H200 = _shipped_record("nvidia_h200.json")

H100 = _cuda_device(
    "nvidia/h100",
    arch="sm_90a",
    multi_processor_count=132,
    clock=1.98e9,
    lanes=128,
    threads_per_multi_processor=2048,
    blocks_per_multi_processor=32,
    shared_per_multi_processor=228 * _KIB,
    shared_per_block=227 * _KIB,
    global_capacity=80 * 10**9,
    global_bandwidth=3.35e12,
    l2_capacity=50 * _MIB,
    l2_bandwidth=10.8e12,  # the H200's, by their capacities
    flops={"float16": 133.8e12, "float32": 66.9e12, "float64": 33.5e12},
    matrix_flops={
        "bfloat16": 989.4e12,
        "float16": 989.4e12,
        "float64": 66.9e12,
        "float8_e4m3": 1978.9e12,
        "int8": 1978.9e12,
        "tf32": 494.7e12,
    },
    matrix_instructions=H200.matrix_instructions,
    supports_dependent_launches=True,
)

A100 = _cuda_device(
    "nvidia/a100",  # SXM, 80 GB
    arch="sm_80",
    multi_processor_count=108,
    clock=1.41e9,
    lanes=64,
    threads_per_multi_processor=2048,
    blocks_per_multi_processor=32,
    shared_per_multi_processor=164 * _KIB,
    shared_per_block=163 * _KIB,
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
    matrix_instructions=_mma("bfloat16", "float16"),
)

RTX4090 = _cuda_device(
    "nvidia/rtx4090",
    arch="sm_89",
    multi_processor_count=128,
    clock=2.52e9,
    lanes=128,
    threads_per_multi_processor=1536,
    blocks_per_multi_processor=24,
    shared_per_multi_processor=100 * _KIB,
    shared_per_block=99 * _KIB,
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
    matrix_instructions=_mma("bfloat16", "float16"),
)

RTX3090 = _cuda_device(
    "nvidia/rtx3090",
    arch="sm_86",
    multi_processor_count=82,
    clock=1.695e9,
    lanes=128,
    threads_per_multi_processor=1536,
    blocks_per_multi_processor=16,
    shared_per_multi_processor=100 * _KIB,
    shared_per_block=99 * _KIB,
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
    matrix_instructions=_mma("bfloat16", "float16"),
)

V100 = _cuda_device(
    "nvidia/v100",  # SXM2, 32 GB: the GPU of the papers
    arch="sm_70",
    multi_processor_count=80,
    clock=1.53e9,
    lanes=64,
    threads_per_multi_processor=2048,
    blocks_per_multi_processor=32,
    shared_per_multi_processor=96 * _KIB,
    shared_per_block=96 * _KIB,
    global_capacity=32 * 10**9,
    global_bandwidth=0.9e12,
    l2_capacity=6 * _MIB,
    l2_bandwidth=3.1e12,  # 2048 bytes a clock
    flops={"float16": 31.4e12, "float32": 15.7e12, "float64": 7.8e12},
    matrix_flops={"float16": 125e12},
)

CUDA_DEVICES: tuple[Device, ...] = (H200, H100, A100, RTX4090, RTX3090, V100)


def _architecture(
    arch: str,
    *,
    count: int,
    clock: float,
    lanes: int,
    threads: int,
    blocks: int,
    shared: int,
    global_capacity: int,
    global_bandwidth: float,
    l2_capacity: int,
    l2_bytes: float,
    flops: dict[str, int],
    matrix_flops: dict[str, int],
    matrix_instructions: tuple[MatrixInstruction, ...] = (),
) -> Device:
    """A card of an architecture, from which :mod:`tvm_tile.device.describe` derives others.

    ``flops``, ``matrix_flops`` and ``l2_bytes``, of the second-level cache, are of a clock and
    multiprocessor, of which there are ``count``.
    """
    clocks = count * clock
    return _cuda_device(
        f"nvidia/{arch}",
        arch=arch,
        multi_processor_count=count,
        clock=clock,
        lanes=lanes,
        threads_per_multi_processor=threads,
        blocks_per_multi_processor=blocks,
        shared_per_multi_processor=shared,
        shared_per_block=shared - _KIB,
        global_capacity=global_capacity,
        global_bandwidth=global_bandwidth,
        l2_capacity=l2_capacity,
        l2_bandwidth=l2_bytes * clocks,
        flops={dtype: rate * clocks for dtype, rate in flops.items()},
        matrix_flops={dtype: rate * clocks for dtype, rate in matrix_flops.items()},
        matrix_instructions=matrix_instructions,
    )


# Those without a record, as a T4, a B200 and an RTX 5080. What a multiprocessor does in a clock is
# from white papers and data sheets, but for a warp's products on 10.0, of which none is published:
# A100's. (Its own unit, tcgen05, is not used.) All else is what a driver tells, where there is one.
ARCHITECTURES: tuple[Device, ...] = (
    _architecture(
        "sm_75",
        count=40,
        global_capacity=16 * 10**9,
        l2_capacity=4 * _MIB,
        clock=1.59e9,
        lanes=64,
        threads=1024,
        blocks=16,
        shared=65 * _KIB,
        global_bandwidth=0.32e12,
        l2_bytes=26,
        flops={"float16": 256, "float32": 128, "float64": 4},
        matrix_flops={"float16": 512},
    ),
    _architecture(
        "sm_100a",
        count=148,
        global_capacity=180 * 10**9,
        l2_capacity=126 * _MIB,
        clock=1.9e9,
        lanes=128,
        threads=2048,
        blocks=32,
        shared=228 * _KIB,
        global_bandwidth=8e12,
        l2_bytes=41,
        flops={"float16": 512, "float32": 256, "float64": 128},
        matrix_flops={
            "bfloat16": 2048,
            "float16": 2048,
            "float64": 128,
            "int8": 4096,
            "tf32": 1024,
        },
        matrix_instructions=_mma("bfloat16", "float16"),
    ),
    _architecture(
        "sm_120a",
        count=84,
        global_capacity=16 * 10**9,
        l2_capacity=64 * _MIB,
        clock=2.4e9,
        lanes=128,
        threads=1536,
        blocks=24,
        shared=100 * _KIB,
        global_bandwidth=0.96e12,
        l2_bytes=15,
        flops={"float16": 256, "float32": 256, "float64": 4},
        matrix_flops={  # sums in float32, which halves them on these cards
            "bfloat16": 512,
            "float16": 512,
            "float8_e4m3": 1024,
            "int8": 2048,
            "tf32": 256,
        },
        matrix_instructions=_mma("bfloat16", "float16"),
    ),
)
