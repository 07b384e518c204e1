"""Kernels of the emulated device: OpenCL on the CPU's own memory, launched from the VM.

TVM's host code looks a kernel up by name, first in the modules it imports and then among
the process's global functions. Here every kernel is such a global function: it gets raw
pointers and launch extents, and enqueues the kernel with PoCL, which shares the memory.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tvm_tile.build.opencl import compile_opencl, opencl_context
from tvm_tile.build.program import Kernel
from tvm_tile.errors import BuildError

_GRID = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
_BLOCK = ("threadIdx.x", "threadIdx.y", "threadIdx.z")

# TVM's table of global functions belongs to the process, so this view of it does too. Models
# own their launchers; the table forgets a name when the last model that uses it is gone.
_LAUNCHERS: weakref.WeakValueDictionary[str, EmulatedKernel] = weakref.WeakValueDictionary()
_LOCK = threading.RLock()


def attach_emulated(kernel: Kernel) -> EmulatedKernel:
    """Make a kernel callable from the VM for as long as the answer is kept alive.

    Raises:
        BuildError: PoCL rejects it, or another live model has a different kernel of that name.
    """
    import tvm_ffi

    with _LOCK:
        launcher = _LAUNCHERS.get(kernel.name)
        if launcher is not None:
            if launcher.source == kernel.source:
                return launcher
            raise BuildError(
                "emulated kernels of one name must be equal in all live models",
                f"two different kernels named {kernel.name}",
                "apply tvm_tile.build.rename_by_content before building",
            )
        launcher = EmulatedKernel(kernel)
        tvm_ffi.register_global_func(kernel.name, _weak_launch(launcher), override=True)
        _LAUNCHERS[kernel.name] = launcher
        weakref.finalize(launcher, _forget, kernel.name)
        return launcher


def _weak_launch(launcher: EmulatedKernel) -> Callable[..., None]:
    # TVM's table must not keep the kernel alive.
    launch = weakref.WeakMethod(launcher.launch)

    def call(*arguments: Any) -> None:
        method = launch()
        assert method is not None, "a model outlived its kernels"
        method(*arguments)

    return call


def _forget(name: str) -> None:
    import tvm_ffi

    with _LOCK:
        if name not in _LAUNCHERS:
            tvm_ffi.registry.remove_global_func(name)


class EmulatedKernel:
    """One OpenCL kernel, compiled, with the order of its launch parameters."""

    def __init__(self, kernel: Kernel) -> None:
        import pyopencl

        self.source = kernel.source
        self._kernel = compile_opencl(kernel.name, kernel.source)
        self._queue = pyopencl.CommandQueue(opencl_context())
        self._setters = tuple(_argument_setter(arg) for arg in kernel.arg_types)
        self._launch_params = kernel.launch_params
        unknown = set(kernel.launch_params) - {*_GRID, *_BLOCK}
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
        for index, setter in enumerate(self._setters):
            self._kernel.set_arg(index, setter(arguments[index]))
        extents = dict(zip(self._launch_params, map(int, arguments[count:]), strict=True))
        local = tuple(max(1, extents.get(axis, 1)) for axis in _BLOCK)
        blocks = (max(1, extents.get(axis, 1)) for axis in _GRID)
        total = tuple(block * threads for block, threads in zip(blocks, local, strict=True))
        pyopencl.enqueue_nd_range_kernel(self._queue, self._kernel, total, local)
        self._queue.finish()


def _argument_setter(arg_type: str) -> Callable[[Any], Any]:
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
