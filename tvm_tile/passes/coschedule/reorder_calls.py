"""A dataflow block in which groups of calls have become one each."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from tvm_tile.kernel.assemble import counters_at_zero
from tvm_tile.passes.coschedule.merge_calls import MergedCalls
from tvm_tile.passes.coschedule.task_graph import TaskGraph, TaskNode, View

_ZEROING = "zero_"


def zeroing(mod: tvm.IRModule, count: int) -> Any:
    """The module's function that sets ``count`` counters to zero, added if need be."""
    name = f"{_ZEROING}{count}_counters"
    if name in {str(var.name_hint) for var in mod.get_global_vars()}:
        return mod.get_global_var(name)
    zeros = counters_at_zero(count)
    function = tvm.ir.GlobalVar(name)
    relax.expr._update_type(function, zeros.ty)
    mod[function] = zeros
    return function


def is_zeroing(name: str) -> bool:
    """Whether the function of this name sets counters to zero."""
    return name.startswith(_ZEROING)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of the program that is written in one piece.

    Attributes:
        content: a group, a node, or a view.
        needs: variables that must be bound before.
        position: position in the program of its first binding.
    """

    content: MergedCalls | TaskNode | View
    needs: tuple[Any, ...]
    position: int


def reordered(
    block: relax.DataflowBlock,
    graph: TaskGraph,
    merged: Sequence[MergedCalls],
    counters: int,
    mod: tvm.IRModule,
) -> relax.DataflowBlock:
    """The block with its groups as calls; their functions go to ``mod``.

    What is ready is written in the program's order, so that only that moves which has to. A view
    that only members of groups read is left out: they know where it is. All groups count in one
    tensor of ``counters`` counters, which is set to zero once.
    """
    return _BlockWriter(block, graph, merged, counters, mod).written()


class _BlockWriter:
    def __init__(
        self,
        block: relax.DataflowBlock,
        graph: TaskGraph,
        merged: Sequence[MergedCalls],
        counters: int,
        mod: tvm.IRModule,
    ) -> None:
        self._count = counters
        self._counters: Any = None
        self._graph = graph
        self._merged = merged
        self._builder = relax.BlockBuilder(mod)
        self._mod = mod
        self._group_of = {node: group for group in merged for node in group.nodes}
        self._positions = {binding.var: n for n, binding in enumerate(block.bindings)}
        self._taken = {value for group in merged for value in group.given}
        # Of each value that a group takes, the variable that is it.
        self._holders: dict[int, Any] = dict(graph.given)
        self._member_of: dict[Any, tuple[int, MergedCalls]] = {}
        for number, group in self._group_of.items():
            self._member_of[graph.nodes[number].binding.var] = (number, group)
        for node in graph.nodes:
            for output, value in enumerate(node.outputs):
                if value in self._taken:
                    self._holders[value] = _holder(node, output, graph.kinds[value])
        self._results: dict[str, Any] = {}  # the tuple that a group makes
        self._bindings: list[Any] = []

    def written(self) -> relax.DataflowBlock:
        """The block, by Kahn's algorithm, the first unit of the program first."""
        units = self._units()
        makers = {var: n for n, unit in enumerate(units) for var in self._bound(unit)}
        waiting = [{makers[v] for v in unit.needs if v in makers} for unit in units]
        takers: list[list[int]] = [[] for _ in units]
        for number, needs in enumerate(waiting):
            for maker in needs:
                takers[maker].append(number)
        ready = [(units[n].position, n) for n, needs in enumerate(waiting) if not needs]
        heapq.heapify(ready)
        while ready:
            _, number = heapq.heappop(ready)
            self._write(units[number].content)
            for taker in takers[number]:
                waiting[taker].discard(number)
                if not waiting[taker]:
                    heapq.heappush(ready, (units[taker].position, taker))
        return relax.DataflowBlock(self._bindings)

    def _units(self) -> list[_Piece]:
        """Pieces of the new block: groups, and the calls and views outside of them."""
        units = []
        used: set[Any] = set()
        for number, node in enumerate(self._graph.nodes):
            if number not in self._group_of:
                needs = tuple(relax.analysis.free_vars(node.binding.value))
                used |= set(needs)
                units.append(_Piece(node, needs, self._positions[node.binding.var]))
        for view in reversed(self._graph.views):
            var = view.binding.var
            if var in used or not isinstance(var, relax.DataflowVar):
                needs = tuple(relax.analysis.free_vars(view.binding.value))
                used |= set(needs)
                units.append(_Piece(view, needs, self._positions[var]))
        for group in self._merged:
            needs = tuple(self._holders[value] for value in group.given)
            first = min(self._positions[self._graph.nodes[n].binding.var] for n in group.nodes)
            units.append(_Piece(group, needs, first))
        return units

    def _bound(self, unit: _Piece) -> list[Any]:
        """The variables that a unit binds."""
        content = unit.content
        if isinstance(content, View):
            return [content.binding.var]
        nodes = (
            [content]
            if isinstance(content, TaskNode)
            else [self._graph.nodes[n] for n in sorted(content.nodes)]
        )
        held = [self._holders[v] for node in nodes for v in node.outputs if v in self._taken]
        return [*(node.binding.var for node in nodes), *held]

    def _write(self, content: MergedCalls | TaskNode | View) -> None:
        """Write a group, a call or a view."""
        if isinstance(content, MergedCalls):
            self._write_group(content)
        elif isinstance(content, View):
            self._write_view(content)
        else:
            self._bindings.append(content.binding)
            self._hold(content, content.binding.var)

    def _hold(self, node: TaskNode, var: Any) -> None:
        """Bind those outputs of a tuple that a group takes."""
        if isinstance(node.binding.var.ty, relax.TupleType):
            for item, value in zip(node.items, node.outputs, strict=True):
                if value in self._taken:
                    self._bind(self._holders[value], relax.TupleGetItem(var, item))

    def _write_view(self, view: View) -> None:
        """Write a view; of a group's member whose outputs are a tuple, an item of the group's."""
        value = view.binding.value
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in self._member_of:
            number, group = self._member_of[value.tuple_value]
            result = self._graph.nodes[number].outputs[value.index]
            self._bind(view.binding.var, self._item(group, result))
        else:
            self._bindings.append(view.binding)

    def _write_group(self, group: MergedCalls) -> None:
        """Write the call of a group's kernel, and its results as the former values."""
        function = tvm.ir.GlobalVar(group.name)
        relax.expr._update_type(function, group.func.ty)
        self._mod[function] = group.func
        arguments = [self._holders[value] for value in group.given]
        given = [*arguments, *group.constants, self._zeroed()]
        call = relax.call_tir(function, given, list(group.kinds))
        self._results[group.name] = relax.DataflowVar(group.name, relax.TupleType(group.kinds))
        self._bind(self._results[group.name], call)
        for number in sorted(group.nodes):
            node = self._graph.nodes[number]
            kept = [value in group.outputs for value in node.outputs]
            if isinstance(node.binding.var.ty, relax.TupleType):
                for value in node.outputs:
                    if value in self._taken:
                        self._bind(self._holders[value], self._item(group, value))
                if all(kept):
                    fields = []
                    for output, value in enumerate(node.outputs):
                        fields.append(_holder(node, output, self._graph.kinds[value]))
                        self._bind(fields[-1], self._item(group, value))
                    self._bind(node.binding.var, relax.Tuple(fields))
            elif all(kept):
                self._bind(node.binding.var, self._item(group, node.outputs[0]))

    def _zeroed(self) -> Any:
        """Set the counters of all groups to zero, ahead of the first one."""
        if self._counters is None:
            function = zeroing(self._mod, self._count)
            kind = relax.TensorType((self._count,), "int32")
            self._counters = relax.DataflowVar("counters", kind)
            self._bind(self._counters, relax.call_tir(function, [], kind))
        return self._counters

    def _item(self, group: MergedCalls, value: int) -> Any:
        """A result of a group's call."""
        return relax.TupleGetItem(self._results[group.name], group.outputs.index(value))

    def _bind(self, var: Any, value: Any) -> None:
        """Bind a variable to a value in the new block."""
        self._bindings.append(relax.VarBinding(var, self._builder.normalize(value)))


def _holder(node: TaskNode, output: int, kind: Any) -> Any:
    """The variable that is one output of a node: its own, or one for an item of a tuple."""
    var = node.binding.var
    is_tuple = isinstance(var.ty, relax.TupleType)
    return relax.DataflowVar(f"{var.name}_{output}", kind) if is_tuple else var
