"""AMD GPUs, one record each: data sheets and white papers, none of it measured.

Sources: the data sheets of Instinct MI250X (one of its two dies, each a device of its own to the
driver), MI300X and MI355X, of Radeon RX 7900 XTX and RX 9070 XT; the white papers of CDNA 2, 3 and
4; the instruction set references of CDNA 3, CDNA 4, RDNA 3 and RDNA 4 for registers, waves and
matrix instructions. Derived or estimated for every card:

* bandwidth of the local data share (shared memory): 128 bytes a clock and compute unit, at the
  peak engine clock;
* register bandwidth: three 4-byte operands a lane and clock, 64 lanes;
* launch latencies, and second-level cache bandwidth of the Radeon cards: estimates;
* reading is as fast as the memory interface, and the caches behind the second level are not
  modelled.

Of the parameters of the kernels' time models, those of matrix cores are estimates of their own, and
the others NVIDIA's, as cycles of the card's clock and shares of its rates: estimates, too.

``matrix_flops`` is dense. A wave is 64 threads on CDNA and 32 on RDNA, as the compiler's code has
it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_tile.device.cuda import H200
from tvm_tile.device.device import Device, MatrixInstruction, Memory, MemoryLevel
from tvm_tile.device.times import needed

_MIB = 1 << 20
_KIB = 1 << 10
_BYTES_PER_CLOCK_SHARED = 128
_OPERAND_BYTES_PER_CLOCK = 64 * 12
_BLOCKS = 16  # with a barrier each; single waves need none


@dataclass(frozen=True, slots=True)
class _Family:
    """Properties that all compute units of a generation share.

    Attributes:
        warp_size: threads of a wave.
        lanes: float32 multiply-adds of a compute unit in a cycle.
        threads: resident on a compute unit.
        registers: 32-bit ones of a compute unit, accumulation registers among them.
        registers_per_thread: registers that any instruction can name; those for accumulation come
            on top.
        register_unit: number of registers of which a thread is given a multiple.
        local_data_share: bytes of a compute unit; ``shared_per_block``, what a block can have.
    """

    warp_size: int
    lanes: int
    threads: int
    registers: int
    registers_per_thread: int
    register_unit: int
    local_data_share: int
    shared_per_block: int


# Four SIMDs of 512 registers by 64 lanes, eight waves each.
_CDNA2 = _Family(64, 64, 2048, 131072, 256, 8, 64 * _KIB, 64 * _KIB)
_CDNA3 = replace(_CDNA2, lanes=128)
_CDNA4 = _Family(64, 128, 2048, 131072, 256, 8, 160 * _KIB, 160 * _KIB)
# Two SIMDs of 1536 registers by 32 lanes, sixteen waves each; two units share 128 KiB.
_RDNA = _Family(32, 128, 1024, 98304, 256, 24, 64 * _KIB, 64 * _KIB)


_INHERITED = "the H200's, as cycles and shares; not fitted to measurements"
# Parameters of the model of time, the same for all cards.
_TIMES = replace(
    H200.times,
    chip=replace(
        H200.times.chip,
        origin=_INHERITED,
        warp_unit=None,
        group_unit=None,
        # The H200's is a share of what warpgroups reach, which have no rate of their own here.
        wave_unit=replace(needed(H200.times.chip.wave_unit, "waves"), rate_share=1.0),
    ),
)


def _rocm_device(
    name: str,
    family: _Family,
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
    matrix_instructions: tuple[MatrixInstruction, ...],
) -> Device:
    """Fill in what all cards have in common; bytes, Hz and operations per second."""
    clocks = compute_units * clock
    return Device(
        name=name,
        target=_target(mcpu, family),
        kernel_language="rocm",
        multi_processor_count=compute_units,
        lanes_per_multi_processor=family.lanes,
        warp_size=family.warp_size,
        max_threads_per_block=1024,
        max_threads_per_multi_processor=family.threads,
        registers_per_multi_processor=family.registers,
        shared_memory_per_multi_processor=family.local_data_share,
        bank_count=32,
        max_blocks_per_multi_processor=_BLOCKS,
        register_unit=family.register_unit,
        reserved_shared_memory=0,
        memories=_memories(family, clocks, global_capacity, global_bandwidth),
        peak_flops=tuple(sorted(flops.items())),
        matrix_flops=tuple(sorted(matrix_flops.items())),
        clock=clock,
        read_bandwidth=global_bandwidth,
        l2_capacity=l2_capacity,
        l2_bandwidth=l2_bandwidth,
        launch_latency=5e-6,
        stream_launch_latency=5e-6,
        grid_barrier_latency=None,
        matrix_instructions=matrix_instructions,
        # No kernel of ours was seen waiting for a grid, nor a graph captured, on these GPUs yet.
        supports_grid_barrier=False,
        supports_graphs=False,
        dependent_launches=None,
        times=_TIMES,
        measured=None,
    )


def _memories(
    family: _Family, clocks: float, capacity: int, bandwidth: float
) -> tuple[Memory, ...]:
    """The memories of a card whose compute units do ``clocks`` cycles a second in all."""
    operands, shared = clocks * _OPERAND_BYTES_PER_CLOCK, clocks * _BYTES_PER_CLOCK_SHARED
    named, share = family.registers_per_thread * 4, family.shared_per_block
    return (
        Memory(MemoryLevel.REGISTER, "local", named, operands),
        Memory(MemoryLevel.SHARED, "shared", share, shared),
        Memory(MemoryLevel.GLOBAL, "global", capacity, bandwidth),
    )


def _target(mcpu: str, family: _Family) -> tuple[tuple[str, str | int], ...]:
    """Attributes of the TVM target of an AMD GPU."""
    return (
        ("kind", "rocm"),
        ("max_num_threads", 1024),
        ("max_shared_memory_per_block", family.shared_per_block),
        ("max_threads_per_block", 1024),
        ("mcpu", mcpu),
        ("thread_warp_size", family.warp_size),
    )


def _products(
    intrinsic: str, dtype: str, *shapes: tuple[int, int, int]
) -> tuple[MatrixInstruction, ...]:
    """Matrix instructions of one name and element type, one for each shape."""
    acc_dtype = "int32" if dtype == "int8" else "float32"
    return tuple(MatrixInstruction(shape, dtype, acc_dtype, intrinsic) for shape in shapes)


_MFMA_HALVES = (
    *_products("mfma", "bfloat16", (16, 16, 16), (32, 32, 8)),
    *_products("mfma", "float16", (16, 16, 16), (32, 32, 8)),
    *_products("mfma", "float32", (16, 16, 4), (32, 32, 2)),
)
_MFMA_CDNA2 = (*_MFMA_HALVES, *_products("mfma", "int8", (16, 16, 16), (32, 32, 8)))
_MFMA_CDNA3 = (*_MFMA_HALVES, *_products("mfma", "int8", (16, 16, 32), (32, 32, 16)))
_MFMA_CDNA4 = (
    *_products("mfma", "bfloat16", (16, 16, 32), (32, 32, 16)),
    *_products("mfma", "float16", (16, 16, 32), (32, 32, 16)),
    *_products("mfma", "float32", (16, 16, 4), (32, 32, 2)),
    *_products("mfma", "int8", (16, 16, 64), (32, 32, 32)),
)
# RDNA 3 wants both halves of a wave to hold an operand, RDNA 4 each its part.
_WMMA_RDNA3, _WMMA_RDNA4 = (
    tuple(
        instruction
        for dtype in ("bfloat16", "float16", "int8")
        for instruction in _products(intrinsic, dtype, (16, 16, 16))
    )
    for intrinsic in ("wmma.gfx11", "wmma.gfx12")
)

MI250X = _rocm_device(
    "amd/mi250x",
    _CDNA2,
    mcpu="gfx90a",
    compute_units=110,
    clock=1.7e9,
    global_capacity=64 * 10**9,
    global_bandwidth=1.638e12,
    l2_capacity=8 * _MIB,
    l2_bandwidth=6.96e12,  # 128 bytes a clock of each of 32 slices
    flops={"float16": 47.9e12, "float32": 23.95e12, "float64": 23.95e12},
    matrix_flops={
        "bfloat16": 191.5e12,
        "float16": 191.5e12,
        "float32": 47.9e12,
        "float64": 47.9e12,
        "int8": 191.5e12,
    },
    matrix_instructions=_MFMA_CDNA2,
)

MI300X = _rocm_device(
    "amd/mi300x",
    _CDNA3,
    mcpu="gfx942",
    compute_units=304,
    clock=2.1e9,
    global_capacity=192 * 10**9,
    global_bandwidth=5.3e12,
    l2_capacity=8 * 4 * _MIB,  # 4 MiB on each of eight dies
    l2_bandwidth=34.4e12,  # 128 bytes a clock of each of 16 slices a die
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
    matrix_instructions=_MFMA_CDNA3,
)

MI355X = _rocm_device(
    "amd/mi355x",
    _CDNA4,
    mcpu="gfx950",
    compute_units=256,
    clock=2.4e9,
    global_capacity=288 * 10**9,
    global_bandwidth=8e12,
    l2_capacity=8 * 4 * _MIB,
    l2_bandwidth=39.3e12,
    flops={"float16": 157.3e12, "float32": 157.3e12, "float64": 78.6e12},
    matrix_flops={
        "bfloat16": 2516.6e12,
        "float16": 2516.6e12,
        "float32": 157.3e12,
        "float64": 78.6e12,
        "float8_e4m3": 5033.2e12,
        "int8": 5033.2e12,
    },
    matrix_instructions=_MFMA_CDNA4,
)

RX7900XTX = _rocm_device(
    "amd/rx7900xtx",
    _RDNA,
    mcpu="gfx1100",
    compute_units=96,
    clock=2.5e9,
    global_capacity=24 * 10**9,
    global_bandwidth=960e9,
    l2_capacity=6 * _MIB,
    l2_bandwidth=5.5e12,
    flops={"float16": 122.8e12, "float32": 61.4e12, "float64": 1.92e12},
    matrix_flops={"bfloat16": 122.8e12, "float16": 122.8e12, "int8": 122.8e12},
    matrix_instructions=_WMMA_RDNA3,
)

RX9070XT = _rocm_device(
    "amd/rx9070xt",
    _RDNA,
    mcpu="gfx1201",
    compute_units=64,
    clock=2.97e9,
    global_capacity=16 * 10**9,
    global_bandwidth=640e9,
    l2_capacity=8 * _MIB,
    l2_bandwidth=4.5e12,
    flops={"float16": 97.3e12, "float32": 48.7e12, "float64": 1.52e12},
    matrix_flops={"bfloat16": 194.6e12, "float16": 194.6e12, "int8": 389.3e12},
    matrix_instructions=_WMMA_RDNA4,
)

ROCM_DEVICES: tuple[Device, ...] = (MI300X, MI250X, MI355X, RX7900XTX, RX9070XT)
"""The records for AMD GPUs."""
