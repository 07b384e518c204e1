"""Make one function of each recurrent cell, and of other products that meet element by element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from tvm_tile.device.device import Device
from tvm_tile.graph.constant_tensors import transposed
from tvm_tile.passes.ir.rewriter import with_dataflow_blocks
from tvm_tile.passes.operators.read_transposed import product_of
from tvm_tile.passes.scheduling.first_choices import FirstChoices, content_of
from tvm_tile.passes.weld.fuse_tiles import Predict
from tvm_tile.passes.weld.gate_operators import Statement, read_statements
from tvm_tile.passes.weld.one_function import joined_name, one_function
from tvm_tile.tile.rules import GATES
from tvm_tile.tile.weld.gate_groups import GateNode, Role, group_gates, order_units


@tvm.transform.module_pass(opt_level=0, name="GroupGates")
@dataclass(frozen=True, slots=True)
class GroupGates:
    """Join products of few rows with the element-wise operators and splits behind them.

    before: ``s = split(matmul(x, w) + matmul(h, r) + b, 4); c2 = f(s, c); h2 = g(s, c2)``
    after:  ``h2, c2 = call_tir(cell, (x, w', h, r', b, c))`` with transposed constants ``w', r'``

    This comes before operators become loops: of the thousand cells of an unrolled model, which are
    calls of one function or two, only these are then legalized. A group stays as it is where the
    rule for it (:mod:`tvm_tile.schedule.gates`) does not take its function, or where its products
    alone are predicted to take less time.

    Args:
        device: the device that the kernels are made for.
        predict: scheduler of functions, shared with whoever schedules them afterwards.
        refused: why functions must not be made of others, by
            :func:`~tvm_tile.passes.scheduling.first_choices.content_of` them.
    """

    device: Device
    predict: Predict | None = None
    refused: Mapping[Any, str] | None = None

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        predict, refused = self.predict or FirstChoices(self.device), self.refused or {}
        for var, func in mod.functions_items():
            if isinstance(func, relax.Function):
                mod = _OneGate(mod, self.device, predict, refused).rewritten(mod, var)
        return mod


class _OneGate:
    """Groups the gates of one function of a module, and keeps the functions made of the groups."""

    def __init__(
        self, mod: tvm.IRModule, device: Device, predict: Predict, refused: Mapping[Any, str]
    ) -> None:
        self._builder = relax.BlockBuilder(mod)
        self._device, self._predict, self._refused = device, predict, refused
        self._known: dict[Any, Any] = {}  # a group's wiring -> its function, if it has one
        self._turned: dict[Any, Any] = {}  # weights -> the same, transposed

    def rewritten(self, mod: tvm.IRModule, var: Any) -> tvm.IRModule:
        """``mod`` with the groups of the function at ``var`` joined."""
        changed = with_dataflow_blocks(self._builder, var, self._joined)
        return mod if changed is None else changed

    def _takes(self, func: tirx.PrimFunc, statements: Sequence[Statement]) -> bool:
        """Whether one kernel is faster than the products alone, and than what splits their sums."""
        together = self._predict(func, (GATES,))
        if together is None or content_of(func) in self._refused:
            return False
        apart = 0.0
        for statement in statements:
            if statement.role is Role.PRODUCT:
                alone = self._predict(_alone(statement), None)
                apart += alone.seconds if alone is not None else together.seconds
        parts = any(statement.role is Role.PART for statement in statements)
        return together.seconds < apart + parts * self._device.launch_latency

    def _joined(self, block: relax.DataflowBlock) -> relax.DataflowBlock:
        """A block with each group of products as one call."""
        statements = read_statements(block)
        nodes = [GateNode(statement.role, statement.operands) for statement in statements]
        calls: dict[tuple[int, ...], list[relax.Binding]] = {}
        for group in group_gates(nodes):
            bindings = self._call([statements[n] for n in group], group, statements)
            if bindings:
                calls[group] = bindings
        if not calls:
            return block
        bindings = []
        for unit in order_units(nodes, list(calls)):
            bindings += calls[unit] if unit in calls else statements[unit[0]].bindings
        return relax.DataflowBlock(bindings)

    def _call(
        self,
        members: Sequence[Statement],
        group: tuple[int, ...],
        statements: Sequence[Statement],
    ) -> list[relax.Binding]:
        """A call of a group's function, and names for what it makes; none where it has none."""
        inside = set(group)
        outputs = [
            binding.var
            for statement in members
            for binding in statement.bindings
            if not isinstance(binding.var, relax.DataflowVar)
            or any(reader not in inside for reader in statement.readers[binding.var])
        ]
        if not all(isinstance(output.ty, relax.TensorType) for output in outputs):
            return []
        wired = _Wired(members, outputs, self._turned)
        if wired.key not in self._known:
            func = wired.function()
            taken = func is not None and self._takes(func, members)
            name = joined_name(["gates"])
            self._known[wired.key] = self._builder.add_func(func, name) if taken else None
        var = self._known[wired.key]
        if var is None:
            return []
        kinds = [output.ty for output in outputs]
        made = relax.call_tir(var, wired.outer, kinds if len(kinds) > 1 else kinds[0])
        made = self._builder.normalize(made)
        if len(outputs) == 1:
            return [relax.VarBinding(outputs[0], made)]
        whole = relax.DataflowVar("cell", made.ty)
        fields = [self._builder.normalize(relax.TupleGetItem(whole, n)) for n in range(len(kinds))]
        named = [relax.VarBinding(o, field) for o, field in zip(outputs, fields, strict=True)]
        return [relax.VarBinding(whole, made), *named]


