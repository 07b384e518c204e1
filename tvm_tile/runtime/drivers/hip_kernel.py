"""Kernels of AMD GPUs: code objects, launched from TVM's host code through HIP."""

from __future__ import annotations

import operator
import struct
import threading
import weakref
from collections.abc import Callable
from typing import Any

from tvm_tile.build.program import SHARED_TAG, Kernel
from tvm_tile.errors import BuildError
from tvm_tile.runtime.drivers.hip import ArgumentBuffer, Hip
from tvm_tile.runtime.drivers.hip_memory import Failures, current_stream
from tvm_tile.runtime.drivers.launchers import BLOCK, GRID

_EXTENTS = (*GRID, *BLOCK)
# What a launch does not say: its extent is 1, it has no shared memory.
_DEFAULTS = (1, 0)
_ONE, _NONE = -2, -1

# Letters of ``struct``, which packs natively as C does, and as kernels expect it: every argument
# at a multiple of its own size.
_LETTERS = {
    "handle": "P",
    "bool": "?",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}


class HipKernel:
    """One kernel in a GPU's memory.

    Args:
        kernel: kernel with its code object.
        hip: the runtime.
        device: the GPU's index.
        failures: failures of earlier calls in a thread; its next launch raises them.

    Raises:
        BuildError: an argument or a launch parameter is of a kind that HIP does not take.
        DriverError: HIP cannot load the code object.
    """

    def __init__(self, kernel: Kernel, hip: Hip, device: int, failures: Failures) -> None:
        # It also keeps the bytes of the code object, which HIP may go on to read.
        self.kernel = kernel
        self._hip = hip
        self._device = device
        self._failures = failures
        self._packing = _packing(kernel)
        # The host code launches one kernel after another, but models may share a kernel.
        self._lock = threading.Lock()
        self._buffer = ArgumentBuffer(self._packing.size)
        self._count = len(kernel.arg_types)
        self._pointers = tuple(
            position for position, kind in enumerate(kernel.arg_types) if kind == "handle"
        )
        self._extents = _extents(kernel)
        hip.set_device(device)
        module = hip.load_module(kernel.binary)
        # At the end of the process the driver frees everything, and may be gone first.
        weakref.finalize(self, _unload, hip, device, module).atexit = False
        self._function = hip.function(module, kernel.name)

    def launch(self, *arguments: Any) -> None:
        """Enqueue it on the thread's stream; arguments are the kernel's, then launch parameters.

        Raises:
            DriverError: HIP refuses it, or something failed before in this thread.
        """
        self._failures.check()
        values = list(arguments[: self._count])
        for position in self._pointers:
            handle = values[position]  # ctypes.c_void_p, or None for no memory
            values[position] = (handle.value or 0) if handle is not None else 0
        extents = self._extents((*arguments, *_DEFAULTS))
        if not all(extents[:-1]):
            return  # no block, or none with a thread, which HIP refuses
        try:
            with self._lock:
                self._packing.pack_into(self._buffer.data, 0, *values)
                stream = current_stream(self._device)
                self._hip.launch(self._function, extents, stream, self._buffer)
        except Exception as error:
            self._failures.keep(error)
            raise


def _unload(hip: Hip, device: int, module: int) -> None:
    """Remove a kernel's code from the GPU, once all launches have ended."""
    hip.set_device(device)
    hip.synchronize()  # a launch may still be under way
    hip.unload_module(module)


def _packing(kernel: Kernel) -> struct.Struct:
    """Layout of a kernel's arguments in memory."""
    unknown = sorted(set(kernel.arg_types) - _LETTERS.keys())
    if unknown:
        raise BuildError(
            f"arguments of AMD kernels must be pointers or one of {', '.join(_LETTERS)}",
            f"{kernel.name} takes {', '.join(unknown)}",
            "pass it as a tensor",
        )
    return struct.Struct("@" + "".join(_LETTERS[kind] for kind in kernel.arg_types))


def _extents(kernel: Kernel) -> Callable[[tuple[Any, ...]], Any]:
    """Picks a launch's extents and shared bytes out of its arguments and ``_DEFAULTS``."""
    unknown = set(kernel.launch_params) - {*_EXTENTS, SHARED_TAG}
    if unknown:
        raise BuildError(
            "an AMD kernel may use a grid, blocks and shared memory only",
            f"{kernel.name} also wants {', '.join(sorted(unknown))}",
            "schedule it without clusters or cooperative launch",
        )
    first = len(kernel.arg_types)
    positions = {tag: first + position for position, tag in enumerate(kernel.launch_params)}
    return operator.itemgetter(
        *(positions.get(axis, _ONE) for axis in _EXTENTS), positions.get(SHARED_TAG, _NONE)
    )
