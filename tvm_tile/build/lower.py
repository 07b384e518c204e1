"""From a scheduled Relax module to a :class:`Program`."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from tvm_tile import compat
from tvm_tile.build import code_object, cubin
from tvm_tile.build.aliasing import find_copied_outputs
from tvm_tile.build.built import Built, Rounding, combined
from tvm_tile.build.dispatch import schedules_of
from tvm_tile.build.early.dependent_launches import restricted, start_early, starts_early
from tvm_tile.build.early.spread_blocks import SpreadBlocks
from tvm_tile.build.exact.floats import hide_arithmetic, show_arithmetic
from tvm_tile.build.exact.integer_extrema import add_behind_extrema
from tvm_tile.build.exact.integer_types import in_unsigned, in_unsigned_on_nvidia
from tvm_tile.build.exact.integers import wrap_collected, wrap_integers
from tvm_tile.build.exact.numerics import (
    bfloat16_as_bits,
    choices_of_one_type,
    exact_constants,
    exact_doubles,
    float8_in,
    gathered_bytes,
    may_round_quotients,
    round_doubled_halves,
    rounds_to_integers,
    vectors_of_truths,
    widen_halves,
)
from tvm_tile.build.leaving import with_leaving
from tvm_tile.build.machine_code import architecture_of, machine_code, with_all_registers
from tvm_tile.build.naming import content_sum
from tvm_tile.build.opencl import check_opencl, complete_opencl
from tvm_tile.build.program import RETURNED_STATE, WEIGHTS, Kernel, Program
from tvm_tile.build.tail_calls import repeat_tail_calls, write_repeated
from tvm_tile.build.tir_passes import lower_module
from tvm_tile.build.unrolling import mark_loops
from tvm_tile.device.device import Device
from tvm_tile.errors import BuildError, CompilerNotFoundError, UnsupportedOperatorError
from tvm_tile.files.store import Store
from tvm_tile.graph.functions import with_prim_funcs
from tvm_tile.report.resources import Resources

_STACK = 64 << 20  # bytes; what is not used takes no memory

OnKernel = Callable[[str, int, int], None]


class Builder:
    """Builds modules for one device and keeps what it has made.

    So a pipeline may first ask which PrimFuncs fail, replace these, and build the whole,
    without lowering or compiling anything twice. PrimFuncs are built in threads: TVM's
    passes and the compilers let go of Python's lock.

    Args:
        device: the device that is built for.
        workers: PrimFuncs built at once; None: one a processor.
        on_kernel: called after every PrimFunc whose kernels are made, with (name, done, total).
        store: store that keeps machine code from one process to the next.
        host: the TVM target of the host's code; by default LLVM for this machine.
    """

    def __init__(
        self,
        device: Device,
        *,
        workers: int | None = None,
        on_kernel: OnKernel | None = None,
        store: Store | None = None,
        host: Any = None,
    ) -> None:
        self._device, self._target = device, compat.make_target(device, host)
        self._language, self._arch = device.kernel_language, architecture_of(device)
        self._workers = max(1, workers or len(os.sched_getaffinity(0)))
        self._on_kernel = on_kernel
        self._store = store
        self._built: dict[Any, Built | BuildError] = {}
        self._compiling: list[float] = []

    @property
    def target(self) -> Any:
        """The TVM target that kernels are lowered for."""
        return self._target

    @property
    def compiler_seconds(self) -> float:
        """Wall-clock seconds in the kernels' compiler, shared out over the workers.

        Exact for one worker; with more, as if these had been busy all the time.
        """
        return sum(self._compiling) / self._workers

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
            UnsupportedOperatorError: an operator is still one, which TVM has no loops for.
        """
        copied_outputs, attrs = find_copied_outputs(mod), mod["main"].attrs or {}
        vm, prim_funcs = _virtual_machine(mod)
        functions = {} if prim_funcs is None else _prim_funcs(prim_funcs)
        program = self._program(vm, self.build_parts(functions), copied_outputs)
        returned = tuple(map(int, attrs.get(RETURNED_STATE, ())))
        return replace(program, weights=int(attrs.get(WEIGHTS, 0)), returned_state=returned)

    def build_parts(self, functions: Mapping[str, Any]) -> tuple[Built, ...]:
        """Build scheduled PrimFuncs, to be linked by the caller.

        Args:
            functions: symbol -> PrimFunc, without its symbol.

        Returns:
            One part for each function, in their order.

        Raises:
            CompilerNotFoundError: no compiler for the device is installed.
            BuildError: a PrimFunc cannot be lowered or a kernel does not compile.
        """
        parts = []
        for built in self._build_all(functions).values():
            if isinstance(built, BuildError):
                raise built
            parts.append(built)
        return tuple(parts)

    def build_functions(self, functions: Mapping[str, Any]) -> dict[str, Program | BuildError]:
        """Build scheduled PrimFuncs that belong to no model, to be called by their names.

        Args:
            functions: name -> PrimFunc.

        Returns:
            For each a program of its own, without bytecode, or why it does not build.

        Raises:
            CompilerNotFoundError: no compiler for the device is installed.
        """
        anonymous = {n: f.without_attr("global_symbol") for n, f in functions.items()}
        return {
            name: built if isinstance(built, BuildError) else self._program(b"", [built], ())
            for name, built in self._build_all(anonymous).items()
        }

    def find_failures(self, mod: Any) -> dict[str, BuildError]:
        """Try every PrimFunc of a module.

        Args:
            mod: a module with scheduled PrimFuncs; Relax functions in it are ignored.

        Returns:
            Name of the PrimFunc → why it does not build; empty when all do.

        Raises:
            CompilerNotFoundError: no compiler for the device is installed.
        """
        return {
            name: built
            for name, built in self._build_all(_prim_funcs(mod)).items()
            if isinstance(built, BuildError)
        }

    def resources(self, mod: Any) -> dict[str, tuple[Resources, ...]]:
        """Resources that the kernels of a module's PrimFuncs take, by their machine code.

        Args:
            mod: module as in :meth:`find_failures`.

        Returns:
            Name of the PrimFunc → of each of its kernels; without those that do not build or that
            are no machine code.
        """
        built = self._build_all(_prim_funcs(mod))
        read = cubin.resources_of if self._language == "cuda" else code_object.resources_of
        return {
            name: tuple(read(kernel.binary) for kernel in one.launched)
            for name, one in built.items()
            if isinstance(one, Built) and all(kernel.binary for kernel in one.kernels)
        }

    def registers(self, mod: Any) -> dict[str, tuple[int | None, ...]]:
        """Registers of a thread, of each kernel of functions as in :meth:`resources`; ``None`` of
        kernels that nobody built."""
        return {n: tuple(r.registers for r in own) for n, own in self.resources(mod).items()}

    def kernel_counts(self, mod: Any) -> dict[str, int]:
        """How many kernels each of a module's PrimFuncs became; without those that do not build."""
        return {name: len(own) for name, own in self._launched(mod).items()}

    def dependent_counts(self, mod: Any) -> dict[str, int]:
        """Count the launches of each function that depend programmatically on the kernel before."""
        return {name: sum(k.depends for k in own) for name, own in self._launched(mod).items()}

    def _launched(self, mod: Any) -> dict[str, tuple[Kernel, ...]]:
        """Kernels of each function that builds."""
        built = self._build_all(_prim_funcs(mod))
        return {n: one.launched for n, one in built.items() if isinstance(one, Built)}

    def _program(
        self, vm: bytes, parts: Sequence[Built], copied_outputs: tuple[int, ...]
    ) -> Program:
        """The program of built functions and bytecode."""
        import tvm

        host = tvm.IRModule()
        for part in parts:
            host.update(part.host)
        return Program(
            language=self._language,
            arch=self._arch,
            vm=vm,
            host=compat.generate_host(host),
            kernels=tuple(kernel for part in parts for kernel in part.kernels),
            copied_outputs=copied_outputs,
        )

    def _build_all(self, functions: Mapping[str, Any]) -> dict[str, Built | BuildError]:
        """Build functions in parallel, those that are not known yet."""
        from tvm_ffi import StructuralKey

        keys = {name: (name, StructuralKey(function)) for name, function in functions.items()}
        missing = [name for name, key in keys.items() if key not in self._built]
        with _deep_stacks(), ThreadPoolExecutor(max_workers=self._workers) as pool:
            tasks = {pool.submit(self._build_one, name, functions[name]): name for name in missing}
            for done, task in enumerate(as_completed(tasks), start=1):
                name = tasks[task]
                self._built[keys[name]] = task.result()
                if self._on_kernel is not None:
                    self._on_kernel(name, done, len(tasks))
        return {name: self._built[key] for name, key in keys.items()}

    def _build_one(self, name: str, function: Any) -> Built | BuildError:
        """Build one function; the error where that fails."""
        import tvm

        if self._language == "opencl" and (dtype := float8_in(function)):
            return BuildError(
                "the emulated device computes no 8-bit floats: TVM's OpenCL has them wrong",
                f"{name} has {dtype}",
                "compile for a GPU, or in float32",
            )
        own, *others = schedules_of(function)
        if others:
            return self._build_schedules(name, function, [_anonymous(own), *others])
        try:
            spell = in_unsigned_on_nvidia if self._language == "cuda" else in_unsigned
            hidden = wrap_integers(hide_arithmetic(widen_halves(function)), spell)
            module = tvm.IRModule({name: hidden.with_attr("global_symbol", name)})
            spread = [SpreadBlocks(self._device)] if starts_early(function) else []
            lowered = lower_module(module, self._target, spread)
            if compat.writes_memory(lowered.host) and not compat.runs_on_host(function):
                return _unscheduled(name, "some of its loops run on the host")
            early = tuple(start_early(kernel, function) for kernel in lowered.kernels)
            sources = [self._source(kernel) for kernel in early]
        except Exception as error:  # TVM's passes raise whatever they like
            return _unscheduled(name, str(error))
        roundings = tuple(
            Rounding(not rounds_to_integers(k.module), not may_round_quotients(k.module))
            for k in lowered.kernels
        )
        try:
            kernels = tuple(map(self._compile_kernel, early, sources, roundings))
        except CompilerNotFoundError:
            raise
        except BuildError as error:
            return error
        return Built(lowered.host, kernels, roundings)

    def _build_schedules(self, name: str, function: Any, own: list[Any]) -> Built | BuildError:
        """A function of several schedules.

        Which ones it has is a matter of options, too, so that its name does not tell.
        """
        names = [f"{name}_{content_sum(schedule)}" for schedule in own]
        parts = [self._build_one(*pair) for pair in zip(names, own, strict=True)]
        return combined(name, function, names, parts)

    def _source(self, kernel: compat.LoweredKernel) -> str:
        """Text of a kernel in the target's language, its arithmetic kept as written."""
        shown = show_arithmetic(kernel.module)
        kernel = replace(kernel, module=with_prim_funcs(shown, wrap_collected))
        if self._language == "cuda":
            kernel = replace(kernel, module=bfloat16_as_bits(kernel.module))
            kernel = replace(kernel, module=add_behind_extrema(kernel.module))
            kernel = replace(kernel, module=round_doubled_halves(kernel.module))
        if self._language == "rocm":
            kernel = replace(kernel, module=mark_loops(kernel.module))
        if self._language == "opencl":
            kernel = replace(kernel, module=vectors_of_truths(kernel.module))
            kernel = replace(kernel, module=gathered_bytes(kernel.module))
            kernel = replace(kernel, module=choices_of_one_type(kernel.module))
            kernel = replace(kernel, module=exact_constants(kernel.module))
        else:
            kernel = replace(kernel, module=exact_doubles(kernel.module))
        return with_leaving(restricted(compat.generate_source(kernel), kernel.alone))

    def _compile_kernel(
        self, kernel: compat.LoweredKernel, source: str, rounding: Rounding
    ) -> Kernel:
        """Compile a kernel's text, or check it where it is compiled when it runs."""
        start = time.perf_counter()
        if self._language == "opencl":
            source = complete_opencl(source, contract=rounding.contract)
            binary = check_opencl(kernel.name, source)
        else:
            how = self._language, self._arch, rounding, self._store
            binary = machine_code(source, *how)
            other = with_all_registers(source, binary) if self._language == "cuda" else source
            if other != source:
                source, binary = other, machine_code(other, *how)
        self._compiling.append(time.perf_counter() - start)
        return Kernel(kernel.name, source, kernel.arg_types, kernel.launch_params, binary)