class _Wired:
    """A group's statements as a function of what they take.

    Attributes:
        outer: values and constants that the function is given, weights transposed.
        key: equal for groups that compute the same.
    """

    def __init__(
        self, members: Sequence[Statement], outputs: Sequence[Any], turned: dict[Any, Any]
    ) -> None:
        self._members, self._outputs = members, outputs
        self.outer: list[Any] = []
        self._inner: list[Any] = []
        self._turned = turned
        self._places: dict[Any, tuple[str, int]] = {}  # value -> which one of what
        described = []
        made = 0
        for statement in members:
            for number, binding in enumerate(statement.bindings):
                operands = [self._operand(o, statement) for o in statement.reads(number)]
                described.append((statement.described(number), tuple(operands)))
                self._places[binding.var] = ("made", made)
                made += 1
        kinds = tuple((tuple(map(int, o.ty.shape)), str(o.ty.dtype)) for o in self.outer)
        self.key = tuple(described), kinds, tuple(self._places[output] for output in outputs)

    def _operand(self, value: Any, statement: Statement) -> tuple[str, Any]:
        """Value that an operand is, of those made or of those given; or the scalar itself."""
        if isinstance(value, tvm.ir.Constant) and value.ty.ndim == 0:
            return str(value.ty.dtype), value.value.numpy().item()
        key = _key(value, statement)
        if key not in self._places:
            self._places[key] = ("given", len(self.outer))
            is_by_columns = key is not value and statement.transposed is None
            self.outer.append(self._transposed(value) if is_by_columns else value)
        return self._places[key]

    def _transposed(self, weights: Any) -> Any:
        """The weights transposed, made once."""
        if weights not in self._turned:
            self._turned[weights] = transposed(weights)
        return self._turned[weights]

    def function(self) -> tirx.PrimFunc | None:
        """The group as one TensorIR function, unscheduled; ``None`` if an operator has no loops."""
        builder = relax.BlockBuilder()
        params = [relax.Var(f"p{number}", value.ty) for number, value in enumerate(self.outer)]
        made: list[Any] = []

        def inner(value: Any, statement: Statement) -> Any:
            if isinstance(value, tvm.ir.Constant) and value.ty.ndim == 0:
                return value
            kind, number = self._places.get(_key(value, statement), ("", 0))
            return {"made": made, "given": params}[kind][number] if kind else value

        with builder.function("joined", params, private=True):
            with builder.dataflow():
                for statement in self._members:
                    for number, binding in enumerate(statement.bindings):
                        operands = [inner(o, statement) for o in statement.reads(number)]
                        if statement.role is Role.PRODUCT:
                            call = builder.call_te(
                                _by_rows(str(binding.var.ty.dtype)),
                                *operands,
                                primfunc_name_hint="matmul",
                            )
                        else:
                            call = statement.again(number, operands)
                        made.append(builder.emit(call))
                outputs = [made[self._places[output][1]] for output in self._outputs]
                whole = relax.Tuple(outputs) if len(outputs) > 1 else outputs[0]
                output = builder.emit_output(whole)
            builder.emit_func_output(output)
        legalized = relax.transform.LegalizeOps()(builder.get())
        return one_function(legalized, "joined")


def _key(value: Any, statement: Statement) -> Any:
    """Key of a statement's operand; for weights also whether they are by columns."""
    is_weight = statement.role is Role.PRODUCT and isinstance(value, tvm.ir.Constant)
    return (value, statement.transposed is None) if is_weight else value


def _by_rows(dtype: str) -> Any:
    """A function that writes the product with weights stored by rows."""
    return lambda x, w: product_of(x, w, [False, True], dtype)


def _alone(statement: Statement) -> tirx.PrimFunc:
    """A product as a function of its own, as it is without a group."""
    builder = relax.BlockBuilder()
    call = statement.bindings[0].value
    operands = statement.reads(0)
    params = [relax.Var(f"p{number}", operand.ty) for number, operand in enumerate(operands)]
    with builder.function("joined", params, private=True):
        with builder.dataflow():
            value = relax.Call(call.op, params, call.attrs)
            if statement.transposed is not None:
                value = builder.call_te(_by_rows(str(call.ty.dtype)), *params)
            output = builder.emit_output(value)
        builder.emit_func_output(output)
    return one_function(relax.transform.LegalizeOps()(builder.get()), "joined")
