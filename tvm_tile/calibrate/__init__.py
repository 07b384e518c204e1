"""Measure the GPU that is present, and write down what a device record needs.

Own micro-kernels, compiled with NVRTC and launched through CUDA's driver, measure rates and
latencies, and what kernels gain that start early (``dependent.py``): neither TVM nor a library of
kernels takes part. ``tvm-tile calibrate --fit`` measures tiles of kernels, too (``tiles.py``), for
some minutes more: on arguments that the GPU draws (``tensors.py``), and each behind a kernel of
other code (``rows.py``). It fits the numbers of the one model of time to them (``fit.py``).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version

from tvm_tile._version import __version__
from tvm_tile.calibrate.arithmetic import cuda_core_flops, mma_flops, wgmma_flops
from tvm_tile.calibrate.dependent import FIRST_WITH, dependent_launches
from tvm_tile.calibrate.driver import Gpu, GpuFacts, first_gpu
from tvm_tile.calibrate.latency import grid_barrier_latency, launch_latencies
from tvm_tile.calibrate.memory import open_memories
from tvm_tile.calibrate.record import assemble, compare, describe, nearest_record
from tvm_tile.calibrate.sources import CORE_STEPS_BY_DTYPE, MATRIX_STEPS, WARP_GROUP_STEPS
from tvm_tile.device import Device, Reading
from tvm_tile.errors import CalibrationError

__all__ = ["calibrate", "compare", "nearest_record"]

REPEATS = 15
_TOOLS = ("cuda-bindings", "nvidia-cuda-nvrtc")


def calibrate(
    repeats: int = REPEATS, progress: Callable[[str], None] = lambda line: None
) -> tuple[Device, Device]:
    """Measure the first NVIDIA GPU, in less than a minute.

    Args:
        repeats: number of repetitions of each measurement, after a warm-up; medians are kept.
        progress: called with one line for each number measured.

    Returns:
        The record as measured, and the built-in one of the nearest GPU.

    Raises:
        CalibrationError: there is no GPU, its driver failed, or a kernel's result is wrong.
        CompilerNotFoundError: no compiler makes code for the GPU.
        DeviceTooSmallError: the GPU is older than any that there is a record of.
    """
    if repeats < 1:
        raise CalibrationError("there must be one repeat or more", str(repeats), "pass 15")
    with first_gpu() as gpu:
        facts = gpu.facts()
        built_in = nearest_record(facts)
        progress(f"{facts.name}, up to {facts.clock / 1e9:.2f} GHz, driver {facts.driver}")
        readings = []
        for reading in _measure(gpu, facts, str(dict(built_in.target)["arch"]), repeats):
            progress(describe(reading))
            readings.append(reading)
    today = datetime.date.today().isoformat()
    return assemble(facts, tuple(readings), date=today, versions=_versions()), built_in


def _versions() -> tuple[tuple[str, str], ...]:
    """Versions of the packages that measure."""
    found = [("tvm_tile", __version__)]
    for name in _TOOLS:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:  # nvcc took its place
            continue
    return tuple(found)


def _measure(gpu: Gpu, facts: GpuFacts, arch: str, repeats: int) -> Iterator[Reading]:
    """Every reading, cool work first: what follows arithmetic starts on a warm GPU."""
    yield from launch_latencies(gpu, arch, facts, repeats)
    yield grid_barrier_latency(gpu, arch, facts, repeats)
    if facts.compute_version >= FIRST_WITH:
        yield from dependent_launches(gpu, arch, facts, repeats)
    memories = open_memories(gpu, facts, arch, repeats)
    yield memories.copy()
    yield memories.read()
    yield memories.read_l2()
    yield memories.read_shared()
    for core_step in CORE_STEPS_BY_DTYPE:
        if facts.compute_version >= core_step.since:
            yield from cuda_core_flops(gpu, arch, core_step, repeats)
    for step in MATRIX_STEPS:
        if step.is_on(facts.compute_version):
            yield mma_flops(gpu, arch, step, repeats)
    if arch == "sm_90a":
        for warp_group_step in WARP_GROUP_STEPS:
            yield wgmma_flops(gpu, arch, warp_group_step, repeats)
