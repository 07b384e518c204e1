"""Control flow as the program of a persistent kernel: where values lie, and who copies what.

Functions that are called are written out where they are called. Both sides of a branch write what
they make into the same memory. Each value that a loop hands on has two memories: an iteration reads
one and writes the other, the next one goes the other way, so that nothing is copied between them::

    counted:  one = first value                 goes on:  one = first value
              repeat trips / 2:                           while goes on (one):
                  two = iteration(one)                        two = iteration(one)
                  one = iteration(two)                        if goes on (two): one = iteration(two)
              two = iteration(one), if trips                  else:             one = two
              are odd

What an iteration hands on as it got it, changed in place or not, has one memory. The result lies in
``one``, or in ``two`` where the number of iterations is known and odd.

A function that calls itself is written once. What a call of it has of its own is a frame, of which
there are as many as there may be calls within each other::

    encode(node):  frame.left = left[node]            call:  next frame.node = node
                   if frame.left < 0: ...                    encode
                                                             value = next frame.result
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from tvm_tile.passes.coschedule.task_graph import Location, Slices, TaskNode
from tvm_tile.passes.flow.memory import FlowMemories, NewMemories
from tvm_tile.passes.flow.read import (
    Action,
    Allocated,
    Called,
    Chosen,
    Flow,
    Source,
    UnfitFlowError,
    read_flow,
    read_run,
)
from tvm_tile.passes.flow.read_loops import LoopForm, read_loop
from tvm_tile.passes.flow.recursion import MovesError, Recursion, read_before_calls
from tvm_tile.passes.flow.values import (
    access_of,
    are_alike,
    as_tensor,
    given_place,
    joined,
    renumbered,
    resolved,
)
from tvm_tile.plan.calls import cut_at_calls
from tvm_tile.plan.rprogram import Bounds, Branch, Invoke, Item, Repeat, RProgram, Series, While

CopyOf = Callable[[Any], str]
"""By the type of a tensor: the name of a function that copies one."""


@dataclass(frozen=True, slots=True)
class FlowProgram:
    """Bindings that are to be a persistent kernel.

    Attributes:
        nodes: its rOperators; what they read and write are numbers of memories.
        program: program of the bindings.
        memories: memories of the program.
        given: value that a memory holds when the kernel begins, by memory.
        results: memory that holds a result's elements, by number of the result; for results that
            are computed.
        same: value from outside that has a result's elements, by number; for the others.
        conditions: place of each decision's condition.
    """

    nodes: tuple[TaskNode, ...]
    program: RProgram
    memories: FlowMemories
    given: Mapping[int, Any]
    results: Mapping[int, int]
    same: Mapping[int, Any]
    conditions: tuple[Location, ...]

    @property
    def outputs(self) -> tuple[int, ...]:
        """The memories of its results, each once."""
        return tuple(dict.fromkeys(self.results.values()))


def flow_program(
    mod: tvm.IRModule,
    bindings: Sequence[Any],
    wanted: Sequence[Any],
    is_fresh: Callable[[Any], bool],
    slices: Slices,
    copy_of: CopyOf,
    bounds: Bounds,
) -> FlowProgram:
    """The program of some loops, branches and kernels.

    Args:
        mod: module that has the functions, scheduled.
        bindings: bindings in a row, of calls of loops, of Ifs and of kernels between them.
        wanted: variables among theirs; their tensors are the results.
        is_fresh: function that tells whether nobody reads what a tensor from outside holds.
        slices: about the functions that kernels are.
        copy_of: function that names the functions that copy.
        bounds: bounds at which the kernel gives up.

    Raises:
        UnfitFlowError: they hold what no persistent kernel can run.
    """
    flow, outside = read_run(bindings, wanted, slices)
    moving: dict[str, frozenset[int]] = {}
    while True:
        try:
            writer = _FlowWriter(mod, slices, copy_of, bounds, moving)
            return writer.of_flow(flow, outside, is_fresh)
        except MovesError as error:
            moving[error.function] = moving.get(error.function, frozenset()) | error.parameters


class _FlowWriter:
    def __init__(
        self,
        mod: tvm.IRModule,
        slices: Slices,
        copy_of: CopyOf,
        bounds: Bounds,
        moving: Mapping[str, frozenset[int]],
    ) -> None:
        self._mod, self._slices, self._copy_of, self._bounds = mod, slices, copy_of, bounds
        self._flows: dict[Any, Flow] = {}
        self._memories = NewMemories()
        self._recursion = Recursion(mod, moving)
        self._nodes: list[TaskNode] = []
        self._conditions: list[Location] = []
        self._regions = 0

    def of_flow(
        self, flow: Flow, outside: Mapping[int, Any], is_fresh: Callable[[Any], bool]
    ) -> FlowProgram:
        """The program of a flow, what it is given each in memory of its own."""
        given = {value: self._memories.new(expr.ty) for value, expr in outside.items()}
        fresh = (given[value] for value, expr in outside.items() if is_fresh(expr))
        self._memories.unwritten.update(fresh)
        env: dict[int, Source] = {value: Location(m, 0) for value, m in given.items()}
        items, found = self._sequence(flow, env, {})
        owners = {memory: outside[value] for value, memory in given.items()}
        results: dict[int, int] = {}
        same: dict[int, Any] = {}
        for number, (source, kind) in enumerate(zip(found, flow.result_kinds, strict=True)):
            if not isinstance(source, Location) or source.offset:
                results[number] = self._memories.new(kind)
                items += self._copied([(source, results[number])])
            elif source.value in owners:
                same[number] = owners[source.value]
            else:
                results[number] = source.value
        memories = self._memories.made()
        accesses = tuple(access_of(node, memories.home) for node in self._nodes)
        if any(memory in owners for access in accesses for memory in access.writes):
            raise UnfitFlowError("it changes what it is given")
        decisions = tuple(memories.home(place.value) for place in self._conditions)
        touched = {*decisions, *(m for access in accesses for m in access.reads)}
        used = {memory: expr for memory, expr in owners.items() if memory in touched}
        functions = self._recursion.functions()
        program = RProgram(tuple(joined(items)), accesses, decisions, self._bounds, functions)
        nodes, conditions = tuple(self._nodes), tuple(self._conditions)
        cut = cut_at_calls(program)
        return FlowProgram(nodes, cut, memories, used, results, same, conditions)

    def _region(self) -> int:
        self._regions += 1
        return self._regions

    def _decision(self, condition: Source) -> int:
        if not isinstance(condition, Location):
            raise UnfitFlowError("a constant decides in it")
        self._conditions.append(condition)
        return len(self._conditions) - 1

    def _copied(self, pairs: Sequence[tuple[Source, int]]) -> list[Item]:
        """Copies of values to memories."""
        first = len(self._nodes)
        for source, target in pairs:
            reads = (source.value,) if isinstance(source, Location) else ()
            function = self._copy_of(self._memories.kind(target))
            self._nodes.append(TaskNode(None, function, (source,), reads, (target,)))
        return [Series(tuple(range(first, len(self._nodes))))] if pairs else []

    def _called(
        self,
        function: Any,
        arguments: Sequence[Source | int],
        targets: Mapping[int, int],
        brief: Set[int],
    ) -> tuple[list[Item], list[Source]]:
        """A call, and where its results are: in ``targets``, by their number, if there."""
        form = read_loop(self._mod, function)
        if form is not None:
            return self._loop(form, self._mod[function], arguments, targets)
        if self._recursion.calls_itself(function):
            return self._recursive(function, arguments, targets, brief)
        return self._flow(self._flow_of(function), arguments, targets)

    def _recursive(
        self,
        function: Any,
        arguments: Sequence[Source | int],
        targets: Mapping[int, int],
        brief: Set[int],
    ) -> tuple[list[Item], list[Source]]:
        """A call of a function that calls itself: what changes is copied into its frame, and what
        it makes out of there, unless all who read that come before the next call."""
        called = self._recursion.known(function, arguments)
        if called is None:
            called = self._recursion.begin(function, arguments, self._memories)
            first = len(self._nodes)
            items, _ = self._flow(self._flow_of(function), *called.inside())
            changes = {memory for node in self._nodes[first:] for memory in node.changes}
            self._recursion.end(called, items, changes, self._memories)
        self._recursion.require_fixed(called, arguments)
        deeper, moved = self._memories.deeper, called.parameters.items()
        pairs = [(as_tensor(arguments[n]), deeper(memory)) for n, memory in moved]
        items = [*self._copied(pairs), Invoke(called.number)]
        results: list[Source] = [Location(deeper(memory), 0) for memory in called.results]
        items += self._delivered(results, called.copied(targets, brief, self._memories))
        return items, results

    def _flow_of(self, function: Any) -> Flow:
        if function not in self._flows:
            self._flows[function] = read_flow(self._mod[function], self._slices)
        return self._flows[function]

    def _flow(
        self, flow: Flow, arguments: Sequence[Source | int], targets: Mapping[int, int]
    ) -> tuple[list[Item], list[Source]]:
        known = dict(zip(flow.parameters, arguments, strict=True))
        env = {value: a for value, a in known.items() if not isinstance(a, int)}
        return self._sequence(flow, env, targets)

    def _sequence(
        self, flow: Flow, env: dict[int, Source], targets: Mapping[int, int]
    ) -> tuple[list[Item], list[Source]]:
        """The items of a flow, given what is around it."""
        claimed = self._claimed(flow, targets)
        items: list[Item] = []
        for action in flow.actions:
            items += self._action(action, flow, env, claimed)
        results = [resolved(source, env) for source in flow.results]
        items += self._delivered(results, targets)
        return joined(items), results

    def _delivered(self, results: list[Source], targets: Mapping[int, int]) -> list[Item]:
        """Copies of those results that are not where they are wanted; the list then says so."""
        pairs = [(results[number], target) for number, target in targets.items()]
        copies = self._copied([(r, target) for r, target in pairs if r != Location(target, 0)])
        for number, target in targets.items():
            results[number] = Location(target, 0)
        return copies

    def _claimed(self, flow: Flow, targets: Mapping[int, int]) -> dict[int, int]:
        """Find values made here that are results: each with the memory in which it is wanted."""
        made = {value for action in flow.actions for value in action.outputs}
        claimed: dict[int, int] = {}
        for number, target in targets.items():
            source = flow.results[number]
            if not isinstance(source, Location) or source.offset or source.value in claimed:
                continue
            kind, wanted = flow.kinds[source.value], self._memories.kind(target)
            if source.value in made and are_alike(kind, wanted):
                claimed[source.value] = target
        return claimed

    def _action(
        self, action: Action, flow: Flow, env: dict[int, Source], claimed: Mapping[int, int]
    ) -> list[Item]:
        if isinstance(action, Called):
            arguments = [a if isinstance(a, int) else resolved(a, env) for a in action.arguments]
            wanted = {n: claimed[v] for n, v in enumerate(action.outputs) if v in claimed}
            brief = read_before_calls(flow, action)
            items, results = self._called(action.function, arguments, wanted, brief)
            env.update(zip(action.outputs, results, strict=True))
            return items
        for value in action.outputs:
            target = claimed.get(value)
            memory = self._memories.new(flow.kinds[value]) if target is None else target
            env[value] = Location(memory, 0)
            if isinstance(action, Allocated):
                self._memories.unwritten.add(memory)
        if isinstance(action, Chosen):
            return [self._branch(action, env)]
        if isinstance(action, TaskNode):
            node = renumbered(action, env)
            self._nodes.append(node)
            self._memories.unwritten -= {*node.outputs, *node.changes}
            return [Series((len(self._nodes) - 1,))]
        return []

    def _branch(self, action: Chosen, env: dict[int, Source]) -> Branch:
        """Both sides, which write into the same memories."""
        decision = self._decision(resolved(action.condition, env))
        wanted: dict[int, int] = {}
        for number, value in enumerate(action.outputs):
            place = env[value]
            assert isinstance(place, Location)
            wanted[number] = place.value
        regions = self._region(), self._region()
        then, _ = self._sequence(action.then, dict(env), wanted)
        otherwise, _ = self._sequence(action.otherwise, dict(env), wanted)
        return Branch(decision, regions[0], tuple(then), regions[1], tuple(otherwise))

    def _loop(
        self,
        form: LoopForm,
        func: relax.Function,
        arguments: Sequence[Source | int],
        targets: Mapping[int, int],
    ) -> tuple[list[Item], list[Source]]:
        trips = None
        if form.is_counted:
            if not isinstance(arguments[0], int):
                raise UnfitFlowError("the number of iterations is not known when it is compiled")
            trips = arguments[0]
        body = self._flow_of(form.body)
        wanted = {form.results[number]: target for number, target in targets.items()}
        ends_in_two = trips is not None and trips % 2 == 1
        one: dict[int, int] = {}
        two: dict[int, int] = {}
        for parameter, item in form.carried.items():
            own, kind = wanted.get(parameter), func.params[parameter].ty
            own = self._memories.new(kind) if own is None else own
            if body.results[item] == given_place(form, body, parameter):
                one[parameter] = two[parameter] = own
                continue
            other = self._memories.new(kind)
            one[parameter], two[parameter] = (other, own) if ends_in_two else (own, other)
        first = [
            (argument, memory)
            for parameter, memory in one.items()
            if (argument := as_tensor(arguments[parameter])) and not self._is_unwritten(argument)
        ]
        items = self._copied(first)
        items += self._iterations(form, body, arguments, (one, two), trips)
        last = two if ends_in_two else one
        results: list[Source] = []
        for parameter in form.results:
            kept = as_tensor(arguments[parameter])
            results.append(Location(last[parameter], 0) if parameter in last else kept)
        items += self._delivered(results, targets)
        return items, results

    def _is_unwritten(self, source: Source) -> bool:
        return isinstance(source, Location) and source.value in self._memories.unwritten

    def _iterations(
        self,
        form: LoopForm,
        body: Flow,
        arguments: Sequence[Source | int],
        sides: tuple[dict[int, int], dict[int, int]],
        trips: int | None,
    ) -> list[Item]:
        one, two = sides
        moved = [parameter for parameter in one if one[parameter] != two[parameter]]

        def turn(read: dict[int, int], write: dict[int, int]) -> list[Item]:
            given = [
                Location(read[parameter], 0) if parameter in read else arguments[parameter]
                for parameter in form.given
            ]
            targets = {form.carried[parameter]: write[parameter] for parameter in moved}
            items, _ = self._flow(body, given, targets)
            self._recursion.require_no_loop(items)
            return items

        if trips is None:
            if 0 not in moved:
                raise UnfitFlowError("its condition never changes")
            decisions = [self._decision(Location(side[0], 0)) for side in sides]
            head, region, again, end = (self._region() for _ in range(4))
            there = turn(one, two)
            back = turn(two, one)
            copies = self._copied([(Location(two[p], 0), one[p]) for p in moved])
            ends = again, tuple(back), end, tuple(copies)
            branch = Branch(decisions[1], *ends, turn_of=head)
            return [While(head, region, decisions[0], (*there, branch), form.most)]
        items: list[Item] = []
        if trips > 1:
            region = self._region()
            both = (*turn(one, two), *turn(two, one))
            items.append(Repeat(region, trips // 2, tuple(joined(both))))
        if trips % 2:
            items += turn(one, two)
        return items
