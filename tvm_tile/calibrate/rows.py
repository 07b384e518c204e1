"""Kernels amid others: in rows of a graph, each behind a kernel of another code.

A model's kernel runs behind a different one. What it reads has been written a moment ago, so the
second-level cache has it; but its instructions are in no cache of a multiprocessor. Such a row is
measured here: between any two runs of a kernel there is a filler, long straight code that evicts
all instructions and touches hardly any memory (``kernels/filler.cu``). Two copies of it take turns,
so that a filler finds none of its own instructions either. A row of as many fillers without kernels
is timed by turns with it: it has the same clock and begins in the same way, and the difference is
what the kernels take::

    first kernel second kernel first kernel second kernel
    first second first second
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tvm_tile.build.cuda import compile_cuda
from tvm_tile.calibrate.driver import Gpu
from tvm_tile.calibrate.sources import FILLER_NAMES, FILLER_THREADS, kernel_text
from tvm_tile.device import Device

Queue = Callable[[], None]
# Kernels of a row, at most, each with its filler; and seconds of the kernels, about. Events resolve
# half a microsecond of a row: about 30 ns of one of twenty kernels, and less in a median of rows.
_COUNT, _COUNT_S = 20, 1e-3
# Rows, at most; and seconds of them, about.
_ROWS, _ROWS_S = 9, 5e-3
# What two fillers are expected to take; only the number of rows depends on it.
_FILLERS_S = 2e-5


@dataclass(frozen=True, slots=True)
class KernelRows:
    """Rows of kernels, to be timed.

    Attributes:
        gpu: the GPU that runs them.
        fillers: what queues the one filler, and the other.
        alone: graphs of fillers alone, by their number; they are made when they are needed.
    """

    gpu: Gpu
    fillers: tuple[Queue, Queue]
    alone: dict[int, Queue] = field(default_factory=dict)

    @classmethod
    def on(cls, gpu: Gpu, device: Device) -> KernelRows:
        """Rows on a GPU, whose record is ``device``.

        Raises:
            CompilerNotFoundError: no compiler makes code for it.
        """
        cubin = compile_cuda(kernel_text("filler"), str(dict(device.target)["arch"]))
        blocks, never = device.multi_processor_count, gpu.allocate(4)
        first, second = (
            partial(gpu.launch, gpu.load(cubin, name), blocks, FILLER_THREADS, never)
            for name in FILLER_NAMES
        )
        return cls(gpu, (first, second))

    def seconds(self, run: Queue, cold: float) -> float:
        """What a kernel takes behind another one, from the end of that to its own.

        Args:
            run: function that queues it.
            cold: about how many seconds it takes.
        """
        count = max(1, min(_COUNT, int(_COUNT_S / cold)))
        repeats = max(1, min(_ROWS, int(_ROWS_S / (count * (cold + _FILLERS_S)))))
        alone = self._alone(count)
        with self.gpu.short_lived():
            row = self.gpu.graph(partial(self._queue, count, 0, run))
            pairs = self.gpu.turns((row, alone), repeats)
        # Neighbours have the same clock.
        return float(np.median([both - own for both, own in pairs])) / count

    def _alone(self, count: int) -> Queue:
        """The graph of ``count`` fillers without kernels."""
        if count not in self.alone:
            # It ends with the second one, and a row begins with the first; of odd numbers it begins
            # with the second, since a row ends with the first: each is behind the other there, too.
            self.alone[count] = self.gpu.graph(partial(self._queue, count, count % 2))
        return self.alone[count]

    def _queue(self, count: int, start: int, run: Queue = lambda: None) -> None:
        """Queue ``count`` fillers by turns, a kernel behind each.

        Args:
            count: number of them.
            start: which filler is the first.
            run: function that queues the kernel.
        """
        for number in range(start, start + count):
            self.fillers[number % 2]()
            run()
