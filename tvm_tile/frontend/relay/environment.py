"""What Relay expressions stand for while a program is evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.ir import GenericConst

from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.frontend.relay import program as relay

Value = Any
"""A Relax tensor, a tuple of values, or one of the classes below."""


class Scope:
    """What variables stand for, and the values of expressions that were evaluated here.

    Inner scopes see what outer ones hold, not the other way round: what is written within a branch
    exists only there.
    """

    def __init__(
        self, outer: Scope | None = None, variables: Mapping[int, Value] | None = None
    ) -> None:
        self._outer = outer
        self._variables = dict(variables or {})  # by the variable's identity
        self._kept: dict[int, tuple[relay.Expr, Value]] = {}

    def bind(self, variables: Mapping[int, Value]) -> None:
        """Let variables, each by its identity, stand for values."""
        self._variables |= variables

    def keep(self, expr: relay.Expr, value: Value) -> None:
        """Remember the value of an expression, which others may hold, too."""
        self._kept[id(expr)] = expr, value

    def found(self, expr: relay.Expr) -> Value | None:
        """The value of an expression that was evaluated here or around."""
        for scope in self._around():
            entry = scope._kept.get(id(expr))
            if entry is not None:
                return entry[1]
        return None

    def value_of(self, variable: relay.Local) -> Value:
        """What a variable stands for.

        Raises:
            UnsupportedOperatorError: for nothing.
        """
        for scope in self._around():
            if id(variable) in scope._variables:
                return scope._variables[id(variable)]
        raise UnsupportedOperatorError(
            "each variable of a Relay program must be bound where it is used",
            f"%{variable.name} is not",
            "save the program again",
        )

    def _around(self) -> Iterator[Scope]:
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope._outer


@dataclass(frozen=True, slots=True, eq=False)
class Closure:
    """A function, and the scope that it was written in."""

    function: relay.Function
    scope: Scope


@dataclass(frozen=True, slots=True)
class Data:
    """A value of an algebraic data type."""

    constructor: relay.Constructor
    fields: tuple[Value, ...]


@dataclass(slots=True, eq=False)
class ReferenceCell:
    """What a reference refers to.

    Attributes:
        value: now.
        branches: within how many branches it was made that only the data decide.
    """

    value: Value
    branches: int


@dataclass(frozen=True, slots=True)
class Again:
    """A loop's function called itself, with these arguments."""

    arguments: tuple[Value, ...]


def is_tensor(value: Value) -> bool:
    """Whether a value is one of Relax."""
    return isinstance(value, relax.Var | GenericConst)


def flattened(value: Value) -> list[Any]:
    """The tensors of a value.

    Raises:
        UnsupportedOperatorError: it has others than tensors and tuples.
    """
    if isinstance(value, tuple):
        return [tensor for part in value for tensor in flattened(part)]
    if is_tensor(value):
        return [value]
    raise UnsupportedOperatorError(
        "what only the data decide must be tensors, or tuples of tensors",
        f"a {type(value).__name__.lower()}",
        "make the decision depend on what is known when the model is compiled",
    )


def restored(value: Value, tensors: Sequence[Any]) -> Value:
    """A value of the same structure, of other tensors."""
    left = iter(tensors)

    def build(part: Value) -> Value:
        return tuple(map(build, part)) if isinstance(part, tuple) else next(left)

    return build(value)
