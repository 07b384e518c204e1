"""A loop as the program of a persistent kernel: what an iteration hands on goes to and fro.

Each value that changes has two memories. An iteration reads one and writes the other; the next one
goes the other way, so that no value is copied between them::

    counted:  one = first value                 goes on:  one = first value
              repeat trips / 2:                           while goes on (one):
                  two = iteration(one)                        two = iteration(one)
                  one = iteration(two)                        if goes on (two): one = iteration(two)
              two = iteration(one), if trips                  else:             one = two
              are odd

What an iteration changes in place has one memory. The result lies in ``one``, or in ``two`` where
the number of iterations is known and odd.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm.ir import GenericConst

from tvm_tile.passes.read_loops import LoopForm
from tvm_tile.passes.task_graph import Location, TaskGraph, TaskNode
from tvm_tile.plan.rprogram import Access, Branch, Item, Repeat, RProgram, Run, While


class UnfitLoopError(Exception):
    """A loop that no persistent kernel can run, and why."""


@dataclass(frozen=True, slots=True)
class Carried:
    """A value that iterations hand on.

    Attributes:
        parameter: of the loop.
        one: the memory that the first iteration reads.
        two: the memory that it writes; the same where it changes the value in place.
        made: where an iteration of the graph has the next value.
    """

    parameter: int
    one: int
    two: int
    made: Location


@dataclass(frozen=True, slots=True)
class LoopProgram:
    """A loop to be run by a persistent kernel.

    Attributes:
        nodes: its rOperators; what they read and write are numbers of memories.
        program: of them.
        kinds: the type of each memory.
        given: by parameter of the loop, the memory that holds what it is given.
        results: by parameter that changes, the memory that holds its last value.
    """

    nodes: tuple[TaskNode, ...]
    program: RProgram
    kinds: Mapping[int, Any]
    given: Mapping[int, int]
    results: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Body:
    """The function of an iteration.

    Attributes:
        graph: its kernels.
        parameters: of each value that it is given, the number of the parameter.
        results: where its results are.
    """

    graph: TaskGraph
    parameters: Mapping[int, int]
    results: tuple[Location, ...]


CopyOf = Callable[[Any], str]
"""By the type of a tensor: the name of a function that copies one."""


def loop_program(
    form: LoopForm,
    body: Body,
    kinds: Sequence[Any],
    trips: int | None,
    copy_of: CopyOf,
    fresh: frozenset[int],
) -> LoopProgram:
    """The program of a loop.

    Args:
        form: of the loop.
        body: of the loop.
        kinds: types of the loop's parameters.
        trips: how many iterations it has, if that is known.
        copy_of: names functions that copy.
        fresh: parameters whose first values nobody reads.

    Raises:
        UnfitLoopError: it changes what it does not hand on.
    """
    return _Writer(form, body, kinds, copy_of, fresh).written(trips)


class _Writer:
    def __init__(
        self,
        form: LoopForm,
        body: Body,
        kinds: Sequence[Any],
        copy_of: CopyOf,
        fresh: frozenset[int],
    ) -> None:
        self._graph, self._kinds_of, self._copy_of, self._fresh = body.graph, kinds, copy_of, fresh
        self._kinds: dict[int, Any] = {}
        self._given: dict[int, int] = {}
        self._nodes: list[TaskNode] = []
        # Of each value that the body is given, the parameter of the loop.
        self._parameter_of = {value: form.given[n] for value, n in body.parameters.items()}
        changed = {value for node in body.graph.nodes for value in node.changes}
        self._carried = [
            self._carry(parameter, body.results[item], changed)
            for parameter, item in form.carried.items()
        ]
        handed_on = {own.made.value for own in self._carried if own.one == own.two}
        if changed & set(self._parameter_of) - handed_on:
            raise UnfitLoopError("an iteration changes in place what it does not hand on")
        self._inner: dict[tuple[int, int], int] = {}

    def _memory(self, kind: Any) -> int:
        number = len(self._kinds)
        self._kinds[number] = kind
        return number

    def _carry(self, parameter: int, made: Location, changed: set[int]) -> Carried:
        kind = self._kinds_of[parameter]
        one = self._memory(kind)
        is_in_place = made.value in changed and self._parameter_of.get(made.value) == parameter
        return Carried(parameter, one, one if is_in_place else self._memory(kind), made)

    def written(self, trips: int | None) -> LoopProgram:
        """The whole loop."""
        if trips == 0:
            raise UnfitLoopError("it has no iteration")
        begin = self._begin()
        decisions: tuple[int, ...] = ()
        if trips is None:
            body: tuple[Item, ...] = (self._turn(0),)
            heads = [own for own in self._carried if own.parameter == 0]
            further = (self._turn(1),), (self._copied([(c.two, c.one) for c in self._moved()]),)
            body = (*body, Branch(1, 3, further[0], 4, further[1]))
            items: list[Item] = [begin, While(1, 2, 0, body)]
            decisions = heads[0].one, heads[0].two
        else:
            items = [begin]
            if trips > 1:
                items.append(Repeat(1, trips // 2, (self._turn(0), self._turn(1))))
            if trips % 2:
                items.append(self._turn(0))
        ended = "two" if trips is not None and trips % 2 else "one"
        results = {c.parameter: c.two if ended == "two" else c.one for c in self._carried}
        program = RProgram(tuple(items), tuple(map(_access, self._nodes)), decisions)
        nodes = tuple(self._nodes)
        return LoopProgram(nodes, program, self._kinds, self._given, results)

    def _moved(self) -> list[Carried]:
        return [own for own in self._carried if own.one != own.two]

    def _begin(self) -> Run:
        """The first values, where the first iteration reads them."""
        pairs = []
        for own in self._carried:
            if own.parameter not in self._fresh:
                pairs.append((self._argument(own.parameter), own.one))
        return self._copied(pairs)

    def _argument(self, parameter: int) -> int:
        """The memory of what the loop is given."""
        if parameter not in self._given:
            self._given[parameter] = self._memory(self._kinds_of[parameter])
        return self._given[parameter]

    def _copied(self, pairs: Sequence[tuple[int, int]]) -> Run:
        """Copies of memories to others."""
        first = len(self._nodes)
        for source, target in pairs:
            self._copy(Location(source, 0), target)
        return Run(tuple(range(first, len(self._nodes))))

    def _copy(self, source: Location, target: int) -> None:
        function = self._copy_of(self._kinds[target])
        self._nodes.append(TaskNode(None, function, (source,), (source.value,), (target,)))

    def _turn(self, side: int) -> Run:
        """An iteration: from one to two, or back."""
        first = len(self._nodes)
        read = {c.parameter: (c.two if side else c.one) for c in self._carried}
        written: dict[int, int] = {}
        copied: list[Carried] = []
        makers = {value for node in self._graph.nodes for value in node.outputs}
        for own in self._moved():
            is_whole = own.made.value in makers and not own.made.offset
            if is_whole and own.made.value not in written and self._is_like(own):
                written[own.made.value] = own.one if side else own.two
            else:
                copied.append(own)

        def memory(value: int) -> int:
            if value in self._parameter_of:
                parameter = self._parameter_of[value]
                return read[parameter] if parameter in read else self._argument(parameter)
            if value in written:
                return written[value]
            key = side, value
            if key not in self._inner:
                self._inner[key] = self._memory(self._graph.kinds[value])
            return self._inner[key]

        for node in self._graph.nodes:
            self._nodes.append(_renumbered(node, memory))
        for own in copied:
            source = Location(memory(own.made.value), own.made.offset)
            self._copy(source, own.one if side else own.two)
        return Run(tuple(range(first, len(self._nodes))))

    def _is_like(self, own: Carried) -> bool:
        one, other = self._graph.kinds[own.made.value], self._kinds_of[own.parameter]
        return bool(one.dtype == other.dtype and list(one.shape) == list(other.shape))


def _renumbered(node: TaskNode, memory: Callable[[int], int]) -> TaskNode:
    arguments = tuple(
        a if isinstance(a, GenericConst) else Location(memory(a.value), a.offset)
        for a in node.arguments
    )
    several = (tuple(map(memory, values)) for values in (node.reads, node.outputs, node.changes))
    reads, outputs, changes = several
    return replace(node, arguments=arguments, reads=reads, outputs=outputs, changes=changes)


def _access(node: TaskNode) -> Access:
    return Access(frozenset(node.reads), frozenset((*node.outputs, *node.changes)))
