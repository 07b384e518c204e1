"""Expressions in Relay's text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import numpy as np

from tvm_tile.frontend.relay import program as relay
from tvm_tile.frontend.relay.attributes import completed, integer, refuse_unknown
from tvm_tile.frontend.relay.json_attributes import (
    Attributes,
    attribute,
    lenient_attribute,
)
from tvm_tile.frontend.relay.scopes import Scopes
from tvm_tile.frontend.relay.text_values import Values, scalar
from tvm_tile.frontend.relay.tokens import TokenKind, Tokens

# Of those that stand between their operands: the operator, and how tightly it binds. All group
# from the left.
_INFIX: Mapping[str, tuple[str, int]] = {
    "==": ("equal", 0),
    "!=": ("not_equal", 0),
    "<": ("less", 1),
    "<=": ("less_equal", 1),
    ">": ("greater", 1),
    ">=": ("greater_equal", 1),
    "+": ("add", 2),
    "-": ("subtract", 2),
    "*": ("multiply", 3),
    "/": ("divide", 3),
}

Given = TypeVar("Given")
Made = TypeVar("Made")


class Expressions:
    """Reads expressions.

    Args:
        tokens: the text; every method begins at its token and passes what it read.
        values: reads what holds no expressions.
        constructors: of data types, by name.

    Attributes:
        called: names of functions, with where they are named first.
    """

    def __init__(
        self, tokens: Tokens, values: Values, constructors: Mapping[str, relay.Constructor]
    ) -> None:
        self._tokens = tokens
        self._values = values
        self._constructors = constructors
        self._scopes = Scopes()
        self._free: list[relay.Local] = []
        self.called: dict[str, int] = {}
        self._keywords: Mapping[str, Callable[[], relay.Expr]] = {
            "fn": self._function,
            "if": self._if,
            "match": self._match,
            "ref": lambda: relay.NewReference(*self._operands(1)),
            "ref_read": lambda: relay.ReadReference(*self._operands(1)),
            "ref_write": lambda: relay.WriteReference(*self._operands(2)),
            "True": self._truth,
            "False": self._truth,
            "meta": self._constant,
        }

    def definition(self) -> relay.Function:
        """A function from its parameters on; bindings of other functions are out of reach."""
        self._scopes = Scopes()
        return self._signature_and_body()

    def definition_body(self) -> relay.Expr:
        """An expression that is a program by itself."""
        return self._body()

    def free(self) -> tuple[relay.Local, ...]:
        """The free variables that were declared, in order."""
        return tuple(self._free)

    def _body(self) -> relay.Expr:
        """Bindings, one after another, and what they are for."""
        tokens = self._tokens
        outer = self._scopes.mark()
        bindings: list[tuple[relay.Local, relay.Expr]] = []
        while True:
            if tokens.kind is TokenKind.GRAPH and tokens.names_a_value():
                name = tokens.advance()
                tokens.expect("=")
                self._scopes.number(name, self._binary())
            elif tokens.accept("let"):
                bindings.append(self._let())
            elif tokens.accept("free_var"):
                self._free.append(self._variable())
                self._scopes.bind(self._free[-1])
            else:
                value = self._block() if tokens.at("{") else self._binary()
                if not tokens.at(";"):
                    break
                bindings.append((relay.Local("_"), value))
            tokens.expect(";")
        self._scopes.restore(outer)
        for variable, bound in reversed(bindings):
            value = relay.Let(variable, bound, value)
        return value

    def _let(self) -> tuple[relay.Local, relay.Expr]:
        variable = self._variable()
        self._tokens.expect("=")
        if self._tokens.at("fn"):  # it may call itself
            self._scopes.bind(variable)
            return variable, self._binary()
        value = self._binary()
        self._scopes.bind(variable)
        return variable, value

    def _variable(self) -> relay.Local:
        name = self._tokens.take(TokenKind.LOCAL, "a variable")[1:]
        return relay.Local(name, self._values.optional_type())

    def _block(self) -> relay.Expr:
        self._tokens.expect("{")
        body = self._body()
        self._tokens.expect("}")
        return body

    def _binary(self, loosest: int = 0) -> relay.Expr:
        tokens = self._tokens
        left = self._call()
        while tokens.at(*_INFIX):
            name, tightness = _INFIX[tokens.text]
            if tightness < loosest:
                break
            place = tokens.place(tokens.start)
            tokens.advance()
            right = self._binary(tightness + 1)
            left = relay.Call(relay.Operator(name), (left, right), completed(name, {}), place)
        return left

    def _call(self) -> relay.Expr:
        tokens, start = self._tokens, self._tokens.start
        value = self._atom()
        while True:
            if tokens.kind is TokenKind.ITEM:
                value = relay.Item(value, self._checked(integer, tokens.text[1:], tokens.start))
                tokens.advance()
            elif tokens.accept("("):
                value = self._application(value, start)
            else:
                return value

    def _application(self, callee: relay.Expr, start: int) -> relay.Expr:
        """A call whose opening bracket is passed; it began at ``start``."""
        tokens = self._tokens
        arguments: list[relay.Expr] = []
        attributes: dict[str, relay.Attribute] = {}
        for _ in tokens.until(")"):
            if tokens.kind is TokenKind.NAME and tokens.names_a_value():
                attributes = self._values.attributes()
                if isinstance(callee, relay.Operator):
                    refuse = partial(refuse_unknown, callee.name)
                    self._checked(refuse, attributes, start)
            elif tokens.begins("meta[relay.attrs."):
                attributes = self._meta_attributes()
            else:
                arguments.append(self._body())
        place = tokens.place(start)
        if isinstance(callee, relay.Operator):
            complete = partial(completed, callee.name)
            return relay.Call(
                callee, tuple(arguments), self._checked(complete, attributes, start), place
            )
        if isinstance(callee, relay.Constructor):
            if len(arguments) != callee.arity:
                tokens.fail(f"{callee.name} takes {callee.arity} values", start)
            if not arguments:
                return callee
        return relay.Call(callee, tuple(arguments), {}, place)

    def _meta_attributes(self) -> dict[str, relay.Attribute]:
        start = self._tokens.start
        value = self._values.meta()
        if not isinstance(value, Attributes):
            self._tokens.fail("attributes of an unknown class", start)
        return {name: self._checked(attribute, part, start) for name, part in value.values.items()}

    def _atom(self) -> relay.Expr:
        tokens, start = self._tokens, self._tokens.start
        if tokens.kind is TokenKind.NUMBER:
            return relay.Constant(self._checked(scalar, tokens.advance(), start))
        if tokens.kind in (TokenKind.GRAPH, TokenKind.LOCAL):
            return self._bound()
        if tokens.kind is TokenKind.GLOBAL:
            name = tokens.advance()[1:]
            self.called.setdefault(name, start)
            return relay.Global(name)
        if tokens.accept("("):
            return self._parenthesis()
        name = tokens.text
        if tokens.kind is TokenKind.NAME and name in self._keywords:
            return self._keywords[name]()
        tokens.take(TokenKind.NAME, "an expression")
        return self._constructors.get(name) or relay.Operator(name)

    def _bound(self) -> relay.Expr:
        """What a variable or a number stands for."""
        tokens = self._tokens
        if tokens.kind is TokenKind.GRAPH:
            value = self._scopes.numbered(tokens.text)
        else:
            value = self._scopes.variable(tokens.text[1:])
            if value is not None:
                tokens.shorten(1 + len(value.name))
        if value is None:
            tokens.fail(f"{tokens.text[:40]} is bound nowhere before")
        tokens.advance()
        return value

    def _parenthesis(self) -> relay.Expr:
        """A tuple, or an expression in brackets, the first of which is passed."""
        tokens = self._tokens
        fields: list[relay.Expr] = []
        is_tuple = tokens.at(")")
        while not tokens.accept(")"):
            fields.append(self._body())
            if not tokens.at(")"):
                tokens.expect(",")
                is_tuple = True
        return relay.Tuple(tuple(fields)) if is_tuple else fields[0]

    def _truth(self) -> relay.Constant:
        return relay.Constant(np.array(self._tokens.advance() == "True"))

    def _constant(self) -> relay.Constant:
        start = self._tokens.start
        value = self._values.meta()
        if not isinstance(value, relay.Constant):
            self._tokens.fail("an object of the metadata that is no tensor", start)
        return value

    def _function(self) -> relay.Function:
        self._tokens.expect("fn")
        return self._signature_and_body()

    def _signature_and_body(self) -> relay.Function:
        tokens = self._tokens
        if tokens.accept("["):
            self._values.types("]")
        tokens.expect("(")
        outer = self._scopes.mark()
        parameters: list[relay.Local] = []
        attributes: dict[str, relay.Attribute] = {}
        for _ in tokens.until(")"):
            if tokens.kind is TokenKind.NAME and tokens.names_a_value():
                attributes = self._values.attributes(lenient_attribute)
            else:
                parameters.append(self._variable())
                self._scopes.bind(parameters[-1])
        if tokens.accept("->"):
            self._values.type()
        body = self._block()
        self._scopes.restore(outer)
        return relay.Function(tuple(parameters), body, attributes)

    def _if(self) -> relay.If:
        tokens = self._tokens
        tokens.expect("if")
        tokens.expect("(")
        condition = self._body()
        tokens.expect(")")
        then = self._block()
        tokens.expect("else")
        return relay.If(condition, then, self._if() if tokens.at("if") else self._block())

    def _match(self) -> relay.Match:
        tokens = self._tokens
        tokens.expect("match")
        tokens.accept("?")
        value = self._atom()
        tokens.expect("{")
        clauses = []
        for _ in tokens.until("}"):
            outer = self._scopes.mark()
            pattern = self._pattern()
            tokens.expect("=>")
            clauses.append(relay.Clause(pattern, self._body()))
            self._scopes.restore(outer)
        return relay.Match(value, tuple(clauses))

    def _pattern(self) -> relay.Pattern:
        tokens, start = self._tokens, self._tokens.start
        if tokens.accept("_"):
            return relay.AnyPattern()
        if tokens.kind is TokenKind.LOCAL:
            variable = self._variable()
            self._scopes.bind(variable)
            return relay.LocalPattern(variable)
        if tokens.accept("("):
            return relay.TuplePattern(self._patterns())
        name = tokens.take(TokenKind.NAME, "a pattern")
        if name not in self._constructors:
            tokens.fail(f"no data type has the constructor {name[:40]}", start)
        constructor = self._constructors[name]
        fields = self._patterns() if tokens.accept("(") else ()
        if len(fields) != constructor.arity:
            tokens.fail(f"{name} takes {constructor.arity} values", start)
        return relay.ConstructorPattern(constructor, fields)

    def _patterns(self) -> tuple[relay.Pattern, ...]:
        return tuple([self._pattern() for _ in self._tokens.until(")")])

    def _operands(self, count: int) -> list[relay.Expr]:
        tokens, start = self._tokens, self._tokens.start
        name = tokens.advance()
        tokens.expect("(")
        operands = [self._body() for _ in tokens.until(")")]
        if len(operands) != count:
            tokens.fail(f"{name} takes {count} values", start)
        return operands

    def _checked(self, make: Callable[[Given], Made], given: Given, start: int) -> Made:
        """What is made of a part of the text that began at ``start``, which messages tell."""
        try:
            return make(given)
        except ValueError as error:
            self._tokens.fail(str(error), start)
