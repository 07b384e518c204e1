"""Persistent kernels that tell when each of their rTasks ran: copies, run in place of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tvm_tile.build.cuda import compile_cuda
from tvm_tile.build.marks import WORDS, is_marked, stamping
from tvm_tile.build.program import Kernel, Program
from tvm_tile.errors import ProfileError
from tvm_tile.plan.records import recorded_tasks
from tvm_tile.report.persistent_report import PersistentReport
from tvm_tile.report.symbols import schedule_of
from tvm_tile.report.veu_times import VeuTimes, veu_times
from tvm_tile.runtime.drivers.timing import WARM_UP_CALLS
from tvm_tile.runtime.launch import LoadedProgram


def watch_veus(
    program: Program,
    plans: Sequence[PersistentReport],
    load: Callable[[Program], LoadedProgram],
    tensors: Sequence[Any],
) -> tuple[VeuTimes, ...]:
    """When each rTask ran in the last of a few runs.

    Args:
        program: program of the model.
        plans: its persistent kernels.
        load: function that brings a program to life, on the same weights and state.
        tensors: tensors for a call, on the device.

    Raises:
        ProfileError: no persistent kernel of the model can tell.
        CompilerNotFoundError, BuildError: the copies cannot be compiled here.
    """
    sources = {schedule_of(kernel.name): kernel for kernel in program.kernels}
    told = [plan for plan in plans if plan.name in sources and is_marked(sources[plan.name].source)]
    if not told:
        raise ProfileError(
            "a time line of vEUs is of persistent kernels without control flow, on CUDA devices",
            "the model has none",
            "leave veus=True out",
        )
    memory = {plan.name: _memory(plan) for plan in told}
    kernels = tuple(
        _copied(kernel, memory.get(schedule_of(kernel.name)), program.arch)
        for kernel in program.kernels
    )
    loaded = load(replace(program, kernels=kernels))
    given = loaded.arguments(tensors)
    for _ in range(WARM_UP_CALLS):
        loaded.main(*given)
        loaded.device.sync()
    return tuple(veu_times(plan, memory[plan.name].numpy().tolist()) for plan in told)


def _memory(plan: PersistentReport) -> Any:
    """Memory for a kernel's stamps, a row each record."""
    import tvm

    records = sum(map(len, recorded_tasks(plan.operators, plan.plan)))
    return tvm.runtime.empty((records, WORDS), "int64", tvm.cuda(0))


def _copied(kernel: Kernel, memory: Any, arch: str) -> Kernel:
    """A kernel that writes stamps to memory, if it is given any."""
    if memory is None:
        return kernel
    source = stamping(kernel.source, memory.data_ptr())
    return replace(kernel, source=source, binary=compile_cuda(source, arch))
