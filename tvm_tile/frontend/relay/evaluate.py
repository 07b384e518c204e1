"""Relay programs become Relax by partial evaluation.

What only structures a program (tuples, functions, references, data types, branches whose condition
is known) is computed here, in Python; operators on tensors are written as Relax. A function that is
called is opened where it is called. A branch that only the data decide becomes Relax's ``If``, and
a function that calls itself behind one a loop (see :mod:`tvm_tile.frontend.relay.loops`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from tvm_tile.errors import ModelError, TileError, UnsupportedOperatorError
from tvm_tile.frontend.loops import fields_of
from tvm_tile.frontend.relay import program as relay
from tvm_tile.frontend.relay.call import Converter, OperatorCall, converted
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
from tvm_tile.graph.user_names import Names

Fold = Callable[[OperatorCall, Value], Value]
Steps = Generator["EvaluationStep", Value, Value]
_MOST_OPENED = 2000  # calls of one function within each other, of which the trips are known


@dataclass(frozen=True, slots=True)
class EvaluationStep:
    """An expression to evaluate, and where.

    Attributes:
        expr: the expression.
        scope: what its variables stand for.
        tail: what becomes of the value where that is what a loop's function returns; ``None``
            elsewhere.
    """

    expr: relay.Expr
    scope: Scope
    tail: Tail | None = None


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a loop's function.

    Attributes:
        function: whose calls of itself, as the last that it does, are an :class:`Again`.
        finish: what the end's value, or that :class:`Again`, becomes.
    """

    function: relay.Function
    finish: Callable[[Value], Value]


class CallsItself(Exception):
    """A function calls itself behind a branch that only the data decide."""

    def __init__(self, function: relay.Function) -> None:
        super().__init__("a function that calls itself")
        self.function = function


