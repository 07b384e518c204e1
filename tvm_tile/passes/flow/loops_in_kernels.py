"""Put loops, branches and recursion into persistent kernels (Cocktailer, OSDI 2023, section 4)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
from tvm import relax, tirx

from tvm_tile.device.device import Device
from tvm_tile.graph.functions import expressions_in, recursive_functions, with_relax_functions
from tvm_tile.passes.coschedule.coschedule_tasks import (
    UNFIT,
    Apart,
    Coscheduled,
    FactsOf,
    TaskFunctions,
)
from tvm_tile.passes.coschedule.reorder_calls import zeroing
from tvm_tile.passes.flow.merge import merge_flow
from tvm_tile.passes.flow.plan import PlannedFlow
from tvm_tile.passes.flow.program import FlowProgram, flow_program
from tvm_tile.passes.flow.read import UnfitFlowError, is_allocation
from tvm_tile.passes.flow.read_loops import read_loop
from tvm_tile.passes.flow.runs import (
    Bindings,
    FlowRun,
    RunPlans,
    divided,
    read_line,
    stretches,
    wanted,
)
from tvm_tile.passes.lower.check_ends import results_of
from tvm_tile.passes.state.copies import copying
from tvm_tile.passes.weld.parallel_products import is_static
from tvm_tile.plan.program_records import counter_words
from tvm_tile.plan.rprogram import Bounds

_COPY = "carry"


@tvm.transform.module_pass(opt_level=0, name="LoopsInKernels")
@dataclass(frozen=True, slots=True)
class LoopsInKernels:
    """Loops, branches and recursions all of whose kernels can be rTasks become persistent kernels.

    before: ``h, rows = loop(500, h0, rows0, xs)``
    after:  ``n = call_tir(zero_counters); r = call_tir(loop, (h0, xs, records, queues, n))``
            ``h, rows = r[0], r[1]``

    Those behind one another are one kernel, with the kernels between them and around them, where
    that is predicted to take less time.

    Args:
        device: the device that the kernels are made for.
        facts: about the functions of the module, copies for loops among them
            (:func:`copies_for_loops`).
        always: whether what can be a kernel is one; else where the model predicts less time.
        record: called with each persistent kernel.
        refused: name of a persistent kernel that must not be -> why.
        left: called with each loop or branch that stays on the host.
        bounds: bounds at which kernels give up.
    """

    device: Device
    facts: FactsOf
    always: bool
    record: Callable[[Coscheduled], None]
    refused: Mapping[str, str]
    left: Callable[[Apart], None]
    bounds: Bounds

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        if not self.device.supports_grid_barrier:
            return mod
        # Kernels of some bindings of a dataflow block divide it: what they are given is used there.
        placing = _Placing(self, relax.transform.ToNonDataflow()(mod))
        placed = relax.transform.ConvertToDataflow()(placing.module())
        placed = relax.transform.DeadCodeElimination()(placed)
        return placing.told(placed)


def copies_for_loops(mod: tvm.IRModule) -> tvm.IRModule:
    """Functions that copy what loops and calls hand on and branches make, not scheduled."""
    copies = tvm.IRModule()
    for var in mod.get_global_vars():
        form = read_loop(mod, var)
        for number in form.carried if form else ():
            _add_copy(copies, mod[var].params[number].ty)
    for var in recursive_functions(mod):
        for kind in (*(param.ty for param in mod[var].params), *_fields(mod[var].ret_ty)):
            _add_copy(copies, kind)
    for branch in expressions_in(mod, relax.If):
        for kind in _fields(branch.ty):
            _add_copy(copies, kind)
    return copies


def _fields(kind: Any) -> Sequence[Any]:
    """Types of a tuple's fields, or the one type."""
    return kind.fields if isinstance(kind, relax.TupleType) else [kind]


def _add_copy(copies: tvm.IRModule, kind: Any) -> None:
    """Add a function that copies tensors of a type, if its shape is known."""
    if isinstance(kind, relax.TensorType) and is_static(kind):
        copying(copies, kind, 1, _COPY)


