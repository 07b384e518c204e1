"""A kernel's text, run on the CPU, next to TVM's CPU build of its unscheduled function."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from kernels import drawn, poison, relative_difference
from tvm import tirx
from tvm.target.codegen import llvm_get_system_cpu
from warp_emulator import emulate

from tvm_tile.build import Builder, Program
from tvm_tile.build.program import Kernel
from tvm_tile.device import Device
from tvm_tile.runtime.arrays import numpy_dtype
from tvm_tile.schedule import Scheduled

_GUARD = 256  # elements


def built(scheduled: Scheduled, device: Device) -> Kernel:
    """A schedule's only kernel."""
    program = Builder(device).build_functions({"product": scheduled.func})["product"]
    assert isinstance(program, Program), str(program)
    (kernel,) = program.kernels
    return kernel


@dataclass(frozen=True, slots=True)
class Arguments:
    """A function's parameters, before and after it ran on the CPU."""

    given: dict[str, np.ndarray]
    wanted: dict[str, np.ndarray]
    outputs: frozenset[str]


def arguments(func: tirx.PrimFunc) -> Arguments:
    """Drawn at random for an unscheduled function, and what it makes of them."""
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(func.body, (tirx.BufferStore, stores.append), order="pre")
    rng = np.random.default_rng(0)
    given = {}
    for param in func.params:
        shape, dtype = tuple(int(e) for e in param.ty.shape), numpy_dtype(str(param.ty.dtype))
        given[str(param.name)] = drawn(rng, math.prod(shape), dtype).reshape(shape)
    tensors = [tvm.runtime.tensor(array) for array in given.values()]
    # Of any CPU, LLVM would convert halves by calls of functions.
    target = tvm.target.Target({"kind": "llvm", "mcpu": llvm_get_system_cpu()})
    reference = tvm.compile(func.with_attr("global_symbol", "reference"), target=target)
    reference["reference"](*tensors)
    wanted = {name: tensor.numpy() for name, tensor in zip(given, tensors, strict=True)}
    outputs = {str(p.name) for p in func.params if any(p.same_as(s.buffer) for s in stores)}
    return Arguments(given, wanted, frozenset(outputs))


def guarded(array: np.ndarray, *, is_output: bool) -> tuple[np.ndarray, np.ndarray]:
    """Memory with what must be neither read nor written around it, and the array in it."""
    memory = np.full(array.size + 2 * _GUARD, poison(array.dtype), array.dtype)
    inside = memory[_GUARD : _GUARD + array.size]
    if not is_output:
        inside[:] = array.ravel()
    return memory, inside


def is_intact(memory: np.ndarray) -> bool:
    """Whether nothing was written around an array."""
    around = np.concatenate([memory[:_GUARD], memory[-_GUARD:]])
    return bool(np.array_equal(around, np.full_like(around, poison(around.dtype)), equal_nan=True))


def emulated_error(
    scheduled: Scheduled,
    of: Arguments,
    device: Device,
    folder: Path,
    *,
    late: bool,
    conflicts: bool = False,
) -> float:
    """The largest error of a schedule's only kernel; see :func:`kernel_error`."""
    kernel, shape = built(scheduled, device), (scheduled.grid, scheduled.block)
    return kernel_error(kernel, shape, of, device, folder, late=late, conflicts=conflicts)


def kernel_error(
    kernel: Kernel,
    shape: tuple[int, int],
    of: Arguments,
    device: Device,
    folder: Path,
    *,
    late: bool,
    conflicts: bool = False,
) -> float:
    """The largest error of a kernel; infinite where it wrote around its outputs.

    Args:
        kernel: its text is run.
        shape: blocks, and threads of a block.
        of: its function's.
        device: that the kernel is for.
        folder: for what is compiled.
        late: whether copies arrive as late as the kernel allows, threads in their order; else at
            once, the last thread first.
        conflicts: whether ldmatrix may load rows that lie on the same banks.

    Raises:
        Race: as :func:`~warp_emulator.emulate` does.
    """
    memory = {n: guarded(a, is_output=n in of.outputs) for n, a in of.given.items()}
    arrays = {n: inside for n, (_, inside) in memory.items()}
    order: dict[str, Any] = {"late": late, "backward": not late, "conflicts": conflicts}
    if device.kernel_language == "rocm":
        order["wave"] = device.warp_size
    emulate(kernel, *shape, arrays, folder, **order)
    if not all(is_intact(memory[n][0]) for n in of.outputs):
        return math.inf
    found = {n: arrays[n].reshape(of.wanted[n].shape) for n in of.outputs}
    return max(relative_difference(found[n], of.wanted[n]) for n in found)
