"""Bytes a second that move between memories and registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from tvm_tile.build.cuda import compile_cuda
from tvm_tile.calibrate.driver import Buffer, Gpu, GpuFacts
from tvm_tile.calibrate.sources import COPY_DEPTH, READ_DEPTH, SHARED_THREADS, kernel_text
from tvm_tile.calibrate.timing import measure, reading, rounds_of_run
from tvm_tile.device import Reading
from tvm_tile.errors import CalibrationError

_VECTOR = 16
# Far more than any cache holds; less where the GPU has little memory.
_LARGEST_BUFFER = 2 << 30
# A share of the second-level cache that surely stays in it.
_CACHED_SHARE = 0.3
_BLOCK_SIZES = (256, 512, 1024)
# Enough to tell launch shapes apart; the best is then measured in full.
_TRIAL_REPEATS, _TRIAL_WARM_UP_S = 5, 0.03
_CHECKED_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Memories:
    """The kernels of ``memory.cu`` on one GPU, with a buffer of numbers and an empty one."""

    gpu: Gpu
    l2_capacity: int
    processors: int
    repeats: int
    cubin: bytes
    numbers: Buffer
    empty: Buffer

    def copy(self) -> Reading:
        """Device memory to device memory; reads and writes counted; the driver's copy or the
        best launch shape of a kernel.

        Raises:
            CalibrationError: the copy differs.
        """
        kernel = self.gpu.load(self.cubin, "copy")
        launches: list[Callable[[], None]] = [partial(self.gpu.copy, self.numbers, self.empty)]
        for threads in _BLOCK_SIZES:
            chunks = self.numbers.size // (_VECTOR * COPY_DEPTH * threads)
            # One block a chunk, or as many blocks as fit at once.
            for blocks in (chunks, self.gpu.resident_blocks(kernel, threads)):
                arguments = (self.numbers, self.empty, chunks)
                launches.append(partial(self.gpu.launch, kernel, blocks, threads, *arguments))
        found = self._best(launches, "copy_bandwidth", 2 * self.numbers.size)
        self._check_copy()
        return found

    def read(self) -> Reading:
        """Device memory to registers, by the best launch shape.

        Raises:
            CalibrationError: not every word was read once.
        """
        kernel = self.gpu.load(self.cubin, "read")
        launches: list[Callable[[], None]] = []
        for threads in _BLOCK_SIZES:
            chunk = _VECTOR * READ_DEPTH * threads
            blocks = self.gpu.resident_blocks(kernel, threads)
            out = self.gpu.allocate(4 * blocks * threads)
            arguments = (self.numbers, out)
            self.gpu.launch(kernel, blocks, threads, *arguments, _CHECKED_BYTES // chunk)
            self._check_sum("read", out, out.size, _CHECKED_BYTES)
            launch = partial(self.gpu.launch, kernel, blocks, threads, *arguments)
            launches.append(partial(launch, self.numbers.size // chunk))
        return self._best(launches, "read_bandwidth", self.numbers.size)

    def read_l2(self) -> Reading:
        """Second-level cache to registers: every multiprocessor reads all of a working set.

        Raises:
            CalibrationError: not every word was read once a walk.
        """
        kernel = self.gpu.load(self.cubin, "read_l2")
        threads = 512
        chunk = _VECTOR * READ_DEPTH * threads
        chunks = int(self.l2_capacity * _CACHED_SHARE) // chunk
        processors = self.processors
        resident = self.gpu.resident_blocks(kernel, threads)
        # At most a chunk each, and as many on every multiprocessor.
        blocks = min(resident, chunks) // processors * processors or min(resident, chunks)
        out = self.gpu.allocate(4 * blocks * threads)
        launch = partial(self.gpu.launch, kernel, blocks, threads, self.numbers, out, chunks)
        launch(chunks)
        self._check_sum("read_l2", out, 4 * threads, chunks * chunk)
        rounds = rounds_of_run(self.gpu, launch)
        sample = measure(self.gpu, partial(launch, rounds), self.repeats)
        return reading("l2_bandwidth", "", float(blocks) * rounds * chunk, "B/s", sample)

    def read_shared(self) -> Reading:
        """Shared memory to registers, without bank conflicts.

        Raises:
            CalibrationError: not every word was read once a round.
        """
        kernel = self.gpu.load(self.cubin, "read_shared")
        blocks = self.gpu.resident_blocks(kernel, SHARED_THREADS)
        out = self.gpu.allocate(4 * blocks * SHARED_THREADS)
        launch = partial(self.gpu.launch, kernel, blocks, SHARED_THREADS, self.numbers, out)
        chunk = _VECTOR * READ_DEPTH * SHARED_THREADS
        launch(1)
        self._check_sum("read_shared", out, 4 * SHARED_THREADS, chunk)
        rounds = rounds_of_run(self.gpu, launch)
        sample = measure(self.gpu, partial(launch, rounds), self.repeats)
        return reading("shared_bandwidth", "", float(blocks) * rounds * chunk, "B/s", sample)

    def _best(self, launches: list[Callable[[], None]], quantity: str, work: float) -> Reading:
        """Rate of the fastest of several launch shapes."""
        trials = [
            measure(self.gpu, launch, _TRIAL_REPEATS, warm_up_s=_TRIAL_WARM_UP_S).seconds
            for launch in launches
        ]
        best = launches[int(np.argmin(trials))]
        return reading(quantity, "", work, "B/s", measure(self.gpu, best, self.repeats))

    def _check_copy(self) -> None:
        """Check that a copy moved every word."""
        kernel = self.gpu.load(self.cubin, "count_differences")
        differences = self.gpu.allocate(4)
        count = self.numbers.size // _VECTOR
        blocks = self.gpu.resident_blocks(kernel, 256)
        self.gpu.launch(kernel, blocks, 256, self.numbers, self.empty, count, differences)
        _require("copy", int(self.gpu.download(differences, np.uint32)[0]) == 0)

    def _check_sum(self, kernel: str, out: Buffer, out_size: int, size: int) -> None:
        """The first ``out_size`` bytes of sums must add up to the first ``size`` of numbers."""
        found, expected = (
            int(np.bitwise_xor.reduce(self.gpu.download(buffer, np.uint32, length)))
            for buffer, length in ((out, out_size), (self.numbers, size))
        )
        _require(kernel, found == expected)


def open_memories(gpu: Gpu, facts: GpuFacts, arch: str, repeats: int) -> Memories:
    """Compile the kernels and fill the buffers."""
    cubin = compile_cuda(kernel_text("memory"), arch)
    size = _LARGEST_BUFFER
    while size > gpu.free_memory() // 4:
        size //= 2
    numbers, empty = gpu.allocate(size), gpu.allocate(size)
    kernel = gpu.load(cubin, "fill")
    gpu.launch(kernel, gpu.resident_blocks(kernel, 256), 256, numbers, size // _VECTOR)
    return Memories(
        gpu, facts.l2_capacity, facts.multi_processor_count, repeats, cubin, numbers, empty
    )


def _require(kernel: str, holds: bool) -> None:
    """Refuse a memory kernel whose result is wrong."""
    if not holds:
        raise CalibrationError(
            "a memory kernel must move every byte as it is",
            f"the result of {kernel} differs",
            "see that the GPU's memory is healthy (nvidia-smi -q -d ECC)",
        )