class _Placing:
    """The loops and branches of a module, while they are placed."""

    def __init__(self, options: LoopsInKernels, mod: tvm.IRModule) -> None:
        self._options, self._mod = options, mod
        self._functions = TaskFunctions(options.facts, options.device, are_amid_flow=True)
        self._recursive = recursive_functions(mod)
        self._within = [mod[var] for var in self._recursive]
        self._made: list[tuple[str, Coscheduled]] = []  # and the function that calls it
        self._left: list[tuple[str, Apart]] = []
        self._function = ""  # that is looked at
        self._result = mod.clone()
        self._builder = relax.BlockBuilder(self._result)
        self._tried = 0

    def module(self) -> tvm.IRModule:
        """The module with those loops as kernels that can be."""
        changed = with_relax_functions(self._result, self._placed)
        for var, func in self._result.functions_items():
            if isinstance(func, tirx.PrimFunc):
                changed[var] = func
        return changed

    def told(self, mod: tvm.IRModule) -> tvm.IRModule:
        """A module without the kernels of functions that it has no more, for they are in kernels;
        tells of the others."""
        names = {str(var.name_hint) for var in mod.get_global_vars()}
        for function, made in self._made:
            if function in names:
                self._options.record(made)
            else:
                del mod[made.name]
        for function, apart in self._left:
            if function in names:
                self._options.left(apart)
        return mod

    def _placed(self, func: relax.Function) -> relax.Function:
        """A function some of whose control flow is in kernels."""
        is_within = any(func.same_as(other) for other in self._within)
        if is_within or not isinstance(func.body, relax.SeqExpr):
            return func
        named = ((str(var.name_hint), own) for var, own in self._mod.functions_items())
        self._function = next(name for name, own in named if own.same_as(func))
        line = read_line(func.body)
        flows = frozenset(n for n, b in enumerate(line.bindings) if self._is_flow(b.value))
        if not flows:
            return func
        options = self._options
        read = partial(self._flow, line)
        plans = RunPlans(line, read, self._functions, options.device, options.always)
        fits = [plans.fits(number) for number in range(len(line.bindings))]
        chosen = [FlowRun(number, number + 1) for number in flows if not fits[number]]
        for several in stretches(fits, flows):
            chosen += plans.best(several, flows)
        bindings = list(line.bindings)
        for run in sorted(chosen, key=lambda run: run.first, reverse=True):
            bindings[run.first : run.stop] = self._kernel(line, run, plans)
        body = relax.SeqExpr([relax.BindingBlock(bindings)], func.body.body)
        return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)

    def _is_flow(self, value: Any) -> bool:
        """Whether a value is a branch, or a call of a function that calls itself, as loops do."""
        is_call = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar)
        return isinstance(value, relax.If) or (is_call and value.op in self._recursive)

    def _flow(self, line: Bindings, run: FlowRun) -> FlowProgram:
        """The program of a run of bindings."""
        values = {binding.var: binding.value for binding in line.bindings[: run.first]}

        def is_fresh(value: Any) -> bool:
            return self._is_fresh(value, values)

        _, own = divided(line, run)
        known = self._functions.slices, self._copy_of, self._options.bounds
        return flow_program(self._mod, own, wanted(line, run), is_fresh, *known)

    def _kernel(self, line: Bindings, run: FlowRun, plans: RunPlans) -> list[Any]:
        """The bindings that stand for a run: those that it has, where it stays as it is."""
        own = list(line.bindings[run.first : run.stop])
        self._tried += 1
        first = next(binding.value for binding in own if self._is_flow(binding.value))
        name = str(getattr(getattr(first, "op", None), "name_hint", "branch"))
        try:
            planned = plans.plan(run)
            name = f"{name}_{_digest(planned, self._tried)}"
            if name in self._options.refused:
                raise UnfitFlowError(self._options.refused[name])
            if not self._options.always and planned.plan.seconds >= planned.apart_seconds:
                raise UnfitFlowError("that is faster")
            return [*divided(line, run)[0], *self._called(name, wanted(line, run), planned)]
        except UnfitFlowError as error:
            self._leave(name, f"it stays on the host: {error}")
        except UNFIT as error:
            self._leave(name, f"its persistent kernel cannot be written: {error}")
        return own

    def _leave(self, name: str, reason: str) -> None:
        """Note why a loop or branch stays on the host."""
        self._left.append((self._function, Apart(name, reason)))

    def _is_fresh(self, argument: Any, values: Mapping[Any, Any]) -> bool:
        """Whether a tensor was allocated for a loop, and never written."""
        value = values.get(argument) if isinstance(argument, relax.Var) else None
        if not isinstance(value, relax.TupleGetItem):
            return False
        maker = values.get(value.tuple_value)
        if not isinstance(maker, relax.Call) or not isinstance(maker.op, tvm.ir.GlobalVar):
            return False
        func = self._mod[maker.op]
        made = [binding.value for block in func.body.blocks for binding in block.bindings]
        return all(is_allocation(one) or isinstance(one, relax.Tuple) for one in made)

    def _copy_of(self, kind: Any) -> str:
        """Name of the function that copies tensors of a type."""
        return str(copying(tvm.IRModule(), kind, 1, _COPY).name_hint)

    def _called(self, name: str, variables: Sequence[Any], planned: PlannedFlow) -> list[Any]:
        """Add the kernel to the module, and call it."""
        flow = planned.flow
        kernel = merge_flow(name, planned, self._functions.ways)
        var = tvm.ir.GlobalVar(name)
        relax.expr._update_type(var, kernel.func.ty)
        self._result[var] = kernel.func
        total = counter_words(flow.program)
        types = relax.TensorType((total,), "int32"), relax.TupleType(kernel.kinds)
        counters, made = relax.Var(f"{name}_counters", types[0]), relax.Var(name, types[1])
        zero = relax.call_tir(zeroing(self._result, total), [], types[0])
        arguments = [*flow.given.values(), *kernel.constants, counters]
        run = relax.call_tir(var, arguments, list(kernel.kinds))
        bounds = flow.program.bounds if flow.program.may_stop else None
        outputs, taken = results_of(made, len(flow.outputs), bounds)
        pairs = [(counters, zero), (made, run), *taken]
        tensors = {n: outputs[flow.outputs.index(memory)] for n, memory in flow.results.items()}
        pairs += _bound(variables, tensors | dict(flow.same))
        made_of = planned.operators, planned.plan, planned.apart_seconds, flow.program
        self._made.append((self._function, Coscheduled(name, *made_of)))
        return [relax.VarBinding(var, self._builder.normalize(value)) for var, value in pairs]


def _bound(variables: Sequence[Any], tensors: Mapping[int, Any]) -> list[tuple[Any, Any]]:
    """Values of variables, whose tensors are numbered through all of them."""
    pairs: list[tuple[Any, Any]] = []
    count = 0
    for variable in variables:
        is_tuple = isinstance(variable.ty, relax.TupleType)
        kinds = list(variable.ty.fields) if is_tuple else [variable.ty]
        own = []
        for kind in kinds:
            tensor = tensors[count]
            if list(tensor.ty.shape) != list(kind.shape):
                viewed = relax.Var(f"{variable.name}_{count}", kind)
                pairs.append((viewed, relax.op.reshape(tensor, kind.shape)))
                tensor = viewed
            own.append(tensor)
            count += 1
        pairs.append((variable, relax.Tuple(own) if is_tuple else own[0]))
    return pairs


def _digest(planned: PlannedFlow, number: int) -> str:
    """A name for the ``number``-th that was tried, the same in the next compilation."""
    functions = [node.function for node in planned.flow.nodes]
    text = repr((number, planned.operators, functions, planned.plan, planned.flow.program))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
