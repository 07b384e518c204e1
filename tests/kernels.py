"""Kernels of small Relax functions, run next to what NumPy makes of the unscheduled function."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx

from tvm_tile.build import Builder, Program
from tvm_tile.device import Device
from tvm_tile.graph.extract import extract
from tvm_tile.passes import schedule_module
from tvm_tile.runtime.arrays import numpy_dtype
from tvm_tile.runtime.launch import load_functions, load_program
from tvm_tile.schedule import RULES, FindChoices, Task
from tvm_tile.schedule.listed import settlers_of
from tvm_tile.schedule.ranking import attempt
from tvm_tile.stages.fusing import fuse
from tvm_tile.verify.reference import References

_ASKED = 12  # choices of each rule
_GUARD = 256  # elements behind each tensor that must stay as they are


@dataclass(frozen=True, slots=True)
class Input:
    """A float32 input unless said otherwise; integers are drawn from ``range(4)``, 8-bit ones
    from all that there are."""

    shape: tuple[int, ...]
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class Case:
    """One small Relax function: ``body(*inputs)``, and the rules that take what it becomes."""

    name: str
    rules: str
    body: Callable[..., Any]
    inputs: tuple[Input, ...]


def prim_functions(case: Case, device: Device, first: Any = None) -> dict[str, tirx.PrimFunc]:
    """The fused, unscheduled functions of a case, by name; ``first`` predicts what they take."""
    builder = relax.BlockBuilder()
    inputs = [
        relax.Var(f"x{position}", relax.TensorType(entry.shape, entry.dtype))
        for position, entry in enumerate(case.inputs)
    ]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = case.body(*inputs)
            output = builder.emit_output(relax.Tuple(result) if type(result) is tuple else result)
        builder.emit_func_output(output)
    fused = fuse(builder.get(), device, first=first).mod
    functions = ((str(var.name_hint), func) for var, func in fused.functions.items())
    return {name: func for name, func in functions if isinstance(func, tirx.PrimFunc)}


def launch_extents(func: tirx.PrimFunc) -> dict[str, int]:
    """Blocks and threads of a scheduled function of one kernel, by axis: ``"threadIdx.x"``."""
    loops: list[tirx.For] = []
    tvm_ffi.structural_walk(func.body, (tirx.For, loops.append), order="pre")
    bound = [loop for loop in loops if loop.thread_binding is not None]
    return {str(loop.thread_binding.thread_tag): int(loop.extent) for loop in bound}


def rules_of(case: Case, device: Device) -> str:
    """The rules that take the functions of a case, sorted, separated by spaces."""
    _, reports = schedule_module(tvm.IRModule(prim_functions(case, device)), device)
    return " ".join(sorted(report.rule for report in reports))


def can_take(rules: str, case: Case, device: Device) -> bool:
    """Whether rules, separated by spaces, can write the functions of a case, each one of them.

    Which rule is the fastest for a function depends on the numbers of the device's record.
    """
    offered = [offers(func, device) for func in prim_functions(case, device).values()]
    wanted = rules.split()
    return len(wanted) == len(offered) and any(
        all(rule in own for rule, own in zip(order, offered, strict=True))
        for order in permutations(wanted)
    )


def offers(func: tirx.PrimFunc, device: Device) -> set[str]:
    """Names of the rules that can write an unscheduled function; of what takes the others."""
    graph = extract(func)
    found: dict[str, Any] = {}
    for finder in RULES if graph else ():
        choices = attempt(partial(finder.find, Task(func, graph, device), _ASKED)) or ()
        for choice in choices:
            if found.get(choice.rule.name) is None:
                found[choice.rule.name] = attempt(choice)
    able = {name for name, written in found.items() if written is not None}
    if able:
        return able
    _, (report,) = schedule_module(tvm.IRModule({"only": func}), device)
    return {report.rule}


def largest_errors(case: Case, device: Device) -> list[tuple[str, float]]:
    """Rule and tile of each function, and its largest error: NaN where outputs stay unwritten."""
    functions = prim_functions(case, device)
    scheduled, reports = schedule_module(tvm.IRModule(functions), device)
    program = Builder(device).build(_with_main(scheduled))
    loaded = load_program(program, device.name)
    host = loaded.machine.module.imports[0]
    gpu = tvm.cpu() if device.kernel_language == "opencl" else tvm.cuda(0)
    return [
        (f"{r.rule} {r.tile}", Reference.of(functions[r.name]).largest_error(host[r.name], gpu))
        for r in reports
    ]


def candidate_errors(
    case: Case, device: Device, rule: FindChoices, count: int
) -> list[tuple[str, float]]:
    """Tile and largest error of ``count`` of a rule's choices, from its first to its last."""
    (func,) = prim_functions(case, device).values()
    return function_errors(func, device, rule, count)


