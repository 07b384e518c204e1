"""Put loops into persistent kernels (Cocktailer, OSDI 2023, section 4)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from tvm_tile.device.device import Device
from tvm_tile.graph.functions import recursive_functions, with_relax_functions
from tvm_tile.kernel.dispatch import Parameter
from tvm_tile.kernel.persistent import Bound, ControlFlow, Counters, make_persistent
from tvm_tile.passes.check_ends import ended
from tvm_tile.passes.copies import copying
from tvm_tile.passes.coschedule_tasks import (
    UNFIT,
    Apart,
    Coscheduled,
    FactsOf,
    TaskFunctions,
)
from tvm_tile.passes.flow_program import FlowProgram, flow_program
from tvm_tile.passes.merge_calls import (
    Constants,
    arguments_of,
    bind,
    check_count,
    parameter,
)
from tvm_tile.passes.parallel_products import is_static
from tvm_tile.passes.plan_flow import PlannedFlow, plan_flow
from tvm_tile.passes.read_flow import UnfitFlowError, is_allocation
from tvm_tile.passes.read_loops import read_loop
from tvm_tile.passes.reorder_calls import zeroing
from tvm_tile.plan.rprogram import Bounds

_COPY = "carry"


@tvm.transform.module_pass(opt_level=0, name="LoopsInKernels")
@dataclass(frozen=True, slots=True)
class LoopsInKernels:
    """Loops, branches and recursions all of whose kernels can be rTasks become a persistent kernel
    each.

    before: ``h, rows = loop(500, h0, rows0, xs)``
    after:  ``n = call_tir(zero_counters); r = call_tir(loop, (h0, xs, records, queues, n))``
            ``h, rows = r[0], r[1]``

    Args:
        device: that the kernels are for.
        facts: about the functions of the module, copies for loops among them
            (:func:`copies_for_loops`).
        always: whether what can be a kernel is one; else where the model predicts less time.
        record: is given each persistent kernel.
        refused: name of a persistent kernel that must not be -> why.
        left: is given each that stays on the host.
        bounds: where kernels give up.
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
        placed = _Placing(self, mod).module()
        return relax.transform.DeadCodeElimination()(placed)


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

    def visit(expr: Any) -> None:
        if isinstance(expr, relax.If):
            for kind in _fields(expr.ty):
                _add_copy(copies, kind)

    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, visit)
    return copies


def _fields(kind: Any) -> Sequence[Any]:
    return kind.fields if isinstance(kind, relax.TupleType) else [kind]


def _add_copy(copies: tvm.IRModule, kind: Any) -> None:
    if isinstance(kind, relax.TensorType) and is_static(kind):
        copying(copies, kind, 1, _COPY)


