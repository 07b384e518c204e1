"""Operations a second of CUDA cores and matrix units; a multiply-add is two.

Before a kernel is timed it runs on ones: each of its sums then counts the multiply-adds that made
it, and their total must be what the rate is computed from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from tvm_tile.build.cuda import compile_cuda
from tvm_tile.calibrate import operands
from tvm_tile.calibrate.driver import Gpu, LoadedKernel
from tvm_tile.calibrate.sources import (
    CORE_CHAINS,
    CORE_OPERANDS,
    CORE_STEPS,
    CORE_THREADS,
    MMA_COLUMNS,
    MMA_ROWS,
    MMA_STEPS,
    MMA_THREADS,
    WGMMA_SHARED_BYTES,
    WGMMA_STEPS,
    WGMMA_SUMS,
    WGMMA_THREADS,
    CoreStep,
    MatrixStep,
    WarpGroupStep,
)
from tvm_tile.calibrate.timing import measure, reading, rounds_of_run
from tvm_tile.device import Reading
from tvm_tile.errors import CalibrationError

_REGISTER_BYTES = {"r": 4, "f": 4, "d": 8}
_SUM_DTYPES: dict[str, type[np.generic]] = {"r": np.int32, "f": np.float32, "d": np.float64}
_CHECK_ROUNDS = 2
_WARP = 32


def cuda_core_flops(gpu: Gpu, arch: str, step: CoreStep, repeats: int) -> tuple[Reading, Reading]:
    """The rate of one dtype on CUDA cores, and the multiprocessors' clock meanwhile.

    Raises:
        CalibrationError: the kernel did not do the operations that are counted.
    """
    kernel = gpu.load(compile_cuda(step.source(), arch), "chains")
    blocks = gpu.resident_blocks(kernel, CORE_THREADS)
    width = _REGISTER_BYTES[step.constraint]
    half = CORE_OPERANDS * CORE_THREADS * width
    out = gpu.allocate(blocks * CORE_THREADS * CORE_CHAINS * width)
    ticks = gpu.allocate(blocks * 2 * 8)
    round_ops = 2.0 * blocks * CORE_THREADS * CORE_CHAINS * CORE_STEPS * step.lanes

    counting = gpu.upload(operands.ones(step.dtype, 2 * half))
    gpu.launch(kernel, blocks, CORE_THREADS, counting, out, ticks, _CHECK_ROUNDS)
    sums = operands.widen(gpu.download(out, np.uint8), step.dtype)
    _require_count(step.dtype, 2 * sums.sum(), _CHECK_ROUNDS * round_ops)

    values = gpu.upload(operands.contractions(step.dtype, half, half))
    launch = partial(gpu.launch, kernel, blocks, CORE_THREADS, values, out, ticks)
    rounds = rounds_of_run(gpu, launch)
    sample = measure(gpu, partial(launch, rounds), repeats)
    cycles, nanoseconds = gpu.download(ticks, np.int64).reshape(-1, 2).T
    low, clock, high = np.percentile(cycles / nanoseconds * 1e9, (25, 50, 75))
    return (
        reading("peak_flops", step.dtype, rounds * round_ops, "op/s", sample),
        Reading("clock", step.dtype, float(clock), "Hz", float((high - low) / clock)),
    )


def mma_flops(gpu: Gpu, arch: str, step: MatrixStep, repeats: int) -> Reading:
    """The rate of ``mma.sync``, which all matrix units since sm_80 have.

    Raises:
        CalibrationError: the kernel did not do the operations that are counted.
    """
    kernel = gpu.load(compile_cuda(step.source(), arch), "products")
    blocks = gpu.resident_blocks(kernel, MMA_THREADS)
    warps = blocks * MMA_THREADS // _WARP
    products = _Products(
        kernel=kernel,
        blocks=blocks,
        threads=MMA_THREADS,
        operand_bytes=step.operand_count * _REGISTER_BYTES[step.operand],
        sum_count=blocks * MMA_THREADS * step.sum_count,
        sum_dtype=_SUM_DTYPES[step.sum_kind],
        round_ops=2.0 * warps * MMA_STEPS * MMA_ROWS * MMA_COLUMNS * math.prod(step.shape),
    )
    variant = f"{step.dtype} mma.m{step.shape[0]}n{step.shape[1]}k{step.shape[2]}"
    return _rate(gpu, products, step.dtype, variant, repeats)


def wgmma_flops(gpu: Gpu, arch: str, step: WarpGroupStep, repeats: int) -> Reading:
    """The rate of ``wgmma``, which only sm_90a has.

    Raises:
        CalibrationError: the kernel did not do the operations that are counted.
    """
    kernel = gpu.load(compile_cuda(step.source(), arch), "products", WGMMA_SHARED_BYTES)
    blocks = gpu.resident_blocks(kernel, WGMMA_THREADS)
    sum_count = blocks * WGMMA_THREADS * WGMMA_SUMS
    products = _Products(
        kernel=kernel,
        blocks=blocks,
        threads=WGMMA_THREADS,
        operand_bytes=WGMMA_SHARED_BYTES,
        sum_count=sum_count,
        sum_dtype=_SUM_DTYPES["r" if step.dtype == "int8" else "f"],
        round_ops=2.0 * sum_count * WGMMA_STEPS * step.depth,
    )
    return _rate(gpu, products, step.dtype, f"{step.dtype} wgmma.m64n256k{step.depth}", repeats)


@dataclass(frozen=True, slots=True)
class _Products:
    """A kernel ``products``, its launch, and what one round of it does."""

    kernel: LoadedKernel
    blocks: int
    threads: int
    operand_bytes: int
    sum_count: int
    sum_dtype: type[np.generic]
    round_ops: float


def _rate(gpu: Gpu, products: _Products, dtype: str, variant: str, repeats: int) -> Reading:
    """Measure a rate of products, after a check that all of them were computed."""
    out = gpu.allocate(products.sum_count * np.dtype(products.sum_dtype).itemsize)
    launch = partial(gpu.launch, products.kernel, products.blocks, products.threads)

    launch(gpu.upload(operands.ones(dtype, products.operand_bytes)), out, _CHECK_ROUNDS)
    counted = 2 * gpu.download(out, products.sum_dtype).astype(np.float64).sum()
    _require_count(variant, counted, _CHECK_ROUNDS * products.round_ops)

    values = gpu.upload(operands.normal(dtype, products.operand_bytes))
    rounds = rounds_of_run(gpu, partial(launch, values, out))
    sample = measure(gpu, partial(launch, values, out, rounds), repeats)
    return reading("matrix_flops", variant, rounds * products.round_ops, "op/s", sample)


def _require_count(what: str, found: float, expected: float) -> None:
    """Refuse a kernel that did not do the operations that are counted."""
    if found != expected:
        raise CalibrationError(
            "an arithmetic kernel must do the operations that its rate is computed from",
            f"{found:g} instead of {expected:g} with {what}",
            "report it with the GPU's name and its driver's version",
        )
