"""AMD GPUs, one record each: data sheets and CDNA white papers, not measured.

The local data share moves 128 bytes a clock and compute unit; register bandwidth is three
4-byte operands a lane and clock, 64 lanes; both at the peak engine clock. Launch latency
is an estimate.

Blocks are limited to 256 threads although the hardware takes 1024: TVM marks every kernel
``amdgpu-flat-work-group-size="1,256"`` when no AMD device is present at compile time, and
the hardware refuses to launch a larger block of such a kernel.
"""

from __future__ import annotations

from tvm_tile.device.device import Device, Memory, MemoryLevel

_MIB = 1 << 20
_KIB = 1 << 10
# 256 vector registers of 4 bytes for one lane (the accumulation registers not counted).
_REGISTER_BYTES_PER_THREAD = 256 * 4
_LOCAL_DATA_SHARE = 64 * _KIB
_BYTES_PER_CLOCK_SHARED = 128
_OPERAND_BYTES_PER_CLOCK = 64 * 12


def _rocm_device(
    name: str,
    *,
    mcpu: str,
    compute_units: int,
    clock: float,
    global_capacity: int,
    global_bandwidth: float,
    l2_capacity: int,
    l2_bandwidth: float,
    flops: dict[str, float],
    matrix_flops: dict[str, float],
) -> Device:
    """Fill in what the CDNA cards have in common; bytes, Hz and operations per second."""
    clocks = compute_units * clock
    return Device(
        name=name,
        target=_target(mcpu),
        kernel_language="rocm",
        multi_processor_count=compute_units,
        warp_size=64,
        max_threads_per_block=256,
        max_threads_per_multi_processor=2048,
        registers_per_multi_processor=131072,
        shared_memory_per_multi_processor=_LOCAL_DATA_SHARE,
        bank_count=32,
        max_blocks_per_multi_processor=16,  # with a barrier each; single waves need none
        register_unit=8,
        reserved_shared_memory=0,
        memories=_memories(clocks, global_capacity, global_bandwidth),
        peak_flops=tuple(sorted(flops.items())),
        matrix_flops=tuple(sorted(matrix_flops.items())),
        clock=clock,
        read_bandwidth=global_bandwidth,
        l2_capacity=l2_capacity,
        l2_bandwidth=l2_bandwidth,
        launch_latency=5e-6,
        stream_launch_latency=5e-6,
        grid_barrier_latency=None,
        matrix_instructions=(),
        # TVM neither launches cooperatively nor captures graphs on ROCm.
        supports_grid_barrier=False,
        supports_graphs=False,
        measured=None,
    )


def _memories(clocks: float, capacity: int, bandwidth: float) -> tuple[Memory, ...]:
    """Those of a card with so many clocks of compute units a second."""
    operands, shared = clocks * _OPERAND_BYTES_PER_CLOCK, clocks * _BYTES_PER_CLOCK_SHARED
    return (
        Memory(MemoryLevel.REGISTER, "local", _REGISTER_BYTES_PER_THREAD, operands, 4),
        Memory(MemoryLevel.SHARED, "shared", _LOCAL_DATA_SHARE, shared, _BYTES_PER_CLOCK_SHARED),
        Memory(MemoryLevel.GLOBAL, "global", capacity, bandwidth, 64),
    )


def _target(mcpu: str) -> tuple[tuple[str, str | int], ...]:
    return (
        ("kind", "rocm"),
        ("max_num_threads", 256),
        ("max_shared_memory_per_block", _LOCAL_DATA_SHARE),
        ("max_threads_per_block", 256),
        ("mcpu", mcpu),
        ("thread_warp_size", 64),
    )


MI300X = _rocm_device(
    "amd/mi300x",
    mcpu="gfx942",
    compute_units=304,
    clock=2.1e9,
    global_capacity=192 * 10**9,
    global_bandwidth=5.3e12,
    l2_capacity=8 * 4 * _MIB,  # 4 MiB on each of eight dies
    l2_bandwidth=34.4e12,
    flops={"float16": 163.4e12, "float32": 163.4e12, "float64": 81.7e12},
    matrix_flops={
        "bfloat16": 1307.4e12,
        "float16": 1307.4e12,
        "float32": 163.4e12,
        "float64": 163.4e12,
        "float8_e4m3": 2614.9e12,
        "int8": 2614.9e12,
        "tf32": 653.7e12,
    },
)

MI250 = _rocm_device(
    "amd/mi250",  # one of its two dies: each is a device of its own to the driver
    mcpu="gfx90a",
    compute_units=104,
    clock=1.7e9,
    global_capacity=64 * 10**9,
    global_bandwidth=1.638e12,
    l2_capacity=8 * _MIB,
    l2_bandwidth=6.96e12,
    flops={"float16": 45.3e12, "float32": 22.6e12, "float64": 22.6e12},
    matrix_flops={
        "bfloat16": 181e12,
        "float16": 181e12,
        "float32": 45.3e12,
        "float64": 45.3e12,
        "int8": 181e12,
    },
)

ROCM_DEVICES: tuple[Device, ...] = (MI300X, MI250)
