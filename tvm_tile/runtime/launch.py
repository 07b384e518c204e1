"""Bring a program to life: host code, kernels and the virtual machine on a device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from tvm_tile import compat
from tvm_tile.build.program import Kernel, Program
from tvm_tile.device.detect import load_cuda_runtime
from tvm_tile.errors import DeviceAbsentError, DeviceError
from tvm_tile.graph.signature import Signature, State
from tvm_tile.registered.host_functions import return_to_the_device
from tvm_tile.runtime.arrays import as_tvm, is_torch
from tvm_tile.runtime.drivers.cupti import load_cupti
from tvm_tile.runtime.drivers.emulate import attach_emulated
from tvm_tile.runtime.drivers.hip_device import HipDevice, find_hip_device
from tvm_tile.runtime.drivers.timing import Timing, time_function
from tvm_tile.runtime.drivers.tracing import HostClock, Run, Watcher
from tvm_tile.runtime.ended import register_require_ended
from tvm_tile.runtime.held import HeldMemory
from tvm_tile.runtime.weights import PlacedWeights


@dataclass(frozen=True, slots=True)
class LoadedProgram:
    """A program in memory.

    Attributes:
        machine: TVM's virtual machine.
        main: the model's entry function in it; see :meth:`arguments`.
        device: the TVM device that holds its tensors.
        keep_alive: objects that must live as long as ``machine``.
        hip: the AMD GPU it is on; None elsewhere.
        inputs: number of tensors that a call takes besides weights.
        weights: weights that a call takes, and constants; None where there are neither.
        state: TVM's tensors of the model's state.
    """

    machine: Any
    main: Any
    device: Any
    keep_alive: tuple[object, ...]
    hip: HipDevice | None
    inputs: int
    weights: PlacedWeights | None
    state: tuple[Any, ...]

    def arguments(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """Arguments of ``main`` for a call's tensors, which are torch's or TVM's, on the device.

        Raises:
            InputError: a weight has another shape or type than the program takes.
        """
        if self.weights is None:
            return [*tensors, *self.state]
        inputs = tensors[: self.inputs]
        in_torch = any(is_torch(tensor) for tensor in inputs)
        return [*inputs, *self.weights.taken(tensors[self.inputs :], in_torch=in_torch)]

    def guard(self) -> AbstractContextManager[None]:
        """A context for all use of the device: raises what memory could not raise through TVM."""
        return nullcontext() if self.hip is None else self.hip.guard()

    def time(self, tensors: Sequence[Any], repeats: int) -> Timing:
        """Time ``main`` on tensors that are on the device; see :func:`time_function`."""
        if self.hip is not None:
            given = self.arguments([as_tvm(tensor) for tensor in tensors])
            return self.hip.time(self.main, given, repeats)
        return time_function(self.machine, self.device, self.arguments(tensors), repeats)

    @property
    def tracer(self) -> Watcher:
        """Profiler or clock that tells when its kernels run.

        Raises:
            ProfileError: there is nothing that could.
        """
        if self.hip is not None:
            return self.hip
        return HostClock() if self.device.type == "cpu" else load_cupti()

    def watch(self, tensors: Sequence[Any], count: int) -> tuple[Run, ...]:
        """Activities of the device in each of some runs on tensors that are on it."""
        given = self.arguments(tensors if self.hip is None else [as_tvm(one) for one in tensors])

        return self.tracer.watch(lambda: self.main(*given), self.device.sync, count)


@dataclass(frozen=True, slots=True)
class LoadedFunctions:
    """Functions in memory, called destination-style: ``functions[name](*inputs, *outputs)``.

    Attributes:
        module: TVM's runtime module; it can time its functions.
        device: the TVM device that holds their tensors.
        keep_alive: objects that must live as long as ``module``.
    """

    module: Any
    device: Any
    keep_alive: tuple[object, ...]

    def __getitem__(self, name: str) -> Any:
        return self.module[name]


def load_program(
    program: Program,
    device_name: str,
    inputs: Sequence[Signature] = (),
    held: HeldMemory | None = None,
    state: Sequence[State] = (),
) -> LoadedProgram:
    """Load a model's program onto the device that is present.

    Args:
        program: the program to be loaded.
        device_name: the device's name, for people.
        inputs: signatures of a call's inputs.
        held: memory that other programs on the device share.
        state: signatures of the state that the model keeps between calls.

    Raises:
        ModelError: the memory that a constant was compiled with has been written to since.
        DeviceAbsentError: no such device, or no driver for it, is present.
        DeviceError: the GPU present cannot run this machine code, or its driver reports an error.
    """
    register_require_ended()
    return_to_the_device()
    device = find_runtime_device(program.language, program.arch, device_name)
    hip = _find_hip(program, device_name)
    machine_module = compat.load_vm(program.vm)
    launchers: tuple[object, ...] = ()
    if program.host:
        host, launchers = _load_host(program, hip)
        machine_module.import_module(host)
    with nullcontext() if hip is None else hip.guard():
        # The memory of an AMD GPU is pooled by HipMemory, not by TVM.
        machine = compat.make_virtual_machine(machine_module, device, pooled=hip is None)
        held = held or HeldMemory()
        constants = held.constants(program.constants, device)
        kept = held.state(state, device)
    others = len(inputs) - program.weights
    has_any = program.weights or program.constants
    fixed = [*kept, *constants]
    weights = PlacedWeights(inputs[others:], device, fixed) if has_any else None
    return LoadedProgram(machine, machine["main"], device, launchers, hip, others, weights, kept)


def load_functions(program: Program, device_name: str) -> LoadedFunctions:
    """Load the functions of :meth:`tvm_tile.build.Builder.build_functions`, one or more.

    Raises:
        DeviceAbsentError: no such device, or no driver for it, is present.
        DeviceError: the GPU present cannot run this machine code, or its driver reports an error.
    """
    device = find_runtime_device(program.language, program.arch, device_name)
    host, launchers = _load_host(program, _find_hip(program, device_name))
    return LoadedFunctions(host, device, launchers)


def find_runtime_device(language: str, arch: str, device_name: str) -> Any:
    """The TVM device that runs machine code for an architecture.

    Args:
        language: language of the kernels.
        arch: the architecture, such as ``"sm_90a"``.
        device_name: name of the device, for the message.

    Raises:
        DeviceAbsentError: no such device, or no driver for it, is present.
        DeviceError: the GPU present cannot run this machine code.
    """
    if language == "opencl":
        return _cpu()
    if language == "rocm":
        return find_hip_device(arch, device_name).tvm_device
    return _gpu(arch, device_name)


def _find_hip(program: Program, device_name: str) -> HipDevice | None:
    """The AMD GPU for a program, if it is for one."""
    return find_hip_device(program.arch, device_name) if program.language == "rocm" else None


def _load_host(program: Program, hip: HipDevice | None) -> tuple[Any, tuple[object, ...]]:
    """The host code, and what must live as long as it is called."""
    if program.language == "cuda":
        return _host(program.host, program.kernels), ()
    attach = attach_emulated if hip is None else hip.attach
    launchers = tuple(attach(kernel) for kernel in program.kernels)
    return _host(program.host, ()), launchers


@functools.lru_cache(maxsize=32)
def _host(code: bytes, cubins: tuple[Kernel, ...]) -> Any:
    """Host code in memory, with NVIDIA's kernels in it; the last used are kept.

    LLVM's compiler in memory does not give back what it has compiled, half a megabyte and more:
    whoever loads and drops a model again and again would run out of memory.
    """
    host = compat.load_host(code)
    for kernel in cubins:
        host.import_module(
            compat.cuda_module_from_cubin(
                kernel.name, kernel.arg_types, kernel.launch_params, kernel.binary
            )
        )
    return host


def _cpu() -> Any:
    """TVM's CPU device."""
    import tvm

    return tvm.cpu()


def _gpu(arch: str, device_name: str) -> Any:
    """The NVIDIA GPU, after a check of its architecture."""
    load_cuda_runtime()
    import tvm

    gpu = tvm.cuda(0)
    if not gpu.exist:
        raise DeviceAbsentError(
            f"{device_name} and its driver must be present to run this model",
            "TVM finds no CUDA device in this machine",
            'run it there (model.save), or compile for device="emulated"',
        )
    _check_architecture(arch, str(gpu.compute_version), str(gpu.device_name))
    return gpu


def _check_architecture(arch: str, version: str, gpu: str) -> None:
    """Machine code runs on its own major version, from its own minor version upwards."""
    digits = arch.removeprefix("sm_").rstrip("af")
    wanted = (int(digits[:-1]), int(digits[-1]))
    major, _, minor = version.partition(".")
    present = (int(major), int(minor or 0))
    exact = arch[-1] in "af"
    fits = present == wanted if exact else present[0] == wanted[0] and present[1] >= wanted[1]
    if not fits:
        raise DeviceError(
            f"the model was compiled for {arch}",
            f"the GPU is {gpu}, sm_{present[0]}{present[1]}",
            'compile it for this GPU: device="auto"',
        )
