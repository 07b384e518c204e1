"""Put loops into persistent kernels (Cocktailer, OSDI 2023, section 4)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import GenericConst

from tvm_tile.device.device import Device
from tvm_tile.graph.functions import with_relax_functions
from tvm_tile.kernel.dispatch import Parameter
from tvm_tile.kernel.persistent import Bound, ControlFlow, Counters, make_persistent
from tvm_tile.passes.copies import copying
from tvm_tile.passes.coschedule_tasks import (
    UNFIT,
    Apart,
    Coscheduled,
    FactsOf,
    TaskFunctions,
)
from tvm_tile.passes.loop_program import Body, LoopProgram, UnfitLoopError, loop_program
from tvm_tile.passes.merge_calls import ALIGNMENT, Constants, bind, check_count, parameter
from tvm_tile.passes.parallel_products import is_static
from tvm_tile.passes.read_loops import LoopForm, read_loop
from tvm_tile.passes.reorder_calls import zeroing
from tvm_tile.passes.rewriter import size_of
from tvm_tile.passes.task_graph import Location, TaskNode, read_block
from tvm_tile.plan.coschedule import coschedule, kernel_seconds
from tvm_tile.plan.execution_plan import ExecutionPlan, ROperator
from tvm_tile.plan.instructions import in_order
from tvm_tile.plan.path import check_program
from tvm_tile.plan.rprogram import Run

_COPY = "carry"


@tvm.transform.module_pass(opt_level=0, name="LoopsInKernels")
@dataclass(frozen=True, slots=True)
class LoopsInKernels:
    """Loops all of whose iterations' kernels can be rTasks become a persistent kernel each.

    before: ``h, rows = loop(500, h0, rows0, xs)``
    after:  ``n = call_tir(zero_counters); r = call_tir(loop, (h0, xs, records, queues, n))``
            ``h, rows = r[0], r[1]``

    Args:
        device: that the kernels are for.
        facts: about the functions of the module, copies for loops among them
            (:func:`copies_for_loops`).
        always: whether a loop that can be a kernel is one; else where the model predicts less time.
        record: is given each persistent kernel.
        refused: name of a persistent kernel that must not be -> why.
        left: is given each loop that stays on the host.
    """

    device: Device
    facts: FactsOf
    always: bool
    record: Callable[[Coscheduled], None]
    refused: Mapping[str, str]
    left: Callable[[Apart], None]

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        if not self.device.supports_grid_barrier:
            return mod
        placed = _Placing(self, mod).module()
        return relax.transform.DeadCodeElimination()(placed)


def copies_for_loops(mod: tvm.IRModule) -> tvm.IRModule:
    """Functions that copy what the loops of a module hand on, not scheduled."""
    copies = tvm.IRModule()
    for var in mod.get_global_vars():
        form = read_loop(mod, var)
        for number in form.carried if form else ():
            kind = mod[var].params[number].ty
            if isinstance(kind, relax.TensorType) and is_static(kind):
                copying(copies, kind, 1, _COPY)
    return copies


@dataclass(frozen=True, slots=True)
class _Planned:
    """A loop with a plan.

    Attributes:
        loop: itself, its rOperators in the plan's order.
        operators: as they were planned.
        plan: for them.
        apart_seconds: predicted, of its kernels as launches of their own, as often as they run; of
            one iteration where it is not known how many there are.
    """

    loop: LoopProgram
    operators: tuple[ROperator, ...]
    plan: ExecutionPlan
    apart_seconds: float


class _Placing:
    """The loops of a module, while they are placed."""

    def __init__(self, options: LoopsInKernels, mod: tvm.IRModule) -> None:
        self._options, self._mod = options, mod
        self._functions = TaskFunctions(options.facts, options.device)
        self._result = mod.clone()
        self._builder = relax.BlockBuilder(self._result)

    def module(self) -> tvm.IRModule:
        """The module with those loops as kernels that can be."""
        changed = with_relax_functions(self._result, self._placed)
        for var, func in self._result.functions_items():
            if isinstance(func, tirx.PrimFunc):
                changed[var] = func
        return changed

    def _placed(self, func: relax.Function) -> relax.Function:
        if not isinstance(func.body, relax.SeqExpr):
            return func
        blocks = [self._block(block) for block in func.body.blocks]
        body = relax.SeqExpr(blocks, func.body.body)
        return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)

    def _block(self, block: Any) -> Any:
        values = {binding.var: binding.value for binding in block.bindings}
        bindings: list[Any] = []
        for binding in block.bindings:
            form = self._form(binding.value)
            made = form and self._kernel(form, binding, values)
            bindings += made or [binding]
        return type(block)(bindings)

    def _form(self, value: Any) -> LoopForm | None:
        if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.GlobalVar):
            return None
        return read_loop(self._mod, value.op)

    def _kernel(self, form: LoopForm, binding: Any, values: Mapping[Any, Any]) -> list[Any]:
        """The bindings that stand for a call of a loop; none where it stays as it is."""
        call = binding.value
        name = str(call.op.name_hint)
        try:
            planned = self._planned(form, call, values)
            name = f"loop_{_digest(name, planned)}"
            if name in self._options.refused:
                raise UnfitLoopError(self._options.refused[name])
            return self._called(name, form, binding, planned)
        except UnfitLoopError as error:
            self._options.left(Apart(name, f"the loop stays on the host: {error}"))
        except UNFIT as error:
            reason = f"the loop's persistent kernel cannot be written: {error}"
            self._options.left(Apart(name, reason))
        return []

    def _planned(self, form: LoopForm, call: Any, values: Mapping[Any, Any]) -> _Planned:
        """How a loop runs inside a kernel.

        Raises:
            UnfitLoopError: it cannot, or that takes longer.
        """
        params = self._mod[call.op].params
        trips = _trips(call.args[0]) if form.is_counted else None
        body = self._body(form)
        fresh = frozenset(n for n, a in enumerate(call.args) if self._is_fresh(a, values))
        kinds = [param.ty for param in params]
        if not all(is_static(kinds[number]) for number in form.carried):
            raise UnfitLoopError("it hands on what is no tensor of known shape")
        loop = loop_program(form, body, kinds, trips, self._copy_of, fresh)
        operators = self._operators(loop)
        plan = coschedule(operators, self._options.device)
        if plan is None:
            raise UnfitLoopError("no shape of the persistent kernel suits all of its kernels")
        begun = next(item for item in loop.program.items if isinstance(item, Run)).operators
        own = operators[len(begun) : len(begun) + len(body.graph.nodes)]
        apart = sum(operator.alone_seconds for operator in own)
        begin = kernel_seconds(self._options.device)
        turns = 1.0 if trips is None else max(1.0, trips / 2)
        seconds = begin + (plan.seconds - begin) * turns
        apart *= 2.0 if trips is None else trips
        if not self._options.always and seconds >= apart:
            raise UnfitLoopError("that is faster")
        plan = replace(plan, uses_flags=True, ahead=(), seconds=seconds)
        loop = replace(loop, program=in_order(loop.program, plan))
        check_program(loop.program)
        return _Planned(loop, operators, plan, apart)

    def _body(self, form: LoopForm) -> Body:
        """The kernels of an iteration.

        Raises:
            UnfitLoopError: it has something else.
        """
        func = self._mod[form.body]
        bindings = [binding for block in func.body.blocks for binding in block.bindings]
        values = {binding.var: binding.value for binding in bindings}
        result = values.get(func.body.body, func.body.body)
        rest = [binding for binding in bindings if not binding.value.same_as(result)]
        graph = read_block(relax.DataflowBlock(rest), self._functions.slices)
        for node in graph.nodes:
            if not node.function:
                value = node.binding.value
                raise UnfitLoopError(f"it holds {getattr(value, 'op', type(value).__name__)}")
        given = {expr: value for value, expr in graph.given.items()}
        parameters = {}
        results: list[Location] = []
        extra = len(graph.kinds)
        for number, param in enumerate(func.params):
            if param in given:
                parameters[given[param]] = number
        for field in result.fields if isinstance(result, relax.Tuple) else ():
            if isinstance(field, GenericConst):
                raise UnfitLoopError("an iteration makes a constant")
            if field in graph.places:
                (place,) = graph.places[field]
            else:  # a parameter that nothing reads
                place = Location(extra, 0)
                parameters[extra] = _number(func.params, field)
                extra += 1
            results.append(place)
        if not results:
            raise UnfitLoopError("its iteration makes no tuple")
        return Body(graph, parameters, tuple(results))

    def _is_fresh(self, argument: Any, values: Mapping[Any, Any]) -> bool:
        """Whether a tensor was allocated for the loop, and never written."""
        value = values.get(argument) if isinstance(argument, relax.Var) else None
        if not isinstance(value, relax.TupleGetItem):
            return False
        maker = values.get(value.tuple_value)
        if not isinstance(maker, relax.Call) or not isinstance(maker.op, tvm.ir.GlobalVar):
            return False
        func = self._mod[maker.op]
        made = [binding.value for block in func.body.blocks for binding in block.bindings]
        calls = [value for value in made if isinstance(value, relax.Call)]
        return all(call.op == tvm.ir.Op.get("relax.builtin.alloc_tensor") for call in calls)

    def _copy_of(self, kind: Any) -> str:
        return str(copying(tvm.IRModule(), kind, 1, _COPY).name_hint)

    def _operators(self, loop: LoopProgram) -> tuple[ROperator, ...]:
        """What is planned: in a straight line, each memory a new value when it is written.

        Raises:
            UnfitLoopError: a kernel cannot be part of a persistent one.
        """
        current: dict[int, int] = {}  # by memory
        readers: dict[int, list[int]] = {}  # of its value: what they make
        count = 0
        operators = []
        for node in loop.nodes:
            reads = [current.setdefault(memory, -1 - memory) for memory in node.reads]
            written = (*node.outputs, *node.changes)
            # Who writes a memory comes behind those who read what it held.
            behind = [value for memory in written for value in readers.get(memory, ())]
            made = tuple(range(count, count + len(written)))
            count += len(written)
            for memory in node.reads:
                readers.setdefault(memory, []).extend(made[:1])
            for memory, value in zip(written, made, strict=True):
                current[memory], readers[memory] = value, []
            own = replace(node, reads=tuple(dict.fromkeys((*reads, *behind))), outputs=made)
            operator = self._functions.operator(own)
            if not operator.choices:
                raise UnfitLoopError(f"{node.function} cannot be part of a persistent kernel")
            operators.append(operator)
        return tuple(operators)

    def _called(self, name: str, form: LoopForm, binding: Any, planned: _Planned) -> list[Any]:
        """Add the kernel to the module, and call it."""
        loop, call = planned.loop, binding.value
        kind_of = relax.DataflowVar if isinstance(binding.var, relax.DataflowVar) else relax.Var
        kernel = self._written(name, planned)
        total = loop.program.count_counters
        types = [relax.TensorType((total,), "int32"), relax.TupleType(kernel.kinds)]
        counters, made = (
            relax.DataflowVar(n, ty) if kind_of is relax.DataflowVar else relax.Var(n, ty)
            for n, ty in zip((f"{name}_counters", name), types, strict=True)
        )
        zero = relax.call_tir(zeroing(self._result, total), [], types[0])
        given = [call.args[number] for number in loop.given]
        arguments = [*given, *kernel.constants, counters]
        run = relax.call_tir(kernel.var, arguments, list(kernel.kinds))
        outputs = list(loop.results)
        fields = [
            relax.TupleGetItem(made, outputs.index(number))
            if number in loop.results
            else call.args[number]
            for number in form.results
        ]
        bound: list[Any] = []
        items = []
        for number, field in enumerate(fields):
            item = field
            if isinstance(field, relax.TupleGetItem):
                item = kind_of(f"{name}_{number}", kernel.kinds[field.index])
                bound.append((item, field))
            items.append(item)
        pairs = [(counters, zero), (made, run), *bound, (binding.var, relax.Tuple(items))]
        options = self._options
        options.record(Coscheduled(name, planned.operators, planned.plan, planned.apart_seconds))
        return [relax.VarBinding(var, self._builder.normalize(value)) for var, value in pairs]

    def _written(self, name: str, planned: _Planned) -> _Written:
        """The kernel, added to the module."""
        loop, plan = planned.loop, planned.plan
        constants = Constants.of(a for node in loop.nodes for a in node.arguments)
        inputs = [parameter(f"in{n}", loop.kinds[m]) for n, m in enumerate(loop.given.values())]
        inputs += constants.parameters
        places = {memory: (number, 0) for number, memory in enumerate(loop.given.values())}
        places |= {m: (len(inputs) + n, 0) for n, m in enumerate(loop.results.values())}
        last = len(inputs) + len(loop.results)
        check_count(last + 1)
        end = 0
        for memory, kind in loop.kinds.items():
            if memory not in places:
                places[memory] = last, end
                end += -(-size_of(kind) // ALIGNMENT) * ALIGNMENT
        bound = [
            Bound(
                self._functions.ways(node.function),
                tuple(bind(a, places, constants, len(loop.given)) for a in _arguments(node)),
            )
            for node in loop.nodes
        ]
        results = [parameter(f"out{n}", loop.kinds[m]) for n, m in enumerate(loop.results.values())]
        results.append(Parameter("workspace", (max(end, ALIGNMENT),), "uint8"))
        control = ControlFlow(loop.program, tuple(places[m] for m in loop.program.decisions))
        counters = Counters(0, loop.program.count_counters)
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
        kinds = tuple(relax.TensorType(p.shape, p.dtype) for p in results)
        return _Written(var, (*constants.tensors, *tables), kinds)


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


def _arguments(node: TaskNode) -> tuple[Location | GenericConst, ...]:
    return (*node.arguments, *(Location(memory, 0) for memory in node.outputs))


def _trips(value: Any) -> int:
    """How many iterations a loop has.

    Raises:
        UnfitLoopError: that is not known.
    """
    value = getattr(value, "value", value)
    value = getattr(value, "value", value)
    if not isinstance(value, int):
        raise UnfitLoopError("the number of its iterations is not known when it is compiled")
    return value


def _number(params: Sequence[Any], value: Any) -> int:
    return next(number for number, param in enumerate(params) if param.same_as(value))


def _digest(name: str, planned: _Planned) -> str:
    """A name for what a loop computes and how, the same in the next compilation."""
    functions = [node.function for node in planned.loop.nodes]
    text = repr((name, planned.operators, functions, planned.plan, planned.loop.program))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
