"""Functions of chains in CUDA graphs, marked to start while the kernel before them ends."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax, tirx

from tvm_tile import compat
from tvm_tile.build.early.dependent_launches import LetsGo, asked_ahead, loaded_share, mark
from tvm_tile.device import Device
from tvm_tile.frontend.imported import NUM_INPUT
from tvm_tile.graph.functions import calls_in, entries
from tvm_tile.launches.dependent_launches import early_step_seconds
from tvm_tile.passes.ir.rewriter import is_call_tir, is_in_place


@tvm.transform.module_pass(opt_level=0, name="MarkDependentLaunches")
@dataclass(frozen=True, slots=True)
class MarkDependentLaunches:
    """Say of scheduled functions when their kernels start, and which arguments are settled.

    before: ``f(x, w, y)``
    after:  ``f(x, w, y)`` with an attribute that names ``w``, a constant in each of its calls

    The build makes of the attribute what it says
    (:func:`~tvm_tile.build.early.dependent_launches.start_early`); which functions start early, is
    decided by :func:`~tvm_tile.launches.dependent_launches.early_step_seconds`. Those before them
    let them go. Functions that are not called by ``call_tir`` keep their form.

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
        own = {str(var.name_hint): func for var, func in mod.functions_items() if _is_kernel(func)}
        called = {name: func for name, func in own.items() if calls.counts[name]}
        known = {
            name: tuple(frozenset(calls.names(func, places)) for places in calls.known(name))
            for name, func in called.items()
        }
        begun = {name: _begun(func, *known[name]) for name, func in called.items()}
        early = {}
        for name, func in called.items():
            seconds = early_step_seconds(
                calls.counts[name],
                calls.steps[name],
                self.device,
                self.seconds.get(name, 0.0),
                loaded=_loaded_share(_Body(func.body, func), known[name][0]),
                forced=self.forced,
            )
            if seconds is not None:
                early[name] = seconds
        result = mod.clone()
        for name, func in called.items():
            behind = [begun[other] for other in calls.behind[name] if other in early]
            lets_go, waits = _lets_go(behind, waits=name in early), name in early
            if waits or lets_go is not LetsGo.ENDED:
                constant, settled = map(sorted, known[name])
                told = early.get(name, 0.0), constant, settled, lets_go
                result[mod.get_global_var(name)] = mark(func, *told, waits=waits)
        return result


@dataclass(frozen=True, slots=True)
class _Begun:
    """What a function's kernels do that begin early.

    Attributes:
        asks: whether they ask for something before they wait, and all of that is settled.
        asks_more: whether some of it is no constant.
        is_counted: whether the number of their blocks is known before they run.
    """

    asks: bool
    asks_more: bool
    is_counted: bool


def _begun(func: tirx.PrimFunc, constant: frozenset[str], settled: frozenset[str]) -> _Begun:
    """What the kernels of a function do once they begin, given the names of its parameters that
    are constants in all calls, and of those that are settled."""
    asked = _asked_ahead(_Body(func.body, func))
    asks = asked is not None and asked <= constant | settled
    shapes = [getattr(param.ty, "shape", None) for param in func.params]
    counted = all(
        shape is not None and all(isinstance(extent, tirx.IntImm) for extent in shape)
        for shape in shapes
    )
    return _Begun(asks, asks and asked is not None and not asked <= constant, counted)


def _lets_go(behind: Collection[_Begun], *, waits: bool) -> LetsGo:
    """When a kernel's blocks let those behind it begin, given what these do then."""
    if not behind or not all(own.asks or own.is_counted for own in behind):
        return LetsGo.ENDED
    return LetsGo.WAITED if waits and any(own.asks_more for own in behind) else LetsGo.FIRST


def _is_kernel(func: Any) -> bool:
    """Whether a function of a module is launched on the device."""
    return isinstance(func, tirx.PrimFunc) and not compat.runs_on_host(func)


@dataclass(frozen=True, slots=True)
class _Body:
    """A scheduled function, equal to others of its body: models that call it have that in common.

    Attributes:
        body: its body.
        func: itself.
    """

    body: Any
    func: tirx.PrimFunc = field(compare=False)


@functools.lru_cache(maxsize=1024)
def _asked_ahead(own: _Body) -> frozenset[str] | None:
    return asked_ahead(own.func)


@functools.lru_cache(maxsize=1024)
def _loaded_share(own: _Body, constants: frozenset[str]) -> float:
    return loaded_share(own.func, constants)


