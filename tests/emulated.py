"""A kernel's text, run on the CPU, next to TVM's CPU build of its unscheduled function."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from cpu_build import CPU
from kernels import drawn, poison, relative_difference
from tvm import tirx
from warp_emulator import Race, emulate, numbered

from tvm_tile.build import Builder, Program
from tvm_tile.build.program import Kernel
from tvm_tile.device import Device
from tvm_tile.files.store import Store
from tvm_tile.graph.extract import loads_in
from tvm_tile.runtime.arrays import numpy_dtype
from tvm_tile.schedule import Scheduled

_GUARD = 256  # elements


class _NoMachineCode(Store):
    """Has an empty one of every kernel, so that none is compiled."""

    def __init__(self) -> None:
        pass

    def get(self, key: bytes) -> bytes:
        return b""


def text_builder(device: Device) -> Builder:
    """Its kernels have a text, and no machine code."""
    return Builder(device, store=_NoMachineCode())


def built(scheduled: Scheduled, device: Device, *, only_text: bool = False) -> Kernel:
    """A schedule's only kernel."""
    (kernel,) = all_built(scheduled, device, only_text=only_text)
    return kernel


def all_built(
    scheduled: Scheduled, device: Device, *, only_text: bool = False
) -> tuple[Kernel, ...]:
    """A schedule's kernels, in the order that they run in; if asked, without machine code."""
    builder = text_builder(device) if only_text else Builder(device)
    program = builder.build_functions({"product": scheduled.func})["product"]
    assert isinstance(program, Program), str(program)
    return program.kernels


def launches(scheduled: Scheduled) -> list[tuple[int, int]]:
    """Blocks of each of its kernels, and threads of a block."""
    text = scheduled.func.script()
    found = re.findall(r"T\.cta_id\(\[(\d+)\]\)\n.*T\.thread_id\(\[(\d+)\]\)", text)
    each = [(int(grid), int(block)) for grid, block in found]
    return each if len(each) > 1 else [(scheduled.grid, scheduled.block)]


def workspaces(scheduled: Scheduled) -> dict[str, np.ndarray]:
    """What lies between its kernels, by name: memory that is still to be filled."""
    body = scheduled.func.body
    statements = body if isinstance(body, tirx.SeqStmt) else [body]
    buffers = [s.buffer for s in statements if isinstance(s, tirx.AllocBuffer)]
    return {str(b.name): np.empty([int(n) for n in b.ty.shape], str(b.ty.dtype)) for b in buffers}


@dataclass(frozen=True, slots=True)
class Arguments:
    """A function's parameters, before and after it ran on the CPU; some are written in place."""

    given: dict[str, np.ndarray]
    wanted: dict[str, np.ndarray]
    outputs: frozenset[str]
    in_place: frozenset[str] = frozenset()


def arguments(func: tirx.PrimFunc, known: Mapping[str, Any] | None = None) -> Arguments:
    """Drawn at random for an unscheduled function but for those ``known``, and what it makes of
    them."""
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(func.body, (tirx.BufferStore, stores.append), order="pre")
    rng = np.random.default_rng(0)
    given = {}
    for param in func.params:
        shape, dtype = tuple(int(e) for e in param.ty.shape), numpy_dtype(str(param.ty.dtype))
        given[str(param.name)] = drawn(rng, math.prod(shape), dtype).reshape(shape)
    given |= known or {}
    tensors = [tvm.runtime.tensor(array) for array in given.values()]
    reference = tvm.compile(func.with_attr("global_symbol", "reference"), CPU)
    reference["reference"](*tensors)
    wanted = {name: tensor.numpy() for name, tensor in zip(given, tensors, strict=True)}
    outputs = {str(p.name) for p in func.params if any(p.same_as(s.buffer) for s in stores)}
    loads = loads_in(func.body)
    read = {str(p.name) for p in func.params if any(p.same_as(load.source) for load in loads)}
    return Arguments(given, wanted, frozenset(outputs), frozenset(outputs & read))


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
    cluster: int = 1,
    columns: int = 1024,
    only_text: bool = True,
) -> float:
    """The largest error of a schedule; see :func:`kernels_error`.

    Whether the text becomes machine code, too, is another test's question unless it is asked here:
    GPUs' compilers take as long as the emulator.
    """
    kernels = all_built(scheduled, device, only_text=only_text)
    launched = list(zip(kernels, launches(scheduled), strict=True))
    between = workspaces(scheduled)
    order: dict[str, Any] = {"late": late, "conflicts": conflicts, "cluster": cluster}
    order["columns"] = columns
    return kernels_error(launched, of, device, folder, between=between, **order)


def kernels_error(
    launched: Sequence[tuple[Kernel, tuple[int, int]]],
    of: Arguments,
    device: Device,
    folder: Path,
    *,
    late: bool,
    conflicts: bool = False,
    between: Mapping[str, np.ndarray] | None = None,
    cluster: int = 1,
    columns: int = 1024,
    without: int = 0,
) -> float:
    """The largest error of kernels; infinite where they wrote around their outputs.

    Args:
        launched: in their order: a kernel, whose text is run, blocks and threads of a block.
        of: the function's.
        device: that the kernels are for.
        folder: for what is compiled.
        late: whether copies arrive as late as a kernel allows, threads in their order; else at
            once, the last thread first.
        conflicts: whether ldmatrix may load rows that lie on the same banks.
        between: what lies between the kernels, by name.
        cluster: blocks of a cluster.
        columns: threads along the first axis of a block; the rest of them are rows.
        without: as for :func:`~warp_emulator.emulate`.

    Raises:
        Race: as :func:`~warp_emulator.emulate` does.
    """
    between = between or {}
    poisoned = of.outputs - of.in_place
    memory = {n: guarded(a, is_output=n in poisoned) for n, a in of.given.items()}
    memory |= {n: guarded(a, is_output=True) for n, a in between.items()}
    arrays = {n: inside for n, (_, inside) in memory.items()}
    order: dict[str, Any] = {"late": late, "backward": not late, "conflicts": conflicts}
    order |= {"cluster": cluster, "columns": columns, "without": without}
    if device.kernel_language == "rocm":
        order["wave"] = device.warp_size
    for kernel, shape in launched:
        own = folder / kernel.name
        own.mkdir(exist_ok=True)
        emulate(kernel, *shape, arrays, own, **order)
    if not all(is_intact(memory[n][0]) for n in (*of.outputs, *between)):
        return math.inf
    found = {n: arrays[n].reshape(of.wanted[n].shape) for n in of.outputs}
    return max(relative_difference(found[n], of.wanted[n]) for n in found)


def idle_barriers(
    scheduled: Scheduled,
    of: Arguments,
    device: Device,
    folder: Path,
    barrier: re.Pattern[str],
    *,
    cluster: int = 1,
) -> tuple[list[str], int]:
    """The barriers of a kernel without each of which there is no race, and how many it has."""
    kernel, barriers = numbered(built(scheduled, device, only_text=True), barrier)
    launched = [(kernel, (scheduled.grid, scheduled.block))]
    idle = []
    for number, text in enumerate(barriers, start=1):
        order: dict[str, Any] = {"late": True, "cluster": cluster, "without": number}
        try:
            kernels_error(launched, of, device, folder, **order)
        except Race:
            continue
        idle.append(f"{number}: {text}")
    return idle, len(barriers)
