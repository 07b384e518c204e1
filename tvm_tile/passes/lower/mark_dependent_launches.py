"""Functions of chains in CUDA graphs, marked to start while the kernel before them ends."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax, tirx

from tvm_tile import compat
from tvm_tile.build.dependent_launches import asks_ahead, mark
from tvm_tile.device import Device
from tvm_tile.frontend.imported import NUM_INPUT
from tvm_tile.graph.functions import entries
from tvm_tile.launches.dependent_launches import early_step_seconds
from tvm_tile.passes.ir.rewriter import is_call_tir, is_in_place


@tvm.transform.module_pass(opt_level=0, name="MarkDependentLaunches")
@dataclass(frozen=True, slots=True)
class MarkDependentLaunches:
    """Say of scheduled functions that their kernels start early, and which arguments are constants.

    before: ``f(x, w, y)``
    after:  ``f(x, w, y)`` with an attribute that names ``w``, a constant in each of its calls

    The build makes of the attribute what it says
    (:func:`~tvm_tile.build.dependent_launches.start_early`); which functions get one, is decided by
    :func:`~tvm_tile.launches.dependent_launches.early_step_seconds`. Functions that are not called
    by ``call_tir`` keep their form.

    Attributes:
        device: the device that it is compiled for.
        forced: whether all functions get it that can.
        seconds: name of a function -> predicted time of a call; others count as the shortest.
    """

    device: Device
    forced: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict)

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        calls = _Calls(mod)
        ahead = {
            str(var.name_hint)
            for var, func in mod.functions_items()
            if isinstance(func, tirx.PrimFunc) and asks_ahead(func)
        }
        result = mod.clone()
        for var, func in mod.functions_items():
            if not isinstance(func, tirx.PrimFunc) or compat.runs_on_host(func):
                continue
            name = str(var.name_hint)
            count, steps = calls.counts[name], calls.steps[name]
            own = self.seconds.get(name, 0.0)
            lets_go = bool(calls.behind[name]) and calls.behind[name] <= ahead
            known = {"is_ahead": name in ahead, "lets_go": lets_go, "forced": self.forced}
            seconds = early_step_seconds(count, steps, self.device, own, **known)
            if seconds is not None and count:
                constants = (str(func.params[at].name) for at in sorted(calls.constants[name]))
                result[var] = mark(func, seconds, constants, lets_go=lets_go)
        return result


class _Calls:
    """The calls of a module's PrimFuncs.

    Attributes:
        counts: name -> calls.
        steps: name -> calls right behind that of another kernel. Views between two kernels are no
            kernels; what follows a branch, or a function that is none of ours, is no step.
        behind: name -> functions whose calls are right behind one of its own.
        constants: name -> positions of the parameters that are constants in every call.
    """

    def __init__(self, mod: tvm.IRModule) -> None:
        self.counts: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()
        self.behind: defaultdict[str, set[str]] = defaultdict(set)
        self.constants: dict[str, set[int]] = {}
        outer = {var for var, _ in entries(mod)}
        for var, func in mod.functions_items():
            if isinstance(func, relax.Function):
                count = len(func.params)
                given = int((func.attrs or {}).get(NUM_INPUT, count)) if var in outer else count
                self._read(func.body, set(func.params[given:]) - _written(func))

    def _read(self, body: Any, constants: set[Any]) -> None:
        """Count the calls of a function, or of a branch of it."""
        if not isinstance(body, relax.SeqExpr):
            return
        before = ""
        for block in body.blocks:
            for binding in block.bindings:
                value = binding.value
                if is_call_tir(value) or is_in_place(value):
                    self._count(value, constants, before)
                    before = str(value.args[0].name_hint)
                elif isinstance(value, relax.If):
                    self._read(value.true_branch, constants)
                    self._read(value.false_branch, constants)
                    before = ""
                elif _launches(value):
                    before = ""

    def _count(self, call: relax.Call, constants: set[Any], before: str) -> None:
        """Count a call, the kernel that it follows, and its arguments that are constants."""
        name = str(call.args[0].name_hint)
        self.counts[name] += 1
        self.steps[name] += bool(before)
        if before:
            self.behind[before].add(name)
        own = {
            at
            for at, given in enumerate(call.args[1].fields)
            if isinstance(given, tvm.ir.Constant) or given in constants
        }
        self.constants[name] = self.constants.get(name, own) & own


def _written(func: relax.Function) -> set[Any]:
    """The variables that calls which write in place are given."""
    found: set[Any] = set()

    def visit(expr: Any) -> None:
        if is_in_place(expr):
            found.update(given for given in expr.args[1].fields if isinstance(given, relax.Var))

    relax.analysis.post_order_visit(func, visit)
    return found


def _launches(value: Any) -> bool:
    """Whether an expression may launch something that is no PrimFunc of the module."""
    if not isinstance(value, relax.Call):
        return False
    is_function = isinstance(value.op, relax.ExternFunc | tvm.ir.GlobalVar | relax.Var)
    return is_function or value.op.name.startswith("relax.call_")
