"""Functions that call themselves, on the way into a kernel.

A parameter that each call hands on as it got it is fixed: it lies where the first caller has it.
All others are copied into the frame of the call, and results out of there. Nobody knows which are
fixed before the function has been written: all are thought to be, and where one is not, all is
written again (:class:`MovesError`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from tvm_tile.build.tail_calls import calls_at_its_end, tail_binding
from tvm_tile.graph.functions import calls_of, reached
from tvm_tile.passes.coschedule.task_graph import Location, TaskNode, identity
from tvm_tile.passes.flow.memory import NewMemories
from tvm_tile.passes.flow.read import Action, Called, Chosen, Flow, Source, UnfitFlowError
from tvm_tile.plan.calls import has_call
from tvm_tile.plan.rprogram import Item


class MovesError(Exception):
    """Parameters of a function that were thought to be fixed are not.

    Args:
        function: its name.
        parameters: their positions.
    """

    def __init__(self, function: str, parameters: Set[int]) -> None:
        super().__init__(function)
        self.function, self.parameters = function, frozenset(parameters)


@dataclass(frozen=True, slots=True)
class RecursiveFunction:
    """A function of a program.

    Attributes:
        number: its own.
        variable: its name in the module.
        arguments: arguments of the first call; those that are fixed are every call's.
        parameters: memories of those that are not, by their positions.
        results: memories of what it makes.
    """

    number: int
    variable: Any
    arguments: tuple[Source | int, ...]
    parameters: Mapping[int, int]
    results: tuple[int, ...]

    def inside(self) -> tuple[list[Source | int], dict[int, int]]:
        """The arguments as the function itself sees them, and where it must put its results."""
        given = [
            Location(self.parameters[n], 0) if n in self.parameters else argument
            for n, argument in enumerate(self.arguments)
        ]
        return given, dict(enumerate(self.results))

    def copied(
        self, targets: Mapping[int, int], brief: Set[int], memories: NewMemories
    ) -> dict[int, int]:
        """Memories to which a caller copies results: their ``targets``, or new ones.

        Results that are ``brief`` and have no target are not copied.
        """
        news = {n: m for n, m in enumerate(self.results) if n not in targets and n not in brief}
        return {**targets, **{n: memories.new(memories.kind(m)) for n, m in news.items()}}

    def fixed(self) -> tuple[Hashable, ...]:
        """Keys of the arguments that are every call's."""
        return _keys(self.arguments, self.parameters)


