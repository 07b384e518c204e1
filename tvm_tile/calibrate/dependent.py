"""Time that a kernel of a graph saves by starting while the one before it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from tvm_tile.build.cuda import compile_cuda
from tvm_tile.build.dependent_launches import ASK_AHEAD, LINE
from tvm_tile.calibrate.driver import Buffer, Gpu, GpuFacts, LoadedKernel
from tvm_tile.calibrate.sources import kernel_text
from tvm_tile.calibrate.timing import Sample, measure
from tvm_tile.device import Reading
from tvm_tile.errors import CalibrationError

FIRST_WITH = (9, 0)
_QUANTITY = "dependent_launches"
_THREADS = 256
_STEPS = 400
# Kernels with constants of their own: all of them far more than any second-level cache holds.
_FETCHING, _CONSTANT_BYTES = 32, 16 << 20
_AHEAD_BYTES = tuple(size << 10 for size in (256, 512, 1024, 2048, 4096, 8192, 16384))


def dependent_launches(gpu: Gpu, arch: str, facts: GpuFacts, repeats: int) -> Iterator[Reading]:
    """Times that each step of a chain saves, that waiting takes, and that fetching ahead gains.

    Three chains of the same small kernels, in graphs: without any wait, with one behind ordinary
    launches, and behind dependent ones. Then chains of kernels that read constants of their own,
    more or less of which they ask for before they wait.

    Raises:
        CalibrationError: a kernel read what was not there yet.
    """
    text = ASK_AHEAD + kernel_text("dependent")
    cubin = compile_cuda(text, arch)
    chains = _Chains(gpu, facts.multi_processor_count)
    ordinary, waiting = (gpu.load(cubin, name) for name in ("ordinary", "waiting"))
    plain = chains.seconds(ordinary, repeats, dependent=False)
    waits = chains.seconds(waiting, repeats, dependent=False)
    early = chains.seconds(waiting, repeats, dependent=True)
    yield Reading(_QUANTITY, "overlap", max(0.0, waits - early), "s", None)
    yield Reading(_QUANTITY, "wait", max(0.0, waits - plain), "s", None)
    fetching = gpu.load(cubin, "fetching")
    constants = gpu.allocate(_FETCHING * _CONSTANT_BYTES)
    late = chains.fetching(fetching, constants, 0, repeats)
    tried = {size: chains.fetching(fetching, constants, size, repeats) for size in _AHEAD_BYTES}
    size, best = min(tried.items(), key=lambda pair: pair[1].seconds)
    # Less than the noise is nothing.
    gained = late.seconds - best.seconds
    pays = gained > late.seconds * max(late.spread, best.spread)
    yield Reading(_QUANTITY, "ahead", float(size) if pays else 0.0, "B", None)
    yield Reading(_QUANTITY, "fetched", gained / _FETCHING if pays else 0.0, "s", None)


class _Chains:
    """Chains between two buffers, in graphs, with as many blocks as there are multiprocessors."""

    def __init__(self, gpu: Gpu, blocks: int) -> None:
        self._gpu = gpu
        self._blocks = blocks
        self._size = 4 * blocks * _THREADS

    def seconds(self, kernel: LoadedKernel, repeats: int, *, dependent: bool) -> float:
        """Seconds of one step of a chain."""
        launch = partial(self._launch, kernel, dependent=dependent)
        return self._sample(launch, _STEPS, repeats).seconds / _STEPS

    def fetching(self, kernel: LoadedKernel, constants: Buffer, ahead: int, repeats: int) -> Sample:
        """Time a whole chain, each of whose kernels asks for ``ahead`` bytes before it waits."""
        lines = _CONSTANT_BYTES // LINE

        def launch(from_: Buffer, into: Buffer, number: int) -> None:
            arguments = (from_, into, constants, lines, number, ahead // LINE)
            self._gpu.launch(kernel, self._blocks, _THREADS, *arguments, dependent=True)

        return self._sample(launch, _FETCHING, repeats)

    def _launch(
        self, kernel: LoadedKernel, from_: Buffer, into: Buffer, _number: int, *, dependent: bool
    ) -> None:
        """Launch one kernel of a chain."""
        self._gpu.launch(kernel, self._blocks, _THREADS, from_, into, dependent=dependent)

    def _sample(
        self, launch: Callable[[Buffer, Buffer, int], None], steps: int, repeats: int
    ) -> Sample:
        """Seconds of a chain of launches, captured into a graph."""
        # As many words as threads, all zero; each step adds one.
        buffers = [self._gpu.allocate(self._size) for _ in range(2)]

        def queue() -> None:
            for number in range(steps):
                launch(buffers[number % 2], buffers[1 - number % 2], number)

        graph = self._gpu.graph(queue)
        graph()
        found = self._gpu.download(buffers[steps % 2], np.int32)
        if not (found == steps).all():
            raise CalibrationError(
                "each kernel of a chain must see what the one before it wrote",
                f"{int((found != steps).sum())} of {found.size} words are wrong",
                "report it with the GPU's name and its driver's version",
            )
        return measure(self._gpu, graph, repeats)
