"""Whole models for a CUDA GPU on the CPU: their host code, and the text of their kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from grid_emulator import compiled_kernels

import tvm_tile
from tvm_tile.build.program import Kernel
from tvm_tile.device import find_device
from tvm_tile.runtime import CompiledModel, launch
from tvm_tile.runtime.drivers.launchers import BLOCK, GRID, attach
from tvm_tile.stages.forced import Forced

_CPU = 1  # kDLCPU: what TVM's host code then takes tensors of
_BYTES = "tirx.use_dyn_shared_memory"


def compile_for_cuda(model: Any, name: str, folder: Path) -> Callable[..., Any]:
    """A model compiled for a CUDA GPU, as a function that the CPU computes.

    Args:
        model: as for ``tvm_tile.compile``.
        name: the GPU's.
        folder: for what is compiled.
    """
    device = find_device(name)
    target = tuple(sorted((dict(device.target) | {"target_device_type": _CPU}).items()))
    device = replace(device, target=target, supports_graphs=False)
    made = tvm_tile.compile(model, device, options=Forced(coschedule=False))
    library = compiled_kernels(made.program.kernels, folder)
    program = replace(made.program, language="opencl")
    made = CompiledModel(program, device.name, made.inputs, made.outputs, made.report)
    attached = mock.patch.object(
        launch, "attach_emulated", lambda kernel: attach(kernel, lambda own: _Text(own, library))
    )

    def call(*tensors: Any) -> Any:
        with attached:
            return made(*tensors)

    return call


class _Text:
    """A kernel in a library that was made of its text."""

    def __init__(self, kernel: Kernel, library: ctypes.CDLL) -> None:
        self.kernel = kernel
        self._launch = getattr(library, f"launch_{kernel.name}")

    def launch(self, *arguments: Any) -> None:
        count = len(self.kernel.arg_types)
        extents = dict(zip(self.kernel.launch_params, map(int, arguments[count:]), strict=True))
        assert set(extents) <= {*GRID[:2], *BLOCK[:2], _BYTES}, f"{self.kernel.name}: {extents}"
        pointers = (ctypes.c_void_p * count)(*(pointer.value for pointer in arguments[:count]))
        columns, rows = (extents.get(axis, 1) for axis in BLOCK[:2])
        width, height = (extents.get(axis, 1) for axis in GRID[:2])
        shape = width, height, columns, rows, extents.get(_BYTES, 0)
        left = self._launch(pointers, *shape)
        assert not left, f"{left} threads of {self.kernel.name} wait for ever"