@dataclass(frozen=True, slots=True)
class _Active:
    """A call that is being evaluated: of what, and within how many branches."""

    function: relay.Function
    branches: int


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Writes Relax for Relay expressions.

    Attributes:
        functions: the program's own, by name.
        converters: by operator.
        fold: of what a call made, its value where its small arguments are known.
        builder: where Relax goes.
        write_loop: writes a call of a function that calls itself.
        names: values -> the operators that they are of, and where these are.
    """

    functions: Mapping[str, relay.Function]
    converters: Mapping[str, Converter]
    fold: Fold
    builder: relax.BlockBuilder
    write_loop: Callable[[Evaluator, Closure, tuple[Value, ...]], Value]
    names: dict[Any, Names] = field(default_factory=dict)
    _active: list[_Active] = field(default_factory=list)
    _branches: list[relay.Expr] = field(default_factory=list)
    _constants: dict[int, Value] = field(default_factory=dict)

    def call(self, closure: Closure, arguments: tuple[Value, ...]) -> Value:
        """What a function returns; however deep its expressions are, Python's stack is not.

        Raises:
            UnsupportedOperatorError: a construct or an operator's form that is not taken.
        """
        return self._run(self._opened(closure, arguments))

    def evaluate_loop(self, function: relay.Function, scope: Scope, tail: Tail) -> Value:
        """The body of a function as a loop's, of which all but constants is a parameter.

        Raises:
            CallsItself: elsewhere than at its end.
        """
        self._branches.append(function)
        self._active.append(_Active(function, -1))
        try:
            return self._run(self._steps(EvaluationStep(function.body, scope, tail)))
        finally:
            self._active.pop()
            self._branches.pop()

    def _run(self, first: Steps) -> Value:
        """The value of an expression, those that it asks for on a stack of ours."""
        stack = [first]
        value: Value = None
        error: Exception | None = None
        while stack:
            try:
                asked = stack[-1].send(value) if error is None else stack[-1].throw(error)
            except StopIteration as done:
                stack.pop()
                value, error = done.value, None
            except Exception as raised:  # goes on to whoever asked
                stack.pop()
                value, error = None, raised
            else:
                stack.append(self._steps(asked))
                value = error = None
        if error is not None:
            raise error
        return value

    def _steps(self, step: EvaluationStep) -> Steps:
        """Evaluates one expression; asks for others' values by yielding them."""
        expr, tail = step.expr, step.tail
        value = step.scope.found(expr)
        if value is None:
            value = yield from self._value(step)
            is_end = tail is not None and isinstance(expr, relay.Let | relay.If | relay.Match)
            if is_end:
                return value  # its last expression is the end
            if not isinstance(value, Again):
                step.scope.keep(expr, value)
        return value if tail is None else tail.finish(value)

    def _value(self, step: EvaluationStep) -> Steps:
        expr = step.expr
        match expr:
            case relay.Constant():
                return self._constants.setdefault(id(expr), _constant(expr))
            case relay.Local():
                return step.scope.value_of(expr)
            case relay.Global():
                return Closure(self._function(expr.name), Scope())
            case relay.Function():
                return Closure(expr, step.scope)
            case relay.Operator():
                return expr
            case relay.Constructor():
                return expr if expr.arity else Data(expr, ())
        return (yield from self._composed(step))

    def _composed(self, step: EvaluationStep) -> Steps:
        expr, scope, tail = step.expr, step.scope, step.tail
        match expr:
            case relay.Tuple():
                return (yield from self._all(expr.fields, scope))
            case relay.Item():
                fields = yield EvaluationStep(expr.value, scope)
                if not isinstance(fields, tuple) or not 0 <= expr.index < len(fields):
                    raise _unsupported(f"item {expr.index} of what has none")
                return fields[expr.index]
            case relay.Let():
                return (yield from self._let(expr, scope, tail))
            case relay.If():
                return (yield from self._branch(expr, scope, tail))
            case relay.Match():
                value = yield EvaluationStep(expr.value, scope)
                for clause in expr.clauses:
                    bound = _matched(clause.pattern, value)
                    if bound is not None:
                        scope.bind(bound)
                        return (yield EvaluationStep(clause.body, scope, tail))
                raise _unsupported("a match none of whose clauses matches")
            case relay.NewReference():
                return ReferenceCell((yield EvaluationStep(expr.value, scope)), self._depth)
            case relay.ReadReference():
                return self._cell((yield EvaluationStep(expr.reference, scope))).value
            case relay.WriteReference():
                cell = self._cell((yield EvaluationStep(expr.reference, scope)))
                if cell.branches != self._depth:
                    raise _unsupported("a reference that is written where only the data decide")
                cell.value = yield EvaluationStep(expr.value, scope)
                return ()
            case relay.Call():
                return (yield from self._call(expr, scope, tail))
        raise _unsupported(f"an expression of kind {type(expr).__name__}")

    @property
    def _depth(self) -> int:
        """Within how many branches the expression stands that only the data decide."""
        return len(self._branches)

    def _all(self, exprs: tuple[relay.Expr, ...], scope: Scope) -> Steps:
        values = []
        for expr in exprs:
            values.append((yield EvaluationStep(expr, scope)))
        return tuple(values)

    def _let(self, expr: relay.Let, scope: Scope, tail: Tail | None) -> Steps:
        # No other expression of the scope has this variable: it needs no scope of its own.
        scope.bind({id(expr.variable): (yield EvaluationStep(expr.value, scope))})
        return (yield EvaluationStep(expr.body, scope, tail))

    def _call(self, expr: relay.Call, scope: Scope, tail: Tail | None) -> Steps:
        callee = yield EvaluationStep(expr.callee, scope)
        arguments = yield from self._all(expr.arguments, scope)
        if isinstance(callee, relay.Operator):
            return self._operator(callee.name, arguments, expr)
        if isinstance(callee, relay.Constructor):
            return Data(callee, arguments)
        if not isinstance(callee, Closure):
            raise _unsupported("a call of what is no function")
        if tail is not None and tail.function is callee.function:
            return Again(arguments)
        return (yield from self._opened(callee, arguments))

    def _opened(self, callee: Closure, arguments: tuple[Value, ...]) -> Steps:
        """The body of a function that is called; a loop where it calls itself for ever."""
        function = callee.function
        calls = [active for active in self._active if active.function is function]
        if calls and (self._depth > calls[-1].branches or len(calls) > _MOST_OPENED):
            raise CallsItself(function)
        self._active.append(_Active(function, self._depth))
        try:
            return (yield EvaluationStep(function.body, _entered(callee, arguments)))
        except CallsItself as found:
            if found.function is not function or len(calls) > 0:
                raise
        finally:
            self._active.pop()
        return self.write_loop(self, callee, arguments)

    def _operator(self, name: str, arguments: tuple[Value, ...], expr: relay.Call) -> Value:
        call = OperatorCall(name, arguments, expr.attributes, self.builder)
        where = f" at {expr.place}" if expr.place else ""
        try:
            made = self.fold(call, _emitted(self.builder, converted(self.converters[name], call)))
        except TileError:
            raise
        except Exception as error:  # converters, and TVM's own functions, raise whatever comes up
            lines = str(error).strip().splitlines()
            raise UnsupportedOperatorError(
                f"operator {name} must be in a form that the importer of Relay knows",
                f"{type(error).__name__}: {lines[0] if lines else 'no message'}{where}",
                "rewrite this call in the model that the program was made from",
            ) from error
        for value in flattened(made):
            if isinstance(value, relax.Var):
                self.names.setdefault(value, (f"{name}{where}",))
        return made

    def _branch(self, expr: relay.If, scope: Scope, tail: Tail | None) -> Steps:
        condition = yield EvaluationStep(expr.condition, scope)
        if isinstance(condition, GenericConst):
            chosen = expr.then if np.all(condition.value.numpy()) else expr.otherwise
            return (yield EvaluationStep(chosen, scope, tail))
        if not isinstance(condition, relax.Var) or condition.ty != relax.TensorType((), "bool"):
            raise _unsupported("a condition that is no truth value")
        sides: list[tuple[Any, Value]] = []
        for side in (expr.then, expr.otherwise):
            self.builder._begin_binding_block()
            self._branches.append(side)
            try:
                value = yield EvaluationStep(side, Scope(scope), tail)
            except BaseException:
                self.builder._end_block()
                raise
            finally:
                self._branches.pop()
            sides.append(self._side(value))
        return self._chosen(condition, sides)

    def _side(self, value: Value) -> tuple[Any, Value]:
        """What was written for a branch, and its value."""
        tensors = flattened(value)
        result = tensors[0] if len(tensors) == 1 else relax.Tuple(tensors)
        result = self.builder.normalize(result)
        return relax.SeqExpr([self.builder._end_block()], result), value

    def _chosen(self, condition: Value, sides: list[tuple[Any, Value]]) -> Value:
        (then, value), (otherwise, other) = sides
        is_alike = [t.ty for t in flattened(value)] == [t.ty for t in flattened(other)]
        if not is_alike:
            raise _unsupported("branches of different types")
        made = self.builder.emit(relax.If(condition, then, otherwise))
        is_one = not isinstance(made.ty, relax.TupleType)
        return restored(value, [made] if is_one else fields_of(self.builder, made))

    def _function(self, name: str) -> relay.Function:
        function = self.functions.get(name)
        if function is None:
            raise ModelError(
                "each function that a Relay program calls must be in it",
                f"@{name} is not",
                "save the whole module",
            )
        return function

    def _cell(self, value: Value) -> ReferenceCell:
        if not isinstance(value, ReferenceCell):
            raise _unsupported("a reference that is none")
        return value