def function_errors(
    func: tirx.PrimFunc, device: Device, rule: FindChoices, count: int
) -> list[tuple[str, float]]:
    """The same of one function."""
    graph = extract(func)
    assert graph is not None
    choices = rule(Task(func, graph, device), 1000)
    written = (choice() for choice in choices[:: max(1, len(choices) // count)])
    found = [item for item in written if item is not None]
    scheduled = {
        f"kernel_{rank}": item.func.with_attr("tirx.is_scheduled", True)
        for rank, item in enumerate(found)
    }
    built = Builder(device).build_functions(scheduled)
    reference, errors = Reference.of(func), []
    for (symbol, program), item in zip(built.items(), found, strict=True):
        assert isinstance(program, Program), str(program)
        kernel = load_functions(program, device.name)[symbol]
        errors.append((item.tile, reference.largest_error(kernel, tvm.cuda(0))))
    return errors


def written_errors(func: tirx.PrimFunc, written: list[Any], device: Device) -> list[float]:
    """The largest error of each of a function's schedules."""
    scheduled = {
        f"kernel_{rank}": item.func.with_attr("tirx.is_scheduled", True)
        for rank, item in enumerate(written)
    }
    loaded = load_program(Builder(device).build(_with_main(tvm.IRModule(scheduled))), device.name)
    host = loaded.machine.module.imports[0]
    gpu = tvm.cpu() if device.kernel_language == "opencl" else tvm.cuda(0)
    reference = Reference.of(func)
    return [reference.largest_error(host[name], gpu) for name in scheduled]


def _with_main(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` as a whole program, whose ``main`` calls nothing."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(x)
    whole = builder.get()
    whole.update(mod)
    return relax.transform.VMShapeLower()(relax.transform.AttachGlobalSymbol()(whole))


@dataclass(frozen=True, slots=True)
class Reference:
    """What a function makes of random numbers, computed once for all its kernels.

    Attributes:
        given: of each parameter, what a kernel finds there: outputs are poisoned.
        expected: of each parameter, what is there afterwards.
    """

    given: tuple[np.ndarray, ...]
    expected: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, func: tirx.PrimFunc) -> Reference:
        """The reference of an unscheduled function."""
        stores: list[tirx.BufferStore] = []
        tvm_ffi.structural_walk(func.body, (tirx.BufferStore, stores.append), order="pre")
        rng = np.random.default_rng(0)
        given, expected, settlers = [], [], settlers_of(func)
        for place, param in enumerate(func.params):
            shape = [int(extent) for extent in param.ty.shape]
            dtype = numpy_dtype(str(param.ty.dtype))
            own = drawn(rng, math.prod(shape), dtype).reshape(shape)
            if place in settlers and dtype.kind == "u":  # words of bits
                own = rng.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)
            own = settlers[place](own) if place in settlers else own
            expected.append(own)
            is_output = any(param.same_as(store.buffer) for store in stores)
            given.append(np.full_like(own, poison(dtype)) if is_output else own)
        return cls(tuple(given), tuple(References({"": func})("", expected)))

    def largest_error(self, kernel: Any, gpu: Any) -> float:
        """Of a kernel; infinite where it writes behind the end of an output."""
        ends = [np.full(_GUARD, poison(own.dtype), own.dtype) for own in self.given]
        memory = [
            tvm.runtime.tensor(np.concatenate([own.ravel(), end]), gpu)
            for own, end in zip(self.given, ends, strict=True)
        ]
        pairs = zip(memory, self.given, strict=True)
        actual = [whole._create_view(own.shape) for whole, own in pairs]
        kernel(*actual)
        errors = [
            relative_difference(got.numpy(), want)
            for want, got in zip(self.expected, actual, strict=True)
        ]
        intact = all(
            np.array_equal(whole.numpy()[-_GUARD:], end, equal_nan=True)
            for whole, end in zip(memory, ends, strict=True)
        )
        return max(errors) if intact else math.inf


def relative_difference(got: np.ndarray, want: np.ndarray) -> float:
    """Largest difference over largest finite value; NaN and infinities must agree."""
    g, w = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(w)
    if not np.array_equal(g[~finite], w[~finite], equal_nan=True):
        return math.inf
    if not finite.any():
        return 0.0
    return float(np.abs(g[finite] - w[finite]).max() / max(1.0, np.abs(w[finite]).max()))


def poison(dtype: np.dtype) -> Any:
    """What no kernel should leave, nor make."""
    if dtype.kind in "fV":
        return np.nan
    return True if dtype.kind == "b" else np.iinfo(dtype).max - 7


def drawn(rng: np.random.Generator, size: int, dtype: np.dtype) -> np.ndarray:
    """Random numbers."""
    if dtype.kind in "fV":
        return rng.standard_normal(size).astype(dtype)
    if dtype.itemsize == 1 and dtype.kind != "b":
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, size, dtype, endpoint=True)
    return rng.integers(0, 2 if dtype.kind == "b" else 4, size).astype(dtype)