class Recursion:
    """The functions of a program that call themselves.

    Args:
        mod: module that has the functions.
        moving: parameters that are not fixed, as far as is known, by name of a function.
    """

    def __init__(self, mod: tvm.IRModule, moving: Mapping[str, frozenset[int]]) -> None:
        self._mod, self._moving = mod, moving
        self._calls = calls_of(mod)
        self._open: list[RecursiveFunction] = []
        self._ended: list[RecursiveFunction] = []
        self._items: dict[int, tuple[Item, ...]] = {}

    def calls_itself(self, function: Any) -> bool:
        """Whether a function calls itself, other than through those that are being written: what
        these call is written in them, as far as it ends."""
        within = {called.variable for called in self._open}
        return function in within or function in reached(function, self._calls, within)

    def known(self, function: Any, arguments: Sequence[Source | int]) -> RecursiveFunction | None:
        """The function that a call is of; ``None`` if it is yet to be written."""
        moving = self._moving_of(function)
        for called in self._open:
            if called.variable.same_as(function):
                return called
        for called in self._ended:
            is_same = called.variable.same_as(function)
            if is_same and called.fixed() == _keys(arguments, moving):
                return called
        return None

    def begin(
        self, function: Any, arguments: Sequence[Source | int], memories: NewMemories
    ) -> RecursiveFunction:
        """A function that is written from now on, as are the memories of a call of it.

        Raises:
            MovesError: an argument lies in a frame, which is another one in each call.
            UnfitFlowError: no kernel can run it.
        """
        func = self._mod[function]
        if _is_jump(func, function):
            raise UnfitFlowError("it has a loop that is written in another form")
        moving = self._moving_of(function)
        own = {n for n, a in enumerate(arguments) if _is_own(a, memories)}
        if own - moving:
            raise MovesError(str(function.name_hint), own - moving)
        memories.in_call = True
        parameters = {n: memories.new(func.params[n].ty) for n in sorted(moving)}
        returned = func.ret_ty
        kinds = returned.fields if isinstance(returned, relax.TupleType) else [returned]
        results = tuple(memories.new(kind) for kind in kinds)
        number = len(self._open) + len(self._ended)
        called = RecursiveFunction(number, function, tuple(arguments), parameters, results)
        self._open.append(called)
        return called

    def end(
        self,
        called: RecursiveFunction,
        items: Sequence[Item],
        changes: Set[int],
        memories: NewMemories,
    ) -> None:
        """The function, whose items have been written.

        Args:
            called: name of the function.
            items: its own.
            changes: memories that it changes in place.
            memories: memories of whatever follows.

        Raises:
            MovesError: one of them is an argument, of which each call needs a copy.
        """
        places = enumerate(called.arguments)
        changed = {n for n, a in places if isinstance(a, Location) and a.value in changes}
        if changed - set(called.parameters):
            raise MovesError(str(called.variable.name_hint), changed - set(called.parameters))
        self._items[called.number] = tuple(items)
        self._ended.append(self._open.pop())
        memories.in_call = bool(self._open)

    def require_fixed(self, called: RecursiveFunction, arguments: Sequence[Source | int]) -> None:
        """Check that a call hands on what is fixed.

        Raises:
            MovesError: the call hands on something else.
        """
        pairs = zip(_all_keys(arguments), _all_keys(called.arguments), strict=True)
        changed = {n for n, (own, first) in enumerate(pairs) if own != first}
        if changed - set(called.parameters):
            raise MovesError(str(called.variable.name_hint), changed - set(called.parameters))

    def require_no_loop(self, items: Sequence[Item]) -> None:
        """Check that an iteration within a function calls none: a vEU counts the iterations of a
        loop for all calls together.

        Raises:
            UnfitFlowError: an iteration calls one.
        """
        if self._open and any(map(has_call, items)):
            raise UnfitFlowError("a function calls itself in a loop")

    def functions(self) -> tuple[tuple[Item, ...], ...]:
        """The items of all, by their numbers."""
        return tuple(items for _, items in sorted(self._items.items()))

    def _moving_of(self, function: Any) -> frozenset[int]:
        """Parameters of a function that are known not to be fixed."""
        return self._moving.get(str(function.name_hint), frozenset())


def read_before_calls(flow: Flow, call: Called) -> frozenset[int]:
    """The results of a call, by their numbers, that nobody reads once something else is called.

    Args:
        flow: flow that has the call.
        call: call from whose frame they are to be read.
    """
    behind = flow.actions[flow.actions.index(call) + 1 :]
    numbers = (n for n, action in enumerate(behind) if isinstance(action, Called | Chosen))
    first = next(numbers, len(behind))
    read = {place.value for place in flow.results if isinstance(place, Location)}
    for action in behind[first:]:
        read |= _read(action)
    return frozenset(n for n, value in enumerate(call.outputs) if value not in read)


def _read(action: Action) -> set[int]:
    """The values that an action reads, in whatever branch."""
    match action:
        case TaskNode():
            return {*action.reads, *action.changes}
        case Called():
            return {place.value for place in action.arguments if isinstance(place, Location)}
        case Chosen():
            sides = (action.then, action.otherwise)
            own = {value for side in sides for inner in side.actions for value in _read(inner)}
            places = (place for side in sides for place in side.results)
            own |= {p.value for p in places if isinstance(p, Location)}
            return {action.condition.value, *own}
        case _:
            return set()


def _is_own(argument: Source | int, memories: NewMemories) -> bool:
    """Whether an argument lies in a memory that each call has of its own."""
    return isinstance(argument, Location) and memories.is_own(argument.value)


def _all_keys(arguments: Sequence[Source | int]) -> tuple[Hashable, ...]:
    """Keys of all arguments."""
    return _keys(arguments, ())


def _keys(arguments: Sequence[Source | int], but: Set[int] | Mapping[int, int] | tuple[()]) -> Any:
    """Keys of arguments, but for those at some positions."""
    return tuple(
        a if isinstance(a, int) else identity(a) for n, a in enumerate(arguments) if n not in but
    )


def _is_jump(func: relax.Function, function: Any) -> bool:
    """Whether a function ends with a call of itself: a loop, which may go on without end."""
    last = tail_binding(func.body)
    return last is not None and calls_at_its_end(last.value, function)
