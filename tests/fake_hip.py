"""Models for an AMD GPU that is not there: `fake_hip.c` is its driver, PoCL its cores."""

from __future__ import annotations

import ctypes
import functools
import gc
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tvm_tile.build.program import Kernel
from tvm_tile.device.device import Device
from tvm_tile.device.emulated import EMULATED
from tvm_tile.runtime import CompiledModel
from tvm_tile.runtime.drivers.emulate import EmulatedKernel
from tvm_tile.runtime.drivers.hip_device import find_hip_device

COMPILER = shutil.which("gcc")
ARCH = "gfx942"
_KERNEL = ctypes.CFUNCTYPE(
    None,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_uint),
    ctypes.c_uint,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
_EXTENTS = (*(f"blockIdx.{axis}" for axis in "xyz"), *(f"threadIdx.{axis}" for axis in "xyz"))

# Its host code is that for an AMD GPU (10 is kDLROCM), its kernels are OpenCL.
DEVICE: Device = replace(
    EMULATED,
    name="amd/fake",
    target=tuple(sorted((dict(EMULATED.target) | {"target_device_type": 10}).items())),
)


@functools.cache
def fake_hip() -> FakeHip:
    """The fake driver of this process; with no GPU, until it is reset."""
    with tempfile.TemporaryDirectory() as folder:
        return FakeHip(Path(folder))


class FakeHip:
    """The fake driver, loaded into this process as the HIP runtime."""

    def __init__(self, folder: Path) -> None:
        source, path = Path(__file__).with_suffix(".c"), folder / "libfake.so"
        assert COMPILER is not None
        flags = ["-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libamdhip64.so.7"]
        subprocess.run([COMPILER, *flags, "-o", path, source], check=True)
        # Whoever asks the loader for this soname from now on gets this library.
        self.library = ctypes.CDLL(str(path))
        for name in ("fake_calls", "fake_violations"):
            getattr(self.library, name).restype = ctypes.c_char_p
        for name in ("fake_host_address", "fake_stream"):
            getattr(self.library, name).restype = ctypes.c_void_p
        self.library.fake_host_address.argtypes = (ctypes.c_void_p,)
        self.library.fake_in_use.restype = ctypes.c_size_t
        self.kernels: dict[str, tuple[Kernel, EmulatedKernel]] = {}
        self.errors: list[str] = []
        self.reset(devices=0)

    @contextmanager
    def present(self) -> Iterator[FakeHip]:
        """With its GPU in this machine, and TVM knowing it; at the end nothing was violated."""
        self.reset()
        find_hip_device(ARCH, DEVICE.name)
        gc.freeze()  # so that what a test made is collected without what was imported
        try:
            yield self
            gc.collect()
            assert not self.violations
        finally:
            gc.unfreeze()
            self.reset(devices=0)

    def reset(
        self,
        *,
        devices: int = 1,
        arch: str = ARCH,
        capacity: int = 1 << 27,
        kernel: Callable[..., None] | None = None,
    ) -> None:
        """Forget calls and violations; the memory that is allocated stays so.

        Args:
            devices: how many GPUs there are, 0 or 1.
            arch: what they call themselves.
            capacity: bytes of their memory.
            kernel: runs in place of every kernel.
        """
        self.errors.clear()
        self._run = _KERNEL(kernel or self._run_kernel)
        size = ctypes.c_size_t(capacity)
        self.library.fake_reset(devices, arch.encode(), size, self._run)

    def fail(self, name: str, code: int, *, nth: int = 1) -> None:
        """Have a call fail, counted from now on."""
        self.library.fake_fail(name.encode(), nth, code)

    @property
    def calls(self) -> list[str]:
        return self.library.fake_calls().decode().splitlines()

    def count(self, name: str) -> int:
        return sum(call.split()[0] == name for call in self.calls)

    @property
    def in_use(self) -> int:
        """Bytes that are allocated."""
        return self.library.fake_in_use()

    @property
    def live(self) -> tuple[int, int]:
        """Modules and events that have not been given back."""
        return self.library.fake_live_modules(), self.library.fake_live_events()

    @property
    def violations(self) -> str:
        return self.library.fake_violations().decode() + "\n".join(self.errors)

    def model(self, model: CompiledModel) -> CompiledModel:
        """A model that was compiled for :data:`DEVICE`, as one for an AMD GPU."""
        program = model.program
        for kernel in program.kernels:
            self.kernels[kernel.name] = (kernel, EmulatedKernel(kernel))
        kernels = tuple(replace(k, binary=code_object(k)) for k in program.kernels)
        program = replace(program, language="rocm", arch=ARCH, kernels=kernels)
        return CompiledModel(program, DEVICE.name, model.inputs, model.outputs, model.report)

    def _run_kernel(
        self, name: bytes, extents: Any, _shared: int, _stream: int, arguments: int
    ) -> None:
        try:
            kernel, emulated = self.kernels[name.decode()]
            tags = dict(zip(_EXTENTS, extents[:6], strict=True))
            launch = [tags[tag] for tag in kernel.launch_params]
            left = {tag: extent for tag, extent in tags.items() if tag not in kernel.launch_params}
            assert set(left.values()) <= {1}, f"{name!r} has {left}"
            emulated.launch(*self._unpacked(kernel, arguments), *launch)
        except Exception as error:  # nobody above could catch it
            self.errors.append(f"{type(error).__name__}: {error}")

    def _unpacked(self, kernel: Kernel, address: int) -> list[Any]:
        values = arguments_of(kernel).from_address(address)
        unpacked: list[Any] = []
        for position, kind in enumerate(kernel.arg_types):
            value = getattr(values, f"a{position}")
            if kind == "handle":
                unpacked.append(ctypes.c_void_p(self.library.fake_host_address(value)))
            else:
                unpacked.append(value)
        return unpacked


def arguments_of(kernel: Kernel) -> type[ctypes.Structure]:
    """A kernel's arguments, laid out by ctypes as C does."""
    fields = [
        (f"a{position}", ctypes.c_void_p if kind == "handle" else _ctype(kind))
        for position, kind in enumerate(kernel.arg_types)
    ]
    return type("Arguments", (ctypes.Structure,), {"_fields_": fields})


def _ctype(dtype: str) -> Any:
    # ctypes has no half precision: its bits.
    name = "uint16" if dtype == "float16" else dtype
    return np.ctypeslib.as_ctypes_type(np.dtype(name))


def code_object(kernel: Kernel, *, max_threads: int = 1024) -> bytes:
    """What the fake takes for machine code."""
    layout = arguments_of(kernel)
    fields = [getattr(layout, name) for name, *_ in layout._fields_]
    size = max((field.offset + field.size for field in fields), default=0)
    return struct.pack("<4sII", b"\x7fELF", size, max_threads) + kernel.name.encode() + b"\0"
