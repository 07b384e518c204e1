"""NVIDIA GPUs, one record each.

H200's copy rate and float32 rate were measured on such a card. Every other number is
from NVIDIA's data sheets and architecture white papers, not measured, and these three are
derived or estimated for every card:

* shared-memory bandwidth: 128 bytes a clock and multiprocessor, at the boost clock;
* register bandwidth: three 4-byte operands a lane and clock, 128 lanes (64 on sm_70 and
  sm_80), at the boost clock;
* second-level cache bandwidth and launch latency: estimates from published
  micro-benchmarks.

``peak_flops`` counts CUDA cores only; matrix units are not in it.
"""

from __future__ import annotations

from tvm_tile.device.device import Device, Memory, MemoryLevel

_REGISTER, _SHARED, _GLOBAL = MemoryLevel
_MIB = 1 << 20
_KIB = 1 << 10
# 255 registers of 4 bytes is what one thread can name on every card since Kepler.
_BYTES_PER_THREAD = 255 * 4
_SHARED_LINE = 128
_OPERAND_BYTES_PER_LANE = 12


def _cuda_device(
    name: str,
    *,
    arch: str,
    multi_processor_count: int,
    clock: float,
    lanes: int,
    threads_per_multi_processor: int,
    shared_per_multi_processor: int,
    shared_per_block: int,
    global_capacity: int,
    global_bandwidth: float,
    l2_capacity: int,
    l2_bandwidth: float,
    flops: dict[str, float],
) -> Device:
    """Fill in what all NVIDIA cards have in common; bytes, Hz, and bytes or operations a second.

    ``clock`` is the boost clock, ``lanes`` the float32 lanes of one multiprocessor,
    ``shared_per_block`` what one block can opt in to, and ``global_bandwidth`` counts reads and
    writes together.
    """
    clocks = multi_processor_count * clock
    return Device(
        name=name,
        target=(
            ("arch", arch),
            ("kind", "cuda"),
            ("max_num_threads", 1024),
            ("max_shared_memory_per_block", shared_per_block),
            ("max_threads_per_block", 1024),
            ("registers_per_block", 65536),
            ("thread_warp_size", 32),
        ),
        kernel_language="cuda",
        multi_processor_count=multi_processor_count,
        warp_size=32,
        max_threads_per_block=1024,
        max_threads_per_multi_processor=threads_per_multi_processor,
        registers_per_multi_processor=65536,
        shared_memory_per_multi_processor=shared_per_multi_processor,
        bank_count=32,
        memories=(
            Memory(
                _REGISTER, "local", _BYTES_PER_THREAD, clocks * lanes * _OPERAND_BYTES_PER_LANE, 4
            ),
            Memory(_SHARED, "shared.dyn", shared_per_block, clocks * _SHARED_LINE, _SHARED_LINE),
            # The L2 moves sectors of 32 bytes.
            Memory(_GLOBAL, "global", global_capacity, global_bandwidth, 32),
        ),
        peak_flops=tuple(sorted(flops.items())),
        l2_capacity=l2_capacity,
        l2_bandwidth=l2_bandwidth,
        launch_latency=2e-6,
        matrix_instructions=(),
        supports_grid_barrier=True,
        supports_graphs=True,
    )


H200 = _cuda_device(
    "nvidia/h200",
    arch="sm_90a",
    multi_processor_count=132,
    clock=1.98e9,
    lanes=128,
    threads_per_multi_processor=2048,
    shared_per_multi_processor=228 * _KIB,
    shared_per_block=227 * _KIB,
    global_capacity=141 * 10**9,
    global_bandwidth=4.28e12,  # measured: copy, read + write
    l2_capacity=50 * _MIB,
    l2_bandwidth=5.5e12,
    # float32 measured (a cuBLAS product at the sustained clock); float16 at twice that rate.
    flops={"float16": 102e12, "float32": 51e12, "float64": 34e12},
)

H100 = _cuda_device(
    "nvidia/h100",
    arch="sm_90a",
    multi_processor_count=132,
    clock=1.98e9,
    lanes=128,
    threads_per_multi_processor=2048,
    shared_per_multi_processor=228 * _KIB,
    shared_per_block=227 * _KIB,
    global_capacity=80 * 10**9,
    global_bandwidth=3.35e12,
    l2_capacity=50 * _MIB,
    l2_bandwidth=5.5e12,
    flops={"float16": 133.8e12, "float32": 66.9e12, "float64": 33.5e12},
)

A100 = _cuda_device(
    "nvidia/a100",  # SXM, 80 GB
    arch="sm_80",
    multi_processor_count=108,
    clock=1.41e9,
    lanes=64,
    threads_per_multi_processor=2048,
    shared_per_multi_processor=164 * _KIB,
    shared_per_block=163 * _KIB,
    global_capacity=80 * 10**9,
    global_bandwidth=2.039e12,
    l2_capacity=40 * _MIB,
    l2_bandwidth=4.5e12,
    flops={"float16": 78e12, "float32": 19.5e12, "float64": 9.7e12},
)

RTX4090 = _cuda_device(
    "nvidia/rtx4090",
    arch="sm_89",
    multi_processor_count=128,
    clock=2.52e9,
    lanes=128,
    threads_per_multi_processor=1536,
    shared_per_multi_processor=100 * _KIB,
    shared_per_block=99 * _KIB,
    global_capacity=24 * 10**9,
    global_bandwidth=1.008e12,
    l2_capacity=72 * _MIB,
    l2_bandwidth=5.0e12,
    flops={"float16": 82.6e12, "float32": 82.6e12, "float64": 1.29e12},
)

V100 = _cuda_device(
    "nvidia/v100",  # SXM2, 32 GB: the GPU of the papers
    arch="sm_70",
    multi_processor_count=80,
    clock=1.53e9,
    lanes=64,
    threads_per_multi_processor=2048,
    shared_per_multi_processor=96 * _KIB,
    shared_per_block=96 * _KIB,
    global_capacity=32 * 10**9,
    global_bandwidth=0.9e12,
    l2_capacity=6 * _MIB,
    l2_bandwidth=2.1e12,
    flops={"float16": 31.4e12, "float32": 15.7e12, "float64": 7.8e12},
)

CUDA_DEVICES: tuple[Device, ...] = (H200, H100, A100, RTX4090, V100)
