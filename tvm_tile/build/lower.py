"""From a scheduled Relax module to a :class:`Program`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from tvm_tile import compat
from tvm_tile.build.aliasing import find_copied_outputs
from tvm_tile.build.cuda import compile_cuda
from tvm_tile.build.opencl import check_opencl
from tvm_tile.build.program import Kernel, Program
from tvm_tile.device.device import Device
from tvm_tile.errors import BuildError, CompilerNotFoundError

OnKernel = Callable[[str, int, int], None]


def build_program(
    mod: Any, device: Device, *, workers: int | None = None, on_kernel: OnKernel | None = None
) -> Program:
    """Build a scheduled Relax module; see :meth:`Builder.build`."""
    return Builder(device, workers=workers, on_kernel=on_kernel).build(mod)


def check_kernel(prim_func: Any, device: Device) -> None:
    """Build the kernels of one scheduled PrimFunc and throw the result away.

    Raises:
        CompilerNotFoundError: no compiler for the device is installed.
        BuildError: they do not build; the message is the compiler's.
    """
    import tvm

    failures = Builder(device).find_failures(tvm.IRModule({"checked": prim_func}))
    if failures:
        raise failures["checked"]


@dataclass(frozen=True, slots=True)
class _Lowered:
    """One PrimFunc on its way: its host code, and its kernels with their sources."""

    host: Any
    kernels: tuple[compat.LoweredKernel, ...]
    sources: tuple[str, ...]


class Builder:
    """Builds modules for one device and keeps what it has made.

    So a pipeline may first ask which PrimFuncs fail, replace these, and build the whole,
    without lowering or compiling anything twice. Sources compile in threads (compilers let
    go of Python's lock) while the next PrimFunc is lowered; equal sources compile once.

    Args:
        device: what to build for.
        workers: kernels compiled at once; None: one a processor.
        on_kernel: called after every PrimFunc whose kernels are made, with (name, done, total).

    Raises:
        BuildError: kernels for this kind of device cannot be built yet.
    """

    def __init__(
        self, device: Device, *, workers: int | None = None, on_kernel: OnKernel | None = None
    ) -> None:
        self._target = compat.make_target(device)
        self._compile = _compiler(device)
        self._workers = workers or len(os.sched_getaffinity(0))
        self._on_kernel = on_kernel
        self._lowered: dict[Any, _Lowered | BuildError] = {}
        self._binaries: dict[str, bytes | BuildError] = {}

    def build(self, mod: Any) -> Program:
        """Build a Relax module.

        Args:
            mod: the module after all Relax passes, every PrimFunc scheduled, calls and
                memory lowered to the VM's (what ``relax.vm_build`` would take with
                ``relax_pipeline=None``).

        Returns:
            The program.

        Raises:
            CompilerNotFoundError: no compiler for the device is installed.
            BuildError: a PrimFunc cannot be lowered or a kernel does not compile.
        """
        import tvm

        copied_outputs = find_copied_outputs(mod)
        vm, prim_funcs = compat.generate_vm(mod)
        made = self._make({} if prim_funcs is None else _prim_funcs(prim_funcs))
        host, kernels = tvm.IRModule(), []
        for lowered in made.values():
            if isinstance(lowered, BuildError):
                raise lowered
            host.update(lowered.host)
            for kernel, source in zip(lowered.kernels, lowered.sources, strict=True):
                binary = self._binaries[source]
                if isinstance(binary, BuildError):
                    raise binary
                kernels.append(
                    Kernel(kernel.name, source, kernel.arg_types, kernel.launch_params, binary)
                )
        return Program(vm, compat.generate_host(host), tuple(kernels), copied_outputs)

    def find_failures(self, mod: Any) -> dict[str, BuildError]:
        """Try every PrimFunc of a module.

        Args:
            mod: a module with scheduled PrimFuncs; Relax functions in it are ignored.

        Returns:
            Name of the PrimFunc → why it does not build; empty when all do.

        Raises:
            CompilerNotFoundError: no compiler for the device is installed.
        """
        failures: dict[str, BuildError] = {}
        for name, lowered in self._make(_prim_funcs(mod)).items():
            outcomes = (
                [lowered]
                if isinstance(lowered, BuildError)
                else [self._binaries[source] for source in lowered.sources]
            )
            errors = [outcome for outcome in outcomes if isinstance(outcome, BuildError)]
            if errors:
                failures[name] = errors[0]
        return failures

    def _make(self, functions: Mapping[str, Any]) -> dict[str, _Lowered | BuildError]:
        """Lower every function and bring all their sources into the table of binaries."""
        from tvm_ffi import StructuralKey

        made: dict[str, _Lowered | BuildError] = {}
        tasks: dict[str, Future[bytes | BuildError]] = {}
        with ThreadPoolExecutor(max_workers=max(1, self._workers)) as pool:
            for name, function in functions.items():
                key = (name, StructuralKey(function))
                if key not in self._lowered:
                    self._lowered[key] = self._lower(name, function)
                lowered = made[name] = self._lowered[key]
                if isinstance(lowered, BuildError):
                    continue
                for kernel, source in zip(lowered.kernels, lowered.sources, strict=True):
                    if source not in self._binaries and source not in tasks:
                        tasks[source] = pool.submit(self._try_compile, kernel.name, source)
            self._collect(made, tasks)
        return made

    def _collect(
        self,
        made: Mapping[str, _Lowered | BuildError],
        tasks: Mapping[str, Future[bytes | BuildError]],
    ) -> None:
        """Wait for the compiler, function after function as they become complete."""
        sources = {future: source for source, future in tasks.items()}
        waiting = {
            name: set() if isinstance(lowered, BuildError) else tasks.keys() & lowered.sources
            for name, lowered in made.items()
        }
        done = 0
        for future in (None, *as_completed(sources)):
            if future is not None:
                self._binaries[sources[future]] = future.result()
            for name in [
                name for name, open_ in waiting.items() if not open_ - self._binaries.keys()
            ]:
                del waiting[name]
                done += 1
                if self._on_kernel is not None:
                    self._on_kernel(name, done, len(made))

    def _lower(self, name: str, function: Any) -> _Lowered | BuildError:
        import tvm

        try:
            module = tvm.IRModule({name: function.with_attr("global_symbol", name)})
            lowered = compat.lower_module(module, self._target)
            if compat.writes_memory(lowered.host) and not compat.runs_on_host(function):
                return _unscheduled(name, "some of its loops run on the host")
            sources = tuple(compat.generate_source(kernel) for kernel in lowered.kernels)
        except Exception as error:  # TVM's passes raise whatever they like
            return _unscheduled(name, str(error))
        return _Lowered(lowered.host, lowered.kernels, sources)

    def _try_compile(self, name: str, source: str) -> bytes | BuildError:
        try:
            return self._compile(name, source)
        except CompilerNotFoundError:
            raise
        except BuildError as error:
            return error


def _unscheduled(name: str, why: str) -> BuildError:
    return BuildError(
        "TVM must lower every PrimFunc to host code and kernels",
        f"{name}: {why}",
        "schedule every loop of a GPU function onto blocks and threads",
    )


def _prim_funcs(mod: Any) -> dict[str, Any]:
    from tvm.tirx import PrimFunc

    return {
        str(var.name_hint): function.without_attr("global_symbol")
        for var, function in mod.functions.items()
        if isinstance(function, PrimFunc)
    }


def _compiler(device: Device) -> Callable[[str, str], bytes]:
    """The function (kernel's name, source) → machine code of a device."""
    if device.kernel_language == "cuda":
        arch = str(dict(device.target)["arch"])
        return lambda _name, source: compile_cuda(source, arch)
    if device.kernel_language == "opencl":
        return check_opencl
    raise BuildError(
        "machine code for AMD GPUs: an HSACO, linked by ld.lld",
        f"{device.name}: tvm_tile plans for it and schedules for it, but cannot build for it yet",
        "use tvm-tile schedule to see its plan, or build for an NVIDIA GPU or emulated",
    )
