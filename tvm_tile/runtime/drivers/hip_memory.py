"""Memory of an AMD GPU for TVM: allocated by HIP, kept for reuse, copied.

TVM calls these functions from C++, which no exception of Python can cross. What fails is noted for
the thread and raised by the Python code around (:meth:`Failures.raised`), at the latest before a
kernel is launched. Until then an allocation that failed is a null pointer, and nothing is copied.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tvm_tile.errors import DeviceMemoryError
from tvm_tile.runtime.drivers.device_api import Place
from tvm_tile.runtime.drivers.hip import DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, Hip

ROCM = 10  # kDLROCM
_PAGE = 4096

# tvm::runtime::DeviceAttrKind
_EXISTS, _MAX_THREADS_PER_BLOCK, _WARP_SIZE, _MAX_SHARED_MEMORY_PER_BLOCK = 0, 1, 2, 3

_Owner = tuple[int, int, int]  # GPU, stream, and bytes
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Failures(threading.local):
    """Failures in the calling thread where no exception could be raised."""

    def __init__(self) -> None:
        self._first: BaseException | None = None
        self._is_awaited = False

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Raise at the end what failed inside, whatever TVM made of it."""
        self._first, self._is_awaited = None, True
        try:
            yield
        except Exception as error:
            failure = self._take()
            if failure is None:
                raise
            try:
                raise failure from error
            finally:
                del failure  # or its traceback's frame would keep it, and tensors with it
        finally:
            self._is_awaited = False
        self.check()

    def check(self) -> None:
        """Raise what failed before, if anything did."""
        failure = self._first
        if failure is not None:
            if not self._is_awaited:
                self._first = None
            try:
                raise failure
            finally:
                del failure

    def note(self, error: BaseException) -> None:
        """Keep a failure that cannot be raised; where nobody waits for it, log it as well."""
        if self._first is None:
            self._first = error
        if not self._is_awaited:
            logging.getLogger(__name__).error("%s", error)

    def keep(self, error: Exception) -> None:
        """Keep a failure that is raised through TVM, which makes an error of its own of it."""
        if self._is_awaited and self._first is None:
            self._first = error

    @property
    def pending(self) -> bool:
        """Whether something failed that has not been raised yet."""
        return self._first is not None

    def _take(self) -> BaseException | None:
        """The first failure that is kept, which is then forgotten."""
        failure, self._first = self._first, None
        return failure


def _noted(function: _Function) -> _Function:
    """Let no exception out: note it, and return None."""

    @functools.wraps(function)
    def call(self: HipMemory, *arguments: Any) -> Any:
        try:
            return function(self, *arguments)
        except BaseException as error:  # an interrupt, too, would end in C++
            self.failures.note(error)
            return None

    return call  # type: ignore[return-value]


class HipMemory:
    """A :class:`~tvm_tile.runtime.drivers.device_api.DeviceMemory` over HIP.

    Memory that TVM gives back is kept and handed out again to whoever asks for as many pages, as
    TVM's own pool does; all of it goes back to HIP when there is no other. (TVM's pool has a lock,
    which would be held while this code waits for Python's: two threads could stop each other.)

    As in torch, memory belongs to the stream that was current when it was allocated, and only that
    stream gets it again: what it enqueues next runs after all that it did with the memory before.
    The stream that is current when memory comes back says nothing about its use. TVM's machine lets
    go of a model's last result in the next call, on whatever stream that is; a torch tensor may go
    at any time, when the null stream is current, on which nobody would take the memory up again.

    What other streams do with memory is not known here. Torch asks its users for ``record_stream``,
    which does nothing for memory that is not torch's: whoever reads a result on another stream than
    its call's must let the call's stream wait (``Stream.wait_stream``) before letting go of it. The
    same goes for what belongs to the null stream though a call on another one reads it: the weights
    of a model, and copies of NumPy inputs beside torch's.

    Args:
        hip: the runtime.
        failures: list of failures.
    """

    def __init__(self, hip: Hip, failures: Failures) -> None:
        self.failures = failures
        self._hip = hip
        # Single operations on these are atomic under Python's lock, and need no other.
        self._owners: dict[int, _Owner] = {}
        self._free: dict[_Owner, list[int]] = {}

    @_noted
    def set_device(self, index: int) -> None:
        """Make a GPU the one that the calling thread uses."""
        self._hip.set_device(index)

    @_noted
    def attribute(self, index: int, kind: int) -> int | None:
        """Attribute of a GPU that TVM's code generator asks for."""
        if kind == _EXISTS:
            return int(index < self._hip.device_count())
        properties = self._hip.properties(index)
        return {
            _MAX_THREADS_PER_BLOCK: properties.max_threads_per_block,
            _WARP_SIZE: properties.warp_size,
            _MAX_SHARED_MEMORY_PER_BLOCK: properties.shared_memory_per_block,
        }.get(kind)

    @_noted
    def allocate(self, index: int, size: int) -> int | None:
        """The address of ``size`` bytes or more; None where there are none."""
        size = max(-(-size // _PAGE), 1) * _PAGE
        owner = (index, current_stream(index), size)
        try:
            return self._free[owner].pop()
        except (KeyError, IndexError):
            pass
        self._hip.set_device(index)
        try:
            address = self._hip.allocate(size)
        except DeviceMemoryError:
            self._release(index)
            address = self._hip.allocate(size)
        self._owners[address] = owner
        return address

    @_noted
    def free(self, index: int, address: int | None) -> None:
        """Keep memory for the stream that it was allocated on."""
        if address:
            self._free.setdefault(self._owners[address], []).append(address)

    @_noted
    def copy(self, source: Place, destination: Place, size: int, stream: int | None) -> None:
        """Copy; from and to the host at once, after all work of the GPU, whatever its stream."""
        if self.failures.pending:
            return
        (source_address, from_device), (destination_address, to_device) = source, destination
        on_gpu = (from_device.type == ROCM, to_device.type == ROCM)
        index = from_device.index if on_gpu[0] else to_device.index
        kind = {
            (False, True): HOST_TO_DEVICE,
            (True, False): DEVICE_TO_HOST,
            (True, True): DEVICE_TO_DEVICE,
        }[on_gpu]
        stream = stream or current_stream(index)
        self._hip.set_device(index)
        if kind != DEVICE_TO_DEVICE:
            # What wrote the source, or read this memory before, may have run on any stream.
            self._hip.synchronize()
        self._hip.copy(destination_address, source_address, size, kind, stream)
        if kind != DEVICE_TO_DEVICE:
            self._hip.synchronize_stream(stream)

    @_noted
    def synchronize_stream(self, index: int, stream: int | None) -> None:
        """Wait for a stream of a GPU."""
        self._hip.set_device(index)
        self._hip.synchronize_stream(stream or 0)

    def _release(self, index: int) -> None:
        """Give all memory that nobody uses back to HIP."""
        for owner in [owner for owner in self._free if owner[0] == index]:
            addresses = self._free.pop(owner)
            while addresses:
                address = addresses.pop()
                del self._owners[address]
                self._hip.free(address)


def current_stream(index: int) -> int:
    """The stream of the calling thread on a GPU: torch's, in calls with its tensors, else 0."""
    import tvm_ffi

    return _stream_function(tvm_ffi.LIB)(ROCM, index) or 0


@functools.cache
def _stream_function(library: Any) -> Any:
    """TVM's function that tells the current stream."""
    import ctypes

    function = library.TVMFFIEnvGetStream
    function.argtypes, function.restype = (ctypes.c_int32, ctypes.c_int32), ctypes.c_void_p
    return function
