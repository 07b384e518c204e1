"""Functions of Relay that call themselves as the last that they do: loops of unknown count.

before: ``loop(n, x) = if (n > 0) loop(n - 1, f(x)) else g(x)``
after:  a loop of :mod:`tvm_tile.frontend.loops` that carries ``n > 0, n, x``, and ``g`` behind it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import relax

from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.frontend.loops import called, is_same_type, repeat_while, written
from tvm_tile.frontend.relay import program as relay
from tvm_tile.frontend.relay.environment import (
    Again,
    Closure,
    Data,
    ReferenceCell,
    Scope,
    Value,
    flattened,
    restored,
)
from tvm_tile.frontend.relay.evaluate import CallsItself, Evaluator, Tail
from tvm_tile.frontend.relay.walk import free_variables


def write_loop(evaluator: Evaluator, closure: Closure, arguments: tuple[Value, ...]) -> Value:
    """Write the call of a function that calls itself.

    Args:
        evaluator: to write with.
        closure: the function.
        arguments: of its first call.

    Returns:
        What the call returns.

    Raises:
        UnsupportedOperatorError: the function calls itself elsewhere than at its end, never
            returns, or changes its arguments' types from call to call.
    """
    captured = {
        id(variable): closure.scope.value_of(variable)
        for variable in free_variables(closure.function)
    }
    loop = _Loop(evaluator, closure.function, arguments, captured)
    try:
        return loop.call()
    except CallsItself as found:
        raise _unsupported("a function calls itself elsewhere than at its end") from found


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop's function.

    Attributes:
        evaluator: writes it.
        function: itself.
        arguments: of its first call.
        captured: what variables from around it stand for, by the variable's identity.
        results: what it returned where it did not call itself, while it was written.
    """

    evaluator: Evaluator
    function: relay.Function
    arguments: tuple[Value, ...]
    captured: dict[int, Value]
    results: list[Value] = field(default_factory=list)

    def call(self) -> Value:
        """Write the functions and the calls of them."""
        builder = self.evaluator.builder
        fixed = list(dict.fromkeys(_variables(list(self.captured.values()), set())))
        state = [builder.emit(tensor) for tensor in flattened(self.arguments)]
        goes_on = self._function("goes_on", fixed, lambda _: self._going_on)
        step = self._function("step", fixed, lambda carried: lambda end: _next(end, carried))
        final = self._function("final", fixed, lambda _: self._finally)
        (flag,) = called(builder, goes_on, [*state, *fixed])

        def body(parameters: list[Any]) -> list[Any]:
            new = called(builder, step, parameters)
            return [*called(builder, goes_on, [*new, *parameters[len(new) :]]), *new]

        once = written(builder, "body", [*state, *fixed], body)
        state = repeat_while(builder, "loop", once, [flag, *state], fixed)
        return restored(self.results[0], called(builder, final, [*state, *fixed]))

    def _function(
        self, name: str, fixed: list[Any], finish: Callable[[list[Any]], Callable[[Value], Value]]
    ) -> Any:
        """The function's body, of which ``finish`` makes the end, as one of Relax.

        Its parameters are the loop's tensors, then ``fixed``, those from around it.
        """
        tensors = flattened(self.arguments)

        def body(parameters: list[Any]) -> list[Any]:
            carried, inner = parameters[: len(tensors)], parameters[len(tensors) :]
            replaced = dict(zip(fixed, inner, strict=True))
            made: dict[int, Closure] = {}
            captured = {k: _with(v, replaced, made) for k, v in self.captured.items()}
            scope = Scope(None, captured)
            own = restored(self.arguments, carried)
            scope.bind(dict(zip(map(id, self.function.parameters), own, strict=True)))
            tail = Tail(self.function, finish(carried))
            return flattened(self.evaluator.evaluate_loop(self.function, scope, tail))

        return written(self.evaluator.builder, name, [*tensors, *fixed], body)

    def _going_on(self, end: Value) -> Value:
        if not isinstance(end, Again):
            self.results.append(end)
        return relax.const(np.array(isinstance(end, Again)), "bool")

    def _finally(self, end: Value) -> Value:
        if not self.results:
            raise _unsupported("a function calls itself whatever the data are")
        if not isinstance(end, Again):
            return end
        # Never computed: the loop has ended.
        zeros = [relax.op.zeros(t.ty.shape, t.ty.dtype) for t in flattened(self.results[0])]
        return restored(self.results[0], [self.evaluator.builder.emit(zero) for zero in zeros])


def _next(end: Value, carried: list[Any]) -> Value:
    """The arguments of a loop's next call; where there is none, those that it has."""
    if not isinstance(end, Again):
        return tuple(carried)
    tensors = flattened(end.arguments)
    for own, other in zip(tensors, carried, strict=True):
        if not is_same_type(own.ty, other.ty):
            raise _unsupported(f"a loop's value changes from {other.ty} to {own.ty}")
    return tuple(tensors)


def _variables(value: Any, seen: set[int]) -> list[Any]:
    """The tensors within a value that are computed, not constant."""
    match value:
        case tuple() | list():
            parts = value
        case Closure() if id(value) not in seen:
            seen.add(id(value))
            parts = [value.scope.value_of(free) for free in free_variables(value.function)]
        case Data():
            parts = value.fields
        case ReferenceCell():
            parts = [value.value]
        case _:
            return [value] if isinstance(value, relax.Var) else []
    return [variable for part in parts for variable in _variables(part, seen)]


def _with(value: Value, replaced: Mapping[Any, Any], made: dict[int, Closure]) -> Value:
    """A value of other tensors, from a loop's function's parameters."""
    match value:
        case tuple():
            return tuple(_with(part, replaced, made) for part in value)
        case Closure():
            if id(value) not in made:
                made[id(value)] = Closure(value.function, Scope())
                made[id(value)].scope.bind(
                    {
                        id(free): _with(value.scope.value_of(free), replaced, made)
                        for free in free_variables(value.function)
                    }
                )
            return made[id(value)]
        case Data():
            return Data(value.constructor, _with(value.fields, replaced, made))
        case ReferenceCell():
            return ReferenceCell(_with(value.value, replaced, made), value.branches)
        case _:
            return replaced.get(value, value) if isinstance(value, relax.Var) else value


def _unsupported(what: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        "a Relay function that the data let call itself must be a loop: it ends with the call",
        what,
        "rewrite it so, or run it apart from the model",
    )
