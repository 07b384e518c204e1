"""Time that a kernel of a graph saves by starting while the one before it ends."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tvm_tile.build.cuda import compile_cuda
from tvm_tile.calibrate.driver import Gpu, GpuFacts, LoadedKernel
from tvm_tile.calibrate.sources import kernel_text
from tvm_tile.calibrate.timing import measure
from tvm_tile.device import Reading
from tvm_tile.errors import CalibrationError

FIRST_WITH = (9, 0)
_QUANTITY = "dependent_launches"
_THREADS = 256
_STEPS = 400


def dependent_launches(gpu: Gpu, arch: str, facts: GpuFacts, repeats: int) -> Iterator[Reading]:
    """Times that each step of a chain saves, and that waiting takes.

    Three chains of the same small kernels, in graphs: without any wait, with one behind ordinary
    launches, and behind dependent ones. There is a block a multiprocessor, which is given so much
    shared memory that no other fits beside it, as kernels are that start early.

    Raises:
        CalibrationError: a kernel read what was not there yet.
    """
    cubin, blocks = compile_cuda(kernel_text("dependent"), arch), facts.multi_processor_count
    alone = 2 * facts.shared_memory_per_block_optin // 3
    ordinary, waiting = (gpu.load(cubin, name, alone) for name in ("ordinary", "waiting"))
    plain = _step_seconds(gpu, ordinary, blocks, repeats, dependent=False)
    waits = _step_seconds(gpu, waiting, blocks, repeats, dependent=False)
    early = _step_seconds(gpu, waiting, blocks, repeats, dependent=True)
    yield Reading(_QUANTITY, "overlap", max(0.0, waits - early), "s", None)
    yield Reading(_QUANTITY, "wait", max(0.0, waits - plain), "s", None)


def _step_seconds(
    gpu: Gpu, kernel: LoadedKernel, blocks: int, repeats: int, *, dependent: bool
) -> float:
    """Seconds of one step of a chain between two buffers, captured into a graph."""
    # As many words as threads, all zero; each step adds one.
    buffers = [gpu.allocate(4 * blocks * _THREADS) for _ in range(2)]

    def queue() -> None:
        for number in range(_STEPS):
            pair = buffers[number % 2], buffers[1 - number % 2]
            gpu.launch(kernel, blocks, _THREADS, *pair, dependent=dependent)

    graph = gpu.graph(queue)
    graph()
    found = gpu.download(buffers[_STEPS % 2], np.int32)
    if not (found == _STEPS).all():
        raise CalibrationError(
            "each kernel of a chain must see what the one before it wrote",
            f"{int((found != _STEPS).sum())} of {found.size} words are wrong",
            "report it with the GPU's name and its driver's version",
        )
    return measure(gpu, graph, repeats).seconds / _STEPS