def _constant(expr: relay.Constant) -> Value:
    return relax.const(expr.value, str(expr.value.dtype))


def _entered(closure: Closure, arguments: tuple[Value, ...]) -> Scope:
    parameters = closure.function.parameters
    if len(parameters) != len(arguments):
        raise _unsupported(f"{len(arguments)} arguments of a function of {len(parameters)}")
    return Scope(closure.scope, dict(zip(map(id, parameters), arguments, strict=True)))


def _emitted(builder: relax.BlockBuilder, value: Value) -> Value:
    """A converter's answer as values: each tensor a variable or a constant."""
    if isinstance(value, tuple):
        return tuple(_emitted(builder, part) for part in value)
    if isinstance(value, GenericConst | relax.Var):
        return value
    made = builder.emit(value)
    if isinstance(made.ty, relax.TupleType):
        return tuple(fields_of(builder, made))
    return made


def _matched(pattern: relay.Pattern, value: Value) -> dict[int, Value] | None:
    """What a pattern's variables stand for; ``None`` where it does not match."""
    match pattern:
        case relay.AnyPattern():
            return {}
        case relay.LocalPattern():
            return {id(pattern.variable): value}
        case relay.TuplePattern():
            fields = value if isinstance(value, tuple) else None
        case relay.ConstructorPattern():
            if not isinstance(value, Data):
                raise _unsupported("a match of what is of no data type")
            is_made = value.constructor.name == pattern.constructor.name
            fields = value.fields if is_made else None
    if fields is None or len(fields) != len(pattern.fields):
        return None
    bound: dict[int, Value] = {}
    for inner, part in zip(pattern.fields, fields, strict=True):
        found = _matched(inner, part)
        if found is None:
            return None
        bound |= found
    return bound


def _unsupported(what: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        "a Relay program must be of constructs that can be decided while it is compiled",
        what,
        "rewrite this part, or run it apart from the model",
    )