class _Calls:
    """The calls of a module's PrimFuncs.

    Attributes:
        counts: name -> calls.
        steps: name -> calls right behind that of another kernel. Views between two kernels are no
            kernels; what follows a branch, or a function that is none of ours, is no step.
        behind: name -> functions whose calls are right behind one of its own.
        constants: name -> positions of the parameters that are constants in every call.
        older: name -> positions of those that in every call were written before the kernel began
            that the call is right behind.
    """

    def __init__(self, mod: tvm.IRModule) -> None:
        self.counts: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()
        self.behind: defaultdict[str, set[str]] = defaultdict(set)
        self.constants: dict[str, set[int]] = {}
        self.older: dict[str, set[int]] = {}
        outer = {var for var, _ in entries(mod)}
        for var, func in mod.functions_items():
            if isinstance(func, relax.Function):
                count = len(func.params)
                given = int((func.attrs or {}).get(NUM_INPUT, count)) if var in outer else count
                self._read(func.body, set(func.params[given:]) - _written(func))

    def known(self, name: str) -> tuple[set[int], set[int]]:
        """Positions of a function's parameters that are constant, and of those that are older."""
        return self.constants.get(name, set()), self.older.get(name, set())

    @staticmethod
    def names(func: tirx.PrimFunc, places: set[int]) -> set[str]:
        """Names of a function's parameters at these positions."""
        return {str(func.params[at].name) for at in places}

    def _read(self, body: Any, constants: set[Any]) -> None:
        """Count the calls of a function, or of a branch of it."""
        if not isinstance(body, relax.SeqExpr):
            return
        before, writes = "", _Writes()
        for block in body.blocks:
            for binding in block.bindings:
                value = binding.value
                if is_call_tir(value) or is_in_place(value):
                    self._count(value, constants, before, writes)
                    writes.launch(binding)
                    before = str(value.args[0].name_hint)
                    continue
                if isinstance(value, relax.If):
                    self._read(value.true_branch, constants)
                    self._read(value.false_branch, constants)
                if isinstance(value, relax.If) or _launches(value):
                    before, writes = "", _Writes()
                writes.view(binding)

    def _count(self, call: relax.Call, constants: set[Any], before: str, writes: _Writes) -> None:
        """Count a call, the kernel that it follows, and its arguments that are settled."""
        name = str(call.args[0].name_hint)
        self.counts[name] += 1
        self.steps[name] += bool(before)
        if before:
            self.behind[before].add(name)
        given = list(enumerate(call.args[1].fields))
        own = {at for at, arg in given if isinstance(arg, tvm.ir.Constant) or arg in constants}
        self.constants[name] = self.constants.get(name, own) & own
        older = {at for at, arg in given if before and writes.is_older(arg)}
        self.older[name] = self.older.get(name, older) & older


class _Writes:
    """Kernels one behind the other, and which of them wrote last to a variable's memory."""

    def __init__(self) -> None:
        self._launched = 0
        self._roots: dict[Any, frozenset[Any]] = {}
        self._wrote: dict[Any, int] = {}

    def launch(self, binding: relax.Binding) -> None:
        """Note a kernel's call: what it makes is new, and what it writes in place is changed."""
        self._launched += 1
        call = binding.value
        if is_in_place(call):
            self._roots[binding.var] = self._roots_of(call.args[1])
        for root in self._roots_of(binding.var):
            self._wrote[root] = self._launched

    def view(self, binding: relax.Binding) -> None:
        """Note another name for memory of all that the value is made of."""
        self._roots[binding.var] = self._roots_of(binding.value) or frozenset((binding.var,))

    def is_older(self, value: Any) -> bool:
        """Whether no kernel wrote to a value's memory from the last one on."""
        return all(self._wrote.get(root, 0) < self._launched for root in self._roots_of(value))

    def _roots_of(self, value: Any) -> frozenset[Any]:
        """The variables whose memory a value may be in."""
        if isinstance(value, relax.Var):
            return self._roots.get(value, frozenset((value,)))
        own = (self._roots_of(var) for var in relax.analysis.free_vars(value))
        return frozenset().union(*own)


def _written(func: relax.Function) -> set[Any]:
    """The variables that calls which write in place are given."""
    calls = [call for call in calls_in(func) if is_in_place(call)]
    return {own for call in calls for own in call.args[1].fields if isinstance(own, relax.Var)}


def _launches(value: Any) -> bool:
    """Whether an expression may launch something that is no PrimFunc of the module."""
    if not isinstance(value, relax.Call):
        return False
    is_function = isinstance(value.op, relax.ExternFunc | tvm.ir.GlobalVar | relax.Var)
    return is_function or value.op.name.startswith("relax.call_")
