"""A thin layer over CUDA's driver: one GPU, one stream, and everything is released at the end."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_tile.errors import CalibrationError

_NO_GPU = "calibration needs an NVIDIA GPU, its driver, and cuda-bindings"
_NO_GPU_REMEDY = 'run it where `nvidia-smi` lists a GPU; pip install "tvm_tile[cuda]"'


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """Properties of a GPU as its driver tells them: bytes, Hz, counts.

    Attributes:
        name: the marketing name, such as ``"NVIDIA H200"``.
        driver: the driver's version and the CUDA version that it serves.
        compute_version: compute capability, such as ``(9, 0)``.
        shared_memory_per_block: without opting in to more.
        shared_memory_per_block_optin: the most that one block can have.
        clock: the highest of the multiprocessors.
    """

    name: str
    driver: str
    compute_version: tuple[int, int]
    multi_processor_count: int
    warp_size: int
    max_threads_per_block: int
    max_threads_per_multi_processor: int
    registers_per_block: int
    registers_per_multi_processor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multi_processor: int
    l2_capacity: int
    global_capacity: int
    clock: float


@dataclass(frozen=True, slots=True)
class Buffer:
    """Device memory; freed with its GPU."""

    address: int
    size: int


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A loaded kernel, and the dynamic shared memory that its launches get."""

    function: Any
    shared_bytes: int