@contextmanager
def _deep_stacks() -> Iterator[None]:
    """Threads that start meanwhile can go as deep into an expression as the main thread, and more:
    TVM's passes go through one by calls of functions."""
    former = threading.stack_size(_STACK)
    try:
        yield
    finally:
        threading.stack_size(former)


def _virtual_machine(mod: Any) -> tuple[bytes, Any]:
    """Bytecode of the Relax functions, and the PrimFuncs that are still to be lowered."""
    try:
        mod, repeated = repeat_tail_calls(mod)
        return compat.generate_vm(mod, partial(write_repeated, repeated))
    except compat.TVM_ERRORS as error:
        found = " ".join(str(error).partition("# Metadata")[0].split())
        raise UnsupportedOperatorError(
            "TVM must have loops for every operator of the model, and know the shapes it takes",
            found,
            "make shapes constant that the operator is given, or leave it out of the model",
        ) from error


def _unscheduled(name: str, why: str) -> BuildError:
    """The error for a function that TVM cannot lower."""
    return BuildError(
        "TVM must lower every PrimFunc to host code and kernels",
        f"{name}: {why}",
        "schedule every loop of a GPU function onto blocks and threads",
    )


def _anonymous(function: Any) -> Any:
    """A function without what only functions of modules have."""
    return function.without_attr("global_symbol").without_attr("tirx.is_scheduled")


def _prim_funcs(mod: Any) -> dict[str, Any]:
    """TensorIR functions of a module, by name."""
    from tvm.tirx import PrimFunc

    return {
        str(var.name_hint): function.without_attr("global_symbol")
        for var, function in mod.functions.items()
        if isinstance(function, PrimFunc)
    }
