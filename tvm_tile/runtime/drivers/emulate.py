"""Kernels of the emulated device: OpenCL by PoCL, which shares the CPU's own memory."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from tvm_tile.build.opencl import compile_opencl, opencl_context
from tvm_tile.build.program import Kernel
from tvm_tile.errors import BuildError
from tvm_tile.runtime.drivers.launchers import BLOCK, GRID, attach


def attach_emulated(kernel: Kernel) -> EmulatedKernel:
    """Make a kernel callable from the VM for as long as the answer is kept alive.

    Raises:
        BuildError: PoCL rejects it, or another live model has a different kernel of that name.
        DeviceError: the process was forked from one in which PoCL was used.
    """
    opencl_context()
    return attach(kernel, EmulatedKernel)


class EmulatedKernel:
    """One OpenCL kernel, compiled, with the order of its launch parameters."""

    def __init__(self, kernel: Kernel) -> None:
        import pyopencl

        self.kernel = kernel
        self._kernel = compile_opencl(kernel.name, kernel.source)
        self._queue = pyopencl.CommandQueue(opencl_context())
        self._setters = tuple(_argument_setter(arg) for arg in kernel.arg_types)
        self._launch_params = kernel.launch_params
        # Arguments are the kernel's own state, and models in several threads may share it.
        self._lock = threading.Lock()
        unknown = set(kernel.launch_params) - {*GRID, *BLOCK}
        if unknown:
            raise BuildError(
                "an emulated kernel may use a grid, blocks and static shared memory only",
                f"{kernel.name} also wants {', '.join(sorted(unknown))}",
                "schedule it with scope shared, without clusters or cooperative launch",
            )

    def launch(self, *arguments: Any) -> None:
        """Run to completion; arguments are the kernel's, then the launch parameters."""
        import pyopencl

        count = len(self._setters)
        extents = dict(zip(self._launch_params, map(int, arguments[count:]), strict=True))
        if not all(extents.values()):
            return  # no block, or none with a thread: of tensors without elements
        local = tuple(extents.get(axis, 1) for axis in BLOCK)
        blocks = (extents.get(axis, 1) for axis in GRID)
        total = tuple(block * threads for block, threads in zip(blocks, local, strict=True))
        with self._lock:
            for index, setter in enumerate(self._setters):
                self._kernel.set_arg(index, setter(arguments[index]))
            pyopencl.enqueue_nd_range_kernel(self._queue, self._kernel, total, local)
            self._queue.finish()


def _argument_setter(arg_type: str) -> Callable[[Any], Any]:
    """Function that turns an argument into what OpenCL takes, by its type."""
    if arg_type == "handle":
        return _shared_pointer
    return np.dtype(arg_type).type


def _shared_pointer(handle: Any) -> Any:
    """An OpenCL argument for a raw pointer (``ctypes.c_void_p``, or None for no memory)."""
    import pyopencl

    if handle is None or handle.value is None:
        return None
    byte = (ctypes.c_char * 1).from_address(handle.value)
    return pyopencl.SVM(np.ctypeslib.as_array(byte))
