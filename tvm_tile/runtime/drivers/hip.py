"""AMD's HIP runtime (``libamdhip64``, ROCm 6 or newer), bound with ctypes.

Only documented functions whose arguments are numbers, pointers and opaque handles are used; of
structures only ``hipDeviceProp_tR0600``, whose layout its name versions. Handles, addresses and
streams are plain integers; stream 0 is the null stream.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from dataclasses import dataclass
from typing import Any

from tvm_tile.errors import DeviceAbsentError, DeviceMemoryError, DriverError

_LIBRARIES = (
    "libamdhip64.so.7",
    "libamdhip64.so.6",
    "libamdhip64.so",
    "/opt/rocm/lib/libamdhip64.so",
)

_HANDLE = POINTER(c_void_p)
_PROTOTYPES: dict[str, tuple[type, ...]] = {
    "hipInit": (c_uint,),
    "hipGetDeviceCount": (POINTER(c_int),),
    "hipGetDevicePropertiesR0600": (c_void_p, c_int),
    "hipSetDevice": (c_int,),
    "hipDeviceSynchronize": (),
    "hipMalloc": (_HANDLE, c_size_t),
    "hipFree": (c_void_p,),
    "hipMemcpyAsync": (c_void_p, c_void_p, c_size_t, c_int, c_void_p),
    "hipStreamSynchronize": (c_void_p,),
    "hipEventCreate": (_HANDLE,),
    "hipEventDestroy": (c_void_p,),
    "hipEventRecord": (c_void_p, c_void_p),
    "hipEventSynchronize": (c_void_p,),
    "hipEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "hipModuleLoadData": (_HANDLE, c_char_p),
    "hipModuleUnload": (c_void_p,),
    "hipModuleGetFunction": (_HANDLE, c_void_p, c_char_p),
    "hipModuleLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p),
}

# hipMemcpyKind
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3

# hipModuleLaunchKernel's ``extra``: all arguments in one buffer, then its size, then the end.
_BUFFER_POINTER, _BUFFER_SIZE, _BUFFER_END = 1, 2, 3

_OUT_OF_MEMORY = 2
_LOST = "restart the process; if it comes again, report the model"
_RECOMPILE = "compile the model again, for this GPU"
_REMEDIES = {
    _OUT_OF_MEMORY: "end other programs on the GPU, or compile the model for smaller inputs",
    98: _RECOMPILE,  # invalid device function
    200: _RECOMPILE,  # invalid image
    209: _RECOMPILE,  # no binary for this GPU
    500: _RECOMPILE,  # the code object has no such kernel
    700: _LOST,  # illegal address
    702: _LOST,  # time-out
    710: _LOST,  # assertion
    719: _LOST,  # launch failure
}


class _Properties(ctypes.Structure):
    """The fields of ``hipDeviceProp_tR0600`` (1472 bytes) that are read, at their offsets."""

    _fields_ = (
        ("name", ctypes.c_char * 256),
        ("_identifiers", ctypes.c_char * 40),
        ("shared_memory_per_block", c_size_t),
        ("_registers", c_int),
        ("warp_size", c_int),
        ("_pitch", c_size_t),
        ("max_threads_per_block", c_int),
        ("_limits", ctypes.c_char * 836),
        ("arch", ctypes.c_char * 256),
        # Newer releases append fields in what their header reserves.
        ("_rest", ctypes.c_char * 4096),
    )


@dataclass(frozen=True, slots=True)
class HipProperties:
    """Properties of a GPU as HIP tells them.

    Attributes:
        name: the marketing name.
        arch: architecture and features, such as ``"gfx942:sramecc+:xnack-"``.
        warp_size: threads of a wavefront.
        max_threads_per_block: threads.
        shared_memory_per_block: bytes.
    """

    name: str
    arch: str
    warp_size: int
    max_threads_per_block: int
    shared_memory_per_block: int


class ArgumentBuffer:
    """Memory for a kernel's arguments, and what tells HIP where they are.

    Args:
        size: bytes.

    Attributes:
        data: the arguments, packed as C packs a structure.
        extra: ``hipModuleLaunchKernel``'s last argument.
    """

    def __init__(self, size: int) -> None:
        self.data = ctypes.create_string_buffer(size)
        self._size = c_size_t(size)
        self.extra = (c_void_p * 5)(
            _BUFFER_POINTER,
            ctypes.addressof(self.data),
            _BUFFER_SIZE,
            ctypes.addressof(self._size),
            _BUFFER_END,
        )


def load_hip() -> Hip | None:
    """The HIP runtime of this process; None where there is none yet.

    One that is loaded already, as by PyTorch, is taken before any other: two of them would not
    know each other's memory.

    Raises:
        DeviceAbsentError: the runtime is older than ROCm 6.
        DriverError: the runtime does not start.
    """
    try:
        return _loaded()
    except FileNotFoundError:
        return None


@functools.cache  # what is raised is not kept: PyTorch may bring a runtime later
def _loaded() -> Hip:
    for mode in (os.RTLD_NOLOAD | os.RTLD_NOW, os.RTLD_NOW):
        for name in _LIBRARIES:
            try:
                library = ctypes.CDLL(name, mode=mode)
            except OSError:
                continue
            return Hip(library)
    raise FileNotFoundError(_LIBRARIES[0])


class Hip:
    """The functions of a HIP runtime; each raises DriverError where HIP reports an error.

    Args:
        library: ``libamdhip64``.

    Raises:
        DeviceAbsentError: the library lacks a function.
        DriverError: the runtime does not start.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._functions = {name: _function(library, name) for name in _PROTOTYPES}
        # The one that is called most often needs no look-up.
        self._launch = self._functions["hipModuleLaunchKernel"]
        for name in ("hipGetErrorName", "hipGetErrorString"):
            getattr(library, name).restype = c_char_p
        self._call("hipInit", 0)

    def device_count(self) -> int:
        """How many GPUs there are; 0 where the driver finds none."""
        count = c_int()
        no_device = 100
        code = self._functions["hipGetDeviceCount"](ctypes.byref(count))
        if code not in (0, no_device):
            raise self._error("hipGetDeviceCount", code)
        return 0 if code else count.value

    def properties(self, device: int) -> HipProperties:
        """Name, architecture, wave size and limits of the GPU with this number."""
        found = _Properties()
        self._call("hipGetDevicePropertiesR0600", ctypes.byref(found), device)
        return HipProperties(
            name=found.name.decode(errors="replace"),
            arch=found.arch.decode(errors="replace"),
            warp_size=found.warp_size,
            max_threads_per_block=found.max_threads_per_block,
            shared_memory_per_block=found.shared_memory_per_block,
        )

    def set_device(self, device: int) -> None:
        """Make a GPU the one that the calling thread uses."""
        self._call("hipSetDevice", device)

    def synchronize(self) -> None:
        """Wait for all work of the thread's GPU."""
        self._call("hipDeviceSynchronize")

    def synchronize_stream(self, stream: int) -> None:
        """Wait for the work of a stream."""
        self._call("hipStreamSynchronize", stream)

    def allocate(self, size: int) -> int:
        """The address of ``size`` bytes on the thread's GPU, aligned to 256.

        Raises:
            DeviceMemoryError: there is not enough memory.
        """
        return self._handle("hipMalloc", size)

    def free(self, address: int) -> None:
        """Give memory back; waits for all work that may use it."""
        self._call("hipFree", address)

    def copy(self, destination: int, source: int, size: int, kind: int, stream: int) -> None:
        """Enqueue a copy of ``size`` bytes; ``kind`` is one of this module's constants."""
        self._call("hipMemcpyAsync", destination, source, size, kind, stream)

    @contextmanager
    def event(self) -> Iterator[int]:
        """An event of the thread's GPU, for as long as the context lasts."""
        event = self._handle("hipEventCreate")
        try:
            yield event
        finally:
            self._call("hipEventDestroy", event)

    def record_event(self, event: int, stream: int) -> None:
        """Have an event happen once the work before it in the stream is done."""
        self._call("hipEventRecord", event, stream)

    def seconds_between(self, start: int, end: int) -> float:
        """Wait for two recorded events, in this order, and tell how far they are apart."""
        self._call("hipEventSynchronize", end)
        milliseconds = c_float()
        self._call("hipEventElapsedTime", ctypes.byref(milliseconds), start, end)
        return milliseconds.value * 1e-3

    def load_module(self, code_object: bytes) -> int:
        """A module with the kernels of a code object, to be given to :meth:`unload_module`."""
        return self._handle("hipModuleLoadData", code_object)

    def unload_module(self, module: int) -> None:
        """Give a module and its kernels back."""
        self._call("hipModuleUnload", module)

    def function(self, module: int, name: str) -> int:
        """A kernel of a module."""
        return self._handle("hipModuleGetFunction", module, name.encode())

    def launch(
        self,
        function: int,
        extents: tuple[int, int, int, int, int, int, int],
        stream: int,
        arguments: ArgumentBuffer,
    ) -> None:
        """Enqueue a kernel.

        Args:
            function: address of the kernel, from :meth:`function`.
            extents: blocks along x, y and z, threads of a block along x, y and z, and bytes of
                dynamic shared memory of a block.
            stream: a stream of the thread's GPU.
            arguments: HIP copies them.
        """
        code = self._launch(function, *extents, stream, None, arguments.extra)
        if code:
            raise self._error("hipModuleLaunchKernel", code)

    def _handle(self, name: str, *arguments: object) -> int:
        handle = c_void_p()
        code = self._functions[name](ctypes.byref(handle), *arguments)
        if code:
            detail = f" of {arguments[0]} bytes" if name == "hipMalloc" else ""
            raise self._error(name, code, detail)
        return handle.value or 0

    def _call(self, name: str, *arguments: object) -> None:
        """Call a function of HIP; raises where it reports an error."""
        code = self._functions[name](*arguments)
        if code:
            raise self._error(name, code)

    def _error(self, name: str, code: int, detail: str = "") -> DriverError:
        """The error for a code that HIP reports."""
        label, text = (
            (getattr(self._library, tell)(code) or b"no text").decode(errors="replace")
            for tell in ("hipGetErrorName", "hipGetErrorString")
        )
        kind = DeviceMemoryError if code == _OUT_OF_MEMORY else DriverError
        return kind(
            f"{name}{detail} must succeed",
            f"{label} ({code}): {text}",
            _REMEDIES.get(code, "look for the driver's messages in the kernel's log (dmesg)"),
        )


def _function(library: ctypes.CDLL, name: str) -> Any:
    """A function of HIP's library, with its prototype."""
    try:
        function = getattr(library, name)
    except AttributeError as error:
        raise DeviceAbsentError(
            "the HIP runtime must be of ROCm 6 or newer",
            f"{library._name} has no {name}",
            "install a newer ROCm",
        ) from error
    function.argtypes, function.restype = _PROTOTYPES[name], c_int
    return function
