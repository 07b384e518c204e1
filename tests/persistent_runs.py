"""Small models whose kernels are put into one persistent kernel, which runs on the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from grid_emulator import parameters, run_grid
from tvm import relax, tirx

from tvm_tile import compat
from tvm_tile.build import Builder, Program
from tvm_tile.build.tir_passes import lower_module
from tvm_tile.device import Device
from tvm_tile.passes import LiftWorkspaces, schedule_module
from tvm_tile.passes.coschedule import coschedule_tasks
from tvm_tile.passes.coschedule.coschedule_tasks import Coscheduled, CoscheduleTasks
from tvm_tile.passes.coschedule.kernel_facts import KernelFacts
from tvm_tile.plan.coschedule import coschedule
from tvm_tile.plan.execution_plan import Group, RKernel, ROperator
from tvm_tile.registered import REQUIRE_ENDED
from tvm_tile.runtime.ended import register_require_ended
from tvm_tile.stages.coscheduling import with_copies
from tvm_tile.stages.fusing import fuse

Change = Callable[[np.ndarray], None]
"""Of the records of a persistent kernel, in place."""

_REGISTERS = 64  # of a thread: building each kernel would tell, and take long
_MOST_SHARED = 227 << 10  # bytes, of a kernel of which nobody has said how many


@dataclass(frozen=True, slots=True)
class Joined:
    """A module of which as many kernels as possible are one persistent kernel.

    Attributes:
        mod: itself.
        made: the persistent kernels.
        device: that it is for.
    """

    mod: tvm.IRModule
    made: tuple[Coscheduled, ...]
    device: Device


class Kernels:
    """A module's kernels, ``scheduled``, each of which fits into a persistent one.

    Args:
        mod: of Relax operators.
        device: for which they are scheduled.
    """

    def __init__(self, mod: tvm.IRModule, device: Device) -> None:
        self._device = device
        fused = fuse(mod, device).mod
        scheduled, reports = schedule_module(fused, device)
        scheduled = tvm.transform.Sequential([LiftWorkspaces()])(scheduled)
        fused, self.scheduled, told = with_copies(fused, scheduled, reports, device)
        registers = {report.name: (_REGISTERS,) for report in told}
        self.facts = KernelFacts(device, fused, self.scheduled, told, registers)

    def coscheduled(
        self,
        record: Callable[[Coscheduled], None],
        refused: Mapping[str, str] | None = None,
        mod: tvm.IRModule | None = None,
    ) -> tvm.IRModule:
        """After co-scheduling; of ``mod`` instead, if that is another form of ``scheduled``."""
        passes = [CoscheduleTasks(self._device, self.facts, record, refused)]
        result = tvm.transform.Sequential(passes)(mod or self.scheduled)
        relax.analysis.well_formed(result)  # or raises
        return result

    def apart(self) -> Joined:
        """All of them as launches of their own."""
        return Joined(self.scheduled, (), self._device)

    def joined(self, *, uses_flags: bool) -> Joined:
        """All of them co-scheduled, whether that pays or not, with flags or with barriers."""
        made: list[Coscheduled] = []

        def all_of_them(
            operators: tuple[ROperator, ...], device: Device, allowed: Sequence[bool]
        ) -> tuple[Group, ...]:
            # All but the outputs' tuple.
            numbers = tuple(number for number, fits in enumerate(allowed) if fits)
            own = keeping_weights(tuple(operators[number] for number in numbers))
            plan = coschedule(own, device)
            assert plan is not None
            return (Group(numbers, replace(plan, uses_flags=uses_flags), 1.0),)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(coschedule_tasks, "partition", all_of_them)
            result = self.coscheduled(made.append)
        return Joined(result, tuple(made), self._device)


def keeping_weights(operators: tuple[ROperator, ...]) -> tuple[ROperator, ...]:
    """Weights of several operators stay, which for so small a model would not pay."""
    readers = Counter(operator.weights for operator in operators if operator.weights is not None)

    def slow(choice: RKernel) -> RKernel:
        return choice if choice.resident_bytes else replace(choice, block_seconds=1e-3)

    return tuple(
        replace(operator, choices=tuple(map(slow, operator.choices)))
        if readers[operator.weights] > 1
        else operator
        for operator in operators
    )


class Emulation:
    """Runs the calls of a module's ``main``, each kernel from its CUDA text.

    Args:
        model: whose kernels are one-dimensional.
        folder: for what is compiled.
        change: is made to the records of persistent kernels.
    """

    def __init__(self, model: Joined, folder: Path, change: Change | None = None) -> None:
        self._model = model
        self._folder = folder
        self._change = change
        self._shared = {made.name: made.plan.shared_bytes for made in model.made}
        called = {str(var.name_hint): func for var, func in model.mod.functions_items()}
        names = [str(value.args[0].name_hint) for value in self._calls()]
        self._functions = {name: called[name] for name in names}
        self._programs = Builder(model.device).build_functions(self._functions)

    def __call__(self, *inputs: np.ndarray, seed: int = 0) -> list[np.ndarray]:
        """What ``main`` returns, its blocks running in an order drawn from ``seed``."""
        main = self._model.mod["main"]
        values: dict[Any, Any] = dict(zip(main.params, inputs, strict=True))

        def value_of(expr: Any) -> Any:
            if isinstance(expr, relax.Var):
                return values[expr]
            if isinstance(expr, relax.Tuple):
                return tuple(value_of(field) for field in expr.fields)
            if isinstance(expr, relax.TupleGetItem):
                return value_of(expr.tuple_value)[expr.index]
            if isinstance(expr, relax.Call) and expr.op == tvm.ir.Op.get("relax.reshape"):
                return value_of(expr.args[0]).reshape([int(n) for n in expr.ty.shape])
            if isinstance(expr, relax.Call) and expr.op == tvm.ir.Op.get("relax.call_pure_packed"):
                return _checked(expr, value_of)
            if isinstance(expr, relax.Call):
                return self._run(expr, [value_of(field) for field in expr.args[1].fields], seed)
            return expr.value.numpy()

        for block in main.body.blocks:
            for binding in block.bindings:
                values[binding.var] = value_of(binding.value)
        result = value_of(main.body.body)
        return list(result) if isinstance(result, tuple) else [result]

    def _calls(self) -> list[Any]:
        blocks = self._model.mod["main"].body.blocks
        found = [binding.value for block in blocks for binding in block.bindings]
        op = tvm.ir.Op.get("relax.call_tir")
        return [value for value in found if isinstance(value, relax.Call) and value.op == op]

    def _run(self, call: Any, inputs: list[np.ndarray], seed: int) -> Any:
        name, kind = str(call.args[0].name_hint), call.ty
        program, function = self._programs[name], self._functions[name]
        assert isinstance(program, Program), str(program)
        (kernel,) = program.kernels
        is_tuple = isinstance(kind, relax.TupleType)
        outputs = [_poisoned(field) for field in (kind.fields if is_tuple else [kind])]
        names = [str(param.name) for param in function.params]
        arrays = dict(zip(names, [*inputs, *outputs], strict=True))
        if self._change is not None and "records" in arrays:
            arrays["records"] = arrays["records"].copy()
            self._change(arrays["records"])
        order = parameters(kernel)
        given = [np.ascontiguousarray(arrays[name]) for name in order]
        blocks, columns, rows = _shape(function, self._model.device)
        shape, shared = (blocks, columns * rows), self._shared.get(name, _MOST_SHARED)
        run = (kernel, given, shape, shared, self._folder)
        (after,) = run_grid(*run, seeds=(seed,), columns=columns)
        # What the kernel does not use is not among its arguments.
        arrays |= {n: a.reshape(arrays[n].shape) for n, a in zip(order, after, strict=True)}
        results = tuple(arrays[name] for name in names[len(inputs) :])
        return results if is_tuple else results[0]


def _checked(call: Any, value_of: Callable[[Any], Any]) -> Any:
    """What a call hands on of what it is given, if its kernel came to its end."""
    function, stopped, name, *rest = call.args
    assert function.global_symbol == REQUIRE_ENDED
    register_require_ended()
    values = [e.value if isinstance(e, tirx.IntImm) else value_of(e) for e in rest]
    limits = [int(value) for value in values if isinstance(value, int)]
    word = tvm.runtime.tensor(value_of(stopped))
    tvm.get_global_func(REQUIRE_ENDED)(word, name.value, *limits)
    return tuple(values[len(limits) :])


def _poisoned(kind: Any) -> np.ndarray:
    """Memory that is not a number, wherever it is read before it was written."""
    array = np.empty([int(extent) for extent in kind.shape], str(kind.dtype))
    array.reshape(-1).view(np.uint8).fill(255)
    return array


def _shape(function: tirx.PrimFunc, device: Device) -> tuple[int, int, int]:
    """Blocks, and threads of a block along x and y."""
    named = tvm.IRModule({"shape": function.with_attr("global_symbol", "shape")})
    (kernel,) = lower_module(named, compat.make_target(device)).kernels
    (lowered,) = kernel.module.functions.values()
    extents: dict[str, int] = {}

    def launch(attr: Any) -> None:
        if attr.attr_key == "thread_extent":
            extents[str(attr.node.thread_tag)] = int(attr.value)

    tvm_ffi.structural_walk(lowered.body, (tirx.AttrStmt, launch))
    axes = ("blockIdx.x", "threadIdx.x", "threadIdx.y")
    assert set(extents) <= set(axes)
    blocks, columns, rows = (extents.get(axis, 1) for axis in axes)
    return blocks, columns, rows