class _Placing:
    """The loops and branches of a module, while they are placed."""

    def __init__(self, options: LoopsInKernels, mod: tvm.IRModule) -> None:
        self._options, self._mod = options, mod
        self._functions = TaskFunctions(options.facts, options.device)
        self._recursive = recursive_functions(mod)
        self._within = [mod[var] for var in self._recursive]
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

    def _placed(self, func: relax.Function) -> relax.Function:
        is_within = any(func.same_as(other) for other in self._within)
        if is_within or not isinstance(func.body, relax.SeqExpr):
            return func
        blocks = [self._block(block) for block in func.body.blocks]
        body = relax.SeqExpr(blocks, func.body.body)
        return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)

    def _block(self, block: Any) -> Any:
        values = {binding.var: binding.value for binding in block.bindings}
        bindings: list[Any] = []
        for binding in block.bindings:
            made = self._kernel(binding, values) if self._is_flow(binding.value) else None
            bindings += made or [binding]
        return type(block)(bindings)

    def _is_flow(self, value: Any) -> bool:
        """Whether a value is a branch, or a call of a function that calls itself, as loops do."""
        is_call = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar)
        return isinstance(value, relax.If) or (is_call and value.op in self._recursive)

    def _kernel(self, binding: Any, values: Mapping[Any, Any]) -> list[Any]:
        """The bindings that stand for a loop or a branch; none where it stays as it is."""
        self._tried += 1
        name = str(getattr(getattr(binding.value, "op", None), "name_hint", "branch"))
        try:
            planned = self._planned(binding, values)
            name = f"{name}_{_digest(planned, self._tried)}"
            if name in self._options.refused:
                raise UnfitFlowError(self._options.refused[name])
            return self._called(name, binding, planned)
        except UnfitFlowError as error:
            self._options.left(Apart(name, f"it stays on the host: {error}"))
        except UNFIT as error:
            self._options.left(Apart(name, f"its persistent kernel cannot be written: {error}"))
        return []

    def _planned(self, binding: Any, values: Mapping[Any, Any]) -> PlannedFlow:
        """How control flow runs inside a kernel.

        Raises:
            UnfitFlowError: it cannot, or that takes longer.
        """

        def is_fresh(value: Any) -> bool:
            return self._is_fresh(value, values)

        options = self._options
        known = self._functions.slices, self._copy_of, options.bounds
        flow = flow_program(self._mod, binding, is_fresh, *known)
        planned = plan_flow(flow, self._functions, options.device)
        if not options.always and planned.plan.seconds >= planned.apart_seconds:
            raise UnfitFlowError("that is faster")
        return planned

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
        return str(copying(tvm.IRModule(), kind, 1, _COPY).name_hint)

    def _called(self, name: str, binding: Any, planned: PlannedFlow) -> list[Any]:
        """Add the kernel to the module, and call it."""
        flow = planned.flow
        variable = type(binding.var)  # within a dataflow block or not
        kernel = self._written(name, planned)
        total = flow.program.count_counters
        types = relax.TensorType((total,), "int32"), relax.TupleType(kernel.kinds)
        counters, made = variable(f"{name}_counters", types[0]), variable(name, types[1])
        zero = relax.call_tir(zeroing(self._result, total), [], types[0])
        arguments = [*flow.given.values(), *kernel.constants, counters]
        run = relax.call_tir(kernel.var, arguments, list(kernel.kinds))
        bound, items = [], []
        for number in range(len(flow.same) + len(flow.results)):
            if number in flow.same:
                items.append(flow.same[number])
                continue
            place = flow.outputs.index(flow.results[number])
            items.append(variable(f"{name}_{number}", kernel.kinds[place]))
            bound.append((items[-1], relax.TupleGetItem(made, place)))
        if flow.program.may_stop:
            bound = self._checked(name, made, flow, bound)
        is_tuple = isinstance(binding.var.ty, relax.TupleType)
        whole = relax.Tuple(items) if is_tuple else items[0]
        pairs = [(counters, zero), (made, run), *bound, (binding.var, whole)]
        options = self._options
        options.record(Coscheduled(name, planned.operators, planned.plan, planned.apart_seconds))
        return [relax.VarBinding(var, self._builder.normalize(value)) for var, value in pairs]

    def _checked(
        self, name: str, made: Any, flow: FlowProgram, bound: Sequence[tuple[Any, Any]]
    ) -> list[tuple[Any, Any]]:
        """The bindings of results, once it is known that the kernel came to its end."""
        variable = type(made)
        stopped = variable(f"{name}_stopped", made.ty.fields[len(flow.outputs)])
        results = [variable(f"{var.name}_made", var.ty) for var, _ in bound]
        check = ended(stopped, name, flow.program.bounds, results)
        whole = variable(f"{name}_ended", relax.TupleType([var.ty for var in results]))
        return [
            (stopped, relax.TupleGetItem(made, len(flow.outputs))),
            *((result, value) for result, (_, value) in zip(results, bound, strict=True)),
            (whole, check),
            *((var, relax.TupleGetItem(whole, n)) for n, (var, _) in enumerate(bound)),
        ]

    def _written(self, name: str, planned: PlannedFlow) -> _Written:
        """The kernel, added to the module."""
        flow, plan = planned.flow, planned.plan
        constants = Constants.of(a for node in flow.nodes for a in node.arguments)
        kinds = flow.memories.kinds
        inputs = [parameter(f"in{n}", kinds[m]) for n, m in enumerate(flow.given)]
        inputs += constants.parameters
        known = {memory: (number, 0) for number, memory in enumerate(flow.given)}
        known |= {memory: (len(inputs) + n, 0) for n, memory in enumerate(flow.outputs)}
        stops = flow.program.may_stop
        last = len(inputs) + len(flow.outputs) + stops
        check_count(last + 1)
        placed = flow.memories.placed(known, last, flow.program.bounds.depth)
        places = placed.places
        bound = [
            Bound(
                self._functions.ways(node.function),
                tuple(bind(a, places, constants, len(flow.given)) for a in arguments_of(node)),
            )
            for node in flow.nodes
        ]
        results = [parameter(f"out{n}", kinds[m]) for n, m in enumerate(flow.outputs)]
        if stops:
            results.append(Parameter("stopped", (1,), "int32"))
        results.append(Parameter("workspace", (placed.size,), "uint8"))
        conditions = ((places[c.value][0], places[c.value][1] + c.offset) for c in flow.conditions)
        control = ControlFlow(flow.program, tuple(conditions), placed.frames)
        counters = Counters(0, flow.program.count_counters)
        kernel = make_persistent(
            name,
            planned.operators,
            plan,
            bound,
            tuple(inputs),
            tuple(results),
            counters,
            control,
        )
        var = tvm.ir.GlobalVar(name)
        relax.expr._update_type(var, kernel.func.ty)
        self._result[var] = kernel.func
        table = kernel.table
        tables = (relax.const(array) for array in (table.words.reshape(-1), table.queues))
        types = tuple(relax.TensorType(p.shape, p.dtype) for p in results)
        return _Written(var, (*constants.tensors, *tables), types)


@dataclass(frozen=True, slots=True)
class _Written:
    """A kernel that was added.

    Attributes:
        var: its name.
        constants: what it is given behind the loop's arguments.
        kinds: types of what it writes.
    """

    var: Any
    constants: tuple[Any, ...]
    kinds: tuple[Any, ...]


def _digest(planned: PlannedFlow, number: int) -> str:
    """A name for the ``number``-th that was tried, the same in the next compilation."""
    functions = [node.function for node in planned.flow.nodes]
    text = repr((number, planned.operators, functions, planned.plan, planned.flow.program))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
