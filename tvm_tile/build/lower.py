"""From a scheduled Relax module to a :class:`Program`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from tvm_tile import compat
from tvm_tile.build.aliasing import find_copied_outputs
from tvm_tile.build.cuda import compile_cuda
from tvm_tile.build.opencl import compile_opencl
from tvm_tile.build.program import Kernel, Program
from tvm_tile.device.device import Device
from tvm_tile.errors import BuildError

OnKernel = Callable[[str, int, int], None]


def build_program(
    mod: Any, device: Device, *, workers: int | None = None, on_kernel: OnKernel | None = None
) -> Program:
    """Build a scheduled Relax module; see :meth:`Builder.build`."""
    return Builder(device, workers=workers, on_kernel=on_kernel).build(mod)


def check_kernel(prim_func: Any, device: Device) -> None:
    """Build the kernels of one scheduled PrimFunc and throw the result away.

    Raises:
        BuildError: they do not build; the message is the compiler's.
    """
    import tvm

    named = prim_func.with_attr("global_symbol", "checked")
    failures = Builder(device).find_failures(tvm.IRModule({"checked": named}))
    if failures:
        raise failures["checked"]


class Builder:
    """Builds modules for one device and keeps the machine code of every source it has seen.

    So a pipeline may first ask which PrimFuncs fail, replace these, and build the whole,
    without compiling anything twice.

    Args:
        device: what to build for.
        workers: kernels compiled at once; None: one a processor.
        on_kernel: called after every compiled kernel with (name, done, total).
    """

    def __init__(
        self, device: Device, *, workers: int | None = None, on_kernel: OnKernel | None = None
    ) -> None:
        self._device = device
        self._target = compat.make_target(device)
        self._workers = workers or len(os.sched_getaffinity(0))
        self._on_kernel = on_kernel
        self._compiled: dict[str, bytes | BuildError] = {}

    def build(self, mod: Any) -> Program:
        """Build a Relax module.

        Args:
            mod: the module after all Relax passes, every PrimFunc scheduled, calls and
                memory lowered to the VM's (what ``relax.vm_build`` would take with
                ``relax_pipeline=None``).

        Returns:
            The program; equal sources are compiled once.

        Raises:
            CompilerNotFoundError: no compiler for the device is installed.
            BuildError: a PrimFunc cannot be lowered or a kernel does not compile.
        """
        copied_outputs = find_copied_outputs(mod)
        vm, prim_funcs = compat.generate_vm(mod)
        if prim_funcs is None:
            return Program(vm, b"", (), copied_outputs)
        lowered = self._lower(prim_funcs)
        sources = [self._generate(kernel) for kernel in lowered.kernels]
        self._compile(zip(lowered.kernels, sources, strict=True))
        kernels = []
        for kernel, source in zip(lowered.kernels, sources, strict=True):
            binary = self._compiled[source]
            if isinstance(binary, BuildError):
                raise binary
            kernels.append(
                Kernel(kernel.name, source, kernel.arg_types, kernel.launch_params, binary)
            )
        host = compat.generate_host(lowered.host)
        return Program(vm, host, tuple(kernels), copied_outputs)

    def find_failures(self, mod: Any) -> dict[str, BuildError]:
        """Try every PrimFunc of a module.

        Args:
            mod: a module with scheduled PrimFuncs; Relax functions in it are ignored.

        Returns:
            Name of the PrimFunc → why it does not build; empty when all do.

        Raises:
            CompilerNotFoundError: no compiler for the device is installed.
        """
        import tvm
        from tvm.tirx import PrimFunc

        failures: dict[str, BuildError] = {}
        made: list[tuple[str, compat.LoweredKernel, str]] = []
        for var, function in mod.functions.items():
            if not isinstance(function, PrimFunc):
                continue
            name = str(var.name_hint)
            try:
                alone = tvm.IRModule({name: function.with_attr("global_symbol", name)})
                for kernel in self._lower(alone).kernels:
                    made.append((name, kernel, self._generate(kernel)))
            except BuildError as error:
                failures[name] = error
        self._compile((kernel, source) for _, kernel, source in made)
        for name, _, source in made:
            outcome = self._compiled[source]
            if isinstance(outcome, BuildError):
                failures[name] = outcome
        return failures

    def _lower(self, prim_funcs: Any) -> compat.LoweredModule:
        try:
            return compat.lower_module(prim_funcs, self._target)
        except Exception as error:  # TVM's passes raise whatever they like
            names = ", ".join(str(var.name_hint) for var in prim_funcs.get_global_vars())
            raise BuildError(
                "TVM must lower every PrimFunc to host code and kernels",
                f"{error} (in one of {names})",
                "schedule every loop of a GPU function onto blocks and threads",
            ) from error

    def _generate(self, kernel: compat.LoweredKernel) -> str:
        try:
            return compat.generate_source(kernel)
        except Exception as error:  # as above
            raise BuildError(
                f"TVM must generate {self._device.kernel_language} code for every kernel",
                f"{error} (in {kernel.name})",
                "keep to operations and dtypes that this language has",
            ) from error

    def _compile(self, kernels: Iterable[tuple[compat.LoweredKernel, str]]) -> None:
        """Fill the table of compiled sources; a failure is kept as its error."""
        names = {source: kernel.name for kernel, source in kernels}
        missing = [source for source in names if source not in self._compiled]
        with ThreadPoolExecutor(max_workers=max(1, self._workers)) as pool:
            tasks = {pool.submit(self._machine_code, names[s], s): s for s in missing}
            for done, task in enumerate(as_completed(tasks), start=1):
                source = tasks[task]
                self._compiled[source] = task.result()
                if self._on_kernel is not None:
                    self._on_kernel(names[source], done, len(tasks))

    def _machine_code(self, name: str, source: str) -> bytes | BuildError:
        try:
            if self._device.kernel_language == "cuda":
                return compile_cuda(source, str(dict(self._device.target)["arch"]))
            compile_opencl(name, source)
        except BuildError as error:
            return error
        return b""