class Gpu:
    """The first GPU, made current; use :func:`first_gpu`."""

    def __init__(self, api: Any, stack: ExitStack) -> None:
        self._api = api
        self._stack = self._lasting = stack
        self._call(api.cuInit, 0)
        self._device = self._call(api.cuDeviceGet, 0)
        # Released last: what is in it goes first.
        context = self._call(api.cuDevicePrimaryCtxRetain, self._device)
        stack.callback(api.cuDevicePrimaryCtxRelease, self._device)
        self._call(api.cuCtxSetCurrent, context)
        self._stream = self._call(
            api.cuStreamCreate, api.CUstream_flags.CU_STREAM_NON_BLOCKING.value
        )
        stack.callback(api.cuStreamDestroy, self._stream)
        # Timing events, by pairs.
        self._events: list[Any] = []

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The first value of a driver call, whose answer is (status, values...).

        Raises:
            CalibrationError: the status is not success.
        """
        status, *values = function(*arguments)
        if int(status) != 0:
            raise CalibrationError(
                "CUDA's driver must serve every call of the calibration",
                f"{function.__name__}: {getattr(status, 'name', status)}",
                "see that the GPU is free and healthy (nvidia-smi), then calibrate again",
            )
        return values[0] if values else None

    def _attribute(self, name: str) -> int:
        """An attribute of the GPU, from the driver."""
        attribute = getattr(self._api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._call(self._api.cuDeviceGetAttribute, attribute, self._device))

    def facts(self) -> GpuFacts:
        """The driver's facts about the GPU."""
        api, read = self._api, self._attribute
        name = bytes(self._call(api.cuDeviceGetName, 256, self._device))
        return GpuFacts(
            name=name.partition(b"\0")[0].decode(),
            driver=_driver_version(self._call(api.cuDriverGetVersion)),
            compute_version=(
                read("COMPUTE_CAPABILITY_MAJOR"),
                read("COMPUTE_CAPABILITY_MINOR"),
            ),
            multi_processor_count=read("MULTIPROCESSOR_COUNT"),
            warp_size=read("WARP_SIZE"),
            max_threads_per_block=read("MAX_THREADS_PER_BLOCK"),
            max_threads_per_multi_processor=read("MAX_THREADS_PER_MULTIPROCESSOR"),
            registers_per_block=read("MAX_REGISTERS_PER_BLOCK"),
            registers_per_multi_processor=read("MAX_REGISTERS_PER_MULTIPROCESSOR"),
            shared_memory_per_block=read("MAX_SHARED_MEMORY_PER_BLOCK"),
            shared_memory_per_block_optin=read("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            shared_memory_per_multi_processor=read("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
            l2_capacity=read("L2_CACHE_SIZE"),
            global_capacity=int(self._call(api.cuDeviceTotalMem, self._device)),
            clock=read("CLOCK_RATE") * 1e3,
        )

    def free_memory(self) -> int:
        """Bytes that can still be allocated, about."""
        return int(self._call(self._api.cuMemGetInfo))

    def allocate(self, size: int) -> Buffer:
        """Device memory of ``size`` bytes, all zero."""
        pointer = self._call(self._api.cuMemAlloc, size)
        self._stack.callback(self._api.cuMemFree, pointer)
        self._call(self._api.cuMemsetD8Async, pointer, 0, size, self._stream)
        return Buffer(int(pointer), size)

    def upload(self, values: npt.NDArray[Any]) -> Buffer:
        """Device memory with the bytes of ``values``."""
        buffer = self.allocate(values.nbytes)
        self.write(buffer, values)
        return buffer

    def write(self, buffer: Buffer, values: npt.NDArray[Any]) -> None:
        """Fill a buffer with the bytes of ``values``, again and again where it is larger."""
        values = np.ascontiguousarray(values)
        written = min(buffer.size, values.nbytes)
        where = (buffer.address, values.ctypes.data, written, self._stream)
        self._call(self._api.cuMemcpyHtoDAsync, *where)
        while written < buffer.size:
            # What is there already is a whole number of times the values.
            rest = Buffer(buffer.address + written, buffer.size - written)
            self.copy(Buffer(buffer.address, written), rest)
            written += min(written, rest.size)
        self.synchronize()

    def download(self, buffer: Buffer, dtype: npt.DTypeLike, size: int = 0) -> npt.NDArray[Any]:
        """The first ``size`` bytes of a buffer (all by default), one axis of ``dtype``."""
        values = np.empty((size or buffer.size) // np.dtype(dtype).itemsize, dtype)
        self.synchronize()
        self._call(self._api.cuMemcpyDtoH, values.ctypes.data, buffer.address, values.nbytes)
        return values

    def copy(self, source: Buffer, target: Buffer) -> None:
        """Queue the driver's own copy of a whole buffer."""
        size = min(source.size, target.size)
        self._call(self._api.cuMemcpyDtoDAsync, target.address, source.address, size, self._stream)

    def load(self, cubin: bytes, name: str, shared_bytes: int = 0) -> LoadedKernel:
        """A kernel of a cubin, with that much dynamic shared memory."""
        image = ctypes.create_string_buffer(cubin, len(cubin))
        module = self._call(self._api.cuModuleLoadData, ctypes.addressof(image))
        self._stack.callback(self._api.cuModuleUnload, module)
        function = self._call(self._api.cuModuleGetFunction, module, name.encode())
        if shared_bytes:
            attributes = self._api.CUfunction_attribute
            wanted = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call(self._api.cuFuncSetAttribute, function, wanted, shared_bytes)
        return LoadedKernel(function, shared_bytes)

    def resident_blocks(self, kernel: LoadedKernel, threads: int) -> int:
        """How many blocks of a kernel the GPU holds at once."""
        query = self._api.cuOccupancyMaxActiveBlocksPerMultiprocessor
        blocks = int(self._call(query, kernel.function, threads, kernel.shared_bytes))
        return blocks * self._attribute("MULTIPROCESSOR_COUNT")

    def launch(
        self,
        kernel: LoadedKernel,
        blocks: int,
        threads: int,
        *arguments: Buffer | int,
        cooperative: bool = False,
        dependent: bool = False,
    ) -> None:
        """Queue a kernel; integers are passed as ``int``.

        A dependent one may start before the kernel before it has ended, and must wait itself.
        """
        values = [
            ctypes.c_void_p(argument.address)
            if isinstance(argument, Buffer)
            else ctypes.c_int32(argument)
            for argument in arguments
        ]
        # The driver copies the values before it returns.
        pointers = (ctypes.c_void_p * max(1, len(values)))(*map(ctypes.addressof, values))
        shape = (blocks, 1, 1, threads, 1, 1, kernel.shared_bytes, self._stream)
        where = ctypes.addressof(pointers)
        if cooperative:
            self._call(self._api.cuLaunchCooperativeKernel, kernel.function, *shape, where)
        elif dependent:
            config = self._dependent_launch(blocks, threads, kernel.shared_bytes)
            self._call(self._api.cuLaunchKernelEx, config, kernel.function, where, 0)
        else:
            self._call(self._api.cuLaunchKernel, kernel.function, *shape, where, 0)

    def _dependent_launch(self, blocks: int, threads: int, shared_bytes: int) -> Any:
        """Configuration of a launch that starts while the kernel before it ends."""
        attribute, config = self._api.CUlaunchAttribute(), self._api.CUlaunchConfig()
        attributes = self._api.CUlaunchAttributeID
        attribute.id = attributes.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        config.gridDimX, config.gridDimY, config.gridDimZ = blocks, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes, config.hStream = shared_bytes, self._stream
        config.attrs, config.numAttrs = [attribute], 1
        return config

    def graph(self, queue: Callable[[], None]) -> Callable[[], None]:
        """A graph of the launches of ``queue``: the function that queues it."""
        api = self._api
        mode = api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._call(api.cuStreamBeginCapture, self._stream, mode)
        queue()
        graph = self._call(api.cuStreamEndCapture, self._stream)
        self._stack.callback(api.cuGraphDestroy, graph)
        executable = self._call(api.cuGraphInstantiate, graph, 0)
        self._stack.callback(api.cuGraphExecDestroy, executable)
        return lambda: self._call(api.cuGraphLaunch, executable, self._stream)

    @property
    def stream(self) -> int:
        """Handle of the stream that everything is queued on."""
        return int(self._stream)

    def clear(self, buffer: Buffer, byte: int = 0) -> None:
        """Queue the same byte for a whole buffer, which then is what the caches hold."""
        self._call(self._api.cuMemsetD8Async, buffer.address, byte, buffer.size, self._stream)

    @contextmanager
    def short_lived(self) -> Iterator[None]:
        """Within, what is made is released on leaving, not with the GPU."""
        kept = self._stack
        with ExitStack() as self._stack:
            yield
        self._stack = kept

    def synchronize(self) -> None:
        """Wait for all that is queued.

        Raises:
            CalibrationError: a kernel failed.
        """
        self._call(self._api.cuStreamSynchronize, self._stream)

    def time(
        self,
        queue: Callable[[], None],
        repeats: int = 1,
        before: Callable[[], None] = lambda: None,
    ) -> list[float]:
        """Seconds that each of ``repeats`` runs takes on the GPU, without what ``before`` queues.

        All runs are queued at once: the GPU does not rest between them.
        """
        events = self._timing_events(2 * repeats)
        pairs = list(zip(events[0::2], events[1::2], strict=True))
        for start, stop in pairs:
            before()
            self._call(self._api.cuEventRecord, start, self._stream)
            queue()
            self._call(self._api.cuEventRecord, stop, self._stream)
        self.synchronize()
        return [self._elapsed(*pair) for pair in pairs]

    def turns(self, queues: Sequence[Callable[[], None]], repeats: int) -> list[tuple[float, ...]]:
        """Seconds that each queue's work takes on the GPU, all of them by turns, ``repeats`` times.

        All is queued at once, behind a turn that is not timed: so the GPU does not wait for the
        host, and clocks are the same for all.
        """
        events = self._timing_events(1 + repeats * len(queues))
        for queue in queues:
            queue()
        self._call(self._api.cuEventRecord, events[0], self._stream)
        for queue, event in zip(list(queues) * repeats, events[1:], strict=True):
            queue()
            self._call(self._api.cuEventRecord, event, self._stream)
        self.synchronize()
        seconds = [self._elapsed(*pair) for pair in pairwise(events)]
        count = len(queues)
        return [tuple(seconds[n : n + count]) for n in range(0, len(seconds), count)]

    def _timing_events(self, count: int) -> list[Any]:
        """Events that tell the time; they are kept for the next time."""
        while len(self._events) < count:
            event = self._call(self._api.cuEventCreate, 0)
            self._lasting.callback(self._api.cuEventDestroy, event)
            self._events.append(event)
        return self._events[:count]

    def _elapsed(self, start: Any, stop: Any) -> float:
        """Seconds from one event to another."""
        return float(self._call(self._api.cuEventElapsedTime, start, stop)) * 1e-3


@contextmanager
def first_gpu() -> Iterator[Gpu]:
    """The first NVIDIA GPU; all that was made with it is released on leaving.

    Raises:
        CalibrationError: there is none, or its driver or cuda-bindings is missing.
    """
    try:
        from cuda.bindings import driver

        status, count = 0, 0
        (status,) = driver.cuInit(0)
        if int(status) == 0:
            status, count = driver.cuDeviceGetCount()
    except (ImportError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise CalibrationError(_NO_GPU, reason, _NO_GPU_REMEDY) from error
    if int(status) != 0 or count == 0:
        found = getattr(status, "name", str(status)) if int(status) else "no GPU"
        raise CalibrationError(_NO_GPU, found, _NO_GPU_REMEDY)
    with ExitStack() as stack:
        yield Gpu(driver, stack)


def _driver_version(cuda: int) -> str:
    """Version of the driver, and of the CUDA that it serves."""
    served = f"CUDA {cuda // 1000}.{cuda % 1000 // 10}"
    program = shutil.which("nvidia-smi")
    if program is None:
        return served
    query = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False, timeout=60)
    lines = done.stdout.split()
    return f"{lines[0]} ({served})" if done.returncode == 0 and lines else served
