"""Time to start a kernel, and to let all blocks of a launch wait for one another."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tvm_tile.build.cuda import compile_cuda
from tvm_tile.calibrate.driver import Gpu, GpuFacts
from tvm_tile.calibrate.sources import kernel_text
from tvm_tile.calibrate.timing import measure, summarize
from tvm_tile.device import Reading
from tvm_tile.errors import CalibrationError

_THREADS = 128
# A stream takes about a thousand launches before it makes the host wait.
_STREAM_KERNELS = 400
_GRAPH_KERNELS = 800
# Longer than the host takes to queue these.
_SPIN_NS = 20_000_000
_BARRIERS = 1000
_CHECKED_BARRIERS = 100


def launch_latencies(gpu: Gpu, arch: str, facts: GpuFacts, repeats: int) -> tuple[Reading, Reading]:
    """Seconds from one empty kernel to the next: queued one by one, and inside a graph.

    Both wait behind a kernel that spins, so that the GPU is timed and not the host.
    """
    cubin = compile_cuda(kernel_text("latency"), arch)
    empty, spin = gpu.load(cubin, "empty"), gpu.load(cubin, "spin")
    launch = partial(gpu.launch, empty, facts.multi_processor_count, _THREADS)
    graph = gpu.graph(partial(_several, launch, _GRAPH_KERNELS))
    found = []
    for quantity, queue, count in (
        ("stream_launch_latency", partial(_several, launch, _STREAM_KERNELS), _STREAM_KERNELS),
        ("launch_latency", graph, _GRAPH_KERNELS),
    ):
        before = partial(gpu.launch, spin, 1, 1, _SPIN_NS)
        gpu.time(queue, 1, before)
        # One at a time: several would fill the stream.
        sample = summarize([gpu.time(queue, 1, before)[0] for _ in range(repeats)])
        found.append(Reading(quantity, "", sample.seconds / count, "s", sample.spread))
    return found[0], found[1]


def grid_barrier_latency(gpu: Gpu, arch: str, facts: GpuFacts, repeats: int) -> Reading:
    """One wait of all blocks for one another, with one block on each multiprocessor.

    Raises:
        CalibrationError: a block went on before another had arrived.
    """
    cubin = compile_cuda(kernel_text("latency"), arch)
    blocks = facts.multi_processor_count
    counter = gpu.allocate(4)
    told, wrong = gpu.allocate(4 * blocks), gpu.allocate(4)
    checked, timed = gpu.load(cubin, "checked_barriers"), gpu.load(cubin, "barriers")
    arguments = (counter, told, wrong, _CHECKED_BARRIERS)
    gpu.launch(checked, blocks, _THREADS, *arguments, cooperative=True)
    passed = int(gpu.download(told, np.uint32).min())
    errors = int(gpu.download(wrong, np.uint32)[0])
    if errors or passed != _CHECKED_BARRIERS:
        raise CalibrationError(
            "all blocks must wait at a grid barrier",
            f"{passed} of {_CHECKED_BARRIERS} barriers passed, {errors} blocks too early",
            "report it with the GPU's name and its driver's version",
        )
    queue = partial(gpu.launch, timed, blocks, _THREADS, counter, _BARRIERS, cooperative=True)
    sample = measure(gpu, queue, repeats)
    value = sample.seconds / _BARRIERS
    return Reading("grid_barrier_latency", "", value, "s", sample.spread)


def _several(launch: Callable[[], None], count: int) -> None:
    """Launch several times."""
    for _ in range(count):
        launch()
