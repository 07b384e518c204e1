"""Kernels as functions that TVM's host code finds by their names.

The host code looks a kernel up first in the modules it imports and then among the process's
global functions. Here every kernel is such a global function: it gets the kernel's arguments,
pointers raw, and then the launch parameters.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from tvm_tile.build.program import Kernel
from tvm_tile.errors import BuildError

GRID = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
BLOCK = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


class Launcher(Protocol):
    """A kernel that can be launched."""

    @property
    def kernel(self) -> Kernel:
        """The kernel that is launched."""

    def launch(self, *arguments: Any) -> None:
        """Launch it; arguments are the kernel's, then the launch parameters."""


_Launcher = TypeVar("_Launcher", bound=Launcher)

# TVM's table of global functions belongs to the process, so this view of it does too. Models
# own their launchers; the table forgets a name when the last model that uses it is gone.
_LAUNCHERS: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_LOCK = threading.RLock()

Launch = Callable[[Launcher, tuple[Any, ...]], None]
_LAUNCH: ContextVar[Launch] = ContextVar(
    "launch", default=lambda launcher, arguments: launcher.launch(*arguments)
)


@contextmanager
def launching_by(launch: Launch) -> Iterator[None]:
    """Have the kernels that this thread launches launched by a function, within the context.

    Args:
        launch: called with a kernel and its launch arguments.
    """
    former = _LAUNCH.set(launch)
    try:
        yield
    finally:
        _LAUNCH.reset(former)


def attach(kernel: Kernel, make: Callable[[Kernel], _Launcher]) -> _Launcher:
    """Make a kernel callable from the VM for as long as the answer is kept alive.

    Args:
        kernel: the kernel.
        make: function that makes its launcher, where no live model has one.

    Raises:
        BuildError: another live model has a different kernel of that name.
    """
    import tvm_ffi

    with _LOCK:
        launcher = _LAUNCHERS.get(kernel.name)
        if launcher is not None:
            if launcher.kernel == kernel:
                return launcher
            raise BuildError(
                "kernels of one name must be equal in all live models",
                f"two different kernels named {kernel.name}",
                "apply tvm_tile.build.rename_by_content before building",
            )
        launcher = make(kernel)
        tvm_ffi.register_global_func(kernel.name, _launch_by_name(kernel.name), override=True)
        _LAUNCHERS[kernel.name] = launcher
        weakref.finalize(launcher, _forget, kernel.name)
        return launcher


def _launch_by_name(name: str) -> Callable[..., None]:
    """A function for TVM's host code that launches the kernel of this name."""

    # TVM's table must not keep the kernel alive; and host code, which is kept longer than models
    # are, keeps this function: the kernel may be another launcher's by then.
    def call(*arguments: Any) -> None:
        launcher = _LAUNCHERS.get(name)
        assert launcher is not None, "a model outlived its kernels"
        _LAUNCH.get()(launcher, arguments)

    return call


def _forget(name: str) -> None:
    """Remove a kernel's function once no model has the kernel."""
    import tvm_ffi

    with _LOCK:
        if name not in _LAUNCHERS:
            tvm_ffi.registry.remove_global_func(name)
