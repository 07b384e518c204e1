"""Walks over Relay expressions that do not recurse. Knows no TVM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from tvm_tile.frontend.relay import program as relay


def children(expr: relay.Expr) -> tuple[relay.Expr, ...]:
    """The expressions that an expression holds, variables that it binds among them."""
    if isinstance(expr, relay.Match):
        return (expr.value, *(clause.body for clause in expr.clauses))
    held = (getattr(expr, one.name) for one in fields(expr))
    parts = (part for value in held for part in (value if isinstance(value, tuple) else (value,)))
    return tuple(part for part in parts if isinstance(part, relay.Expr))


def expressions(root: relay.Expr) -> Iterator[relay.Expr]:
    """Every expression within one, each once, the outer ones first."""
    seen = {id(root)}
    todo = [root]
    while todo:
        expr = todo.pop()
        yield expr
        for child in reversed(children(expr)):
            if id(child) not in seen:
                seen.add(id(child))
                todo.append(child)


def free_variables(function: relay.Function) -> list[relay.Local]:
    """The variables that a function uses and does not bind."""
    bound: set[int] = set()
    used: dict[int, relay.Local] = {}
    for expr in expressions(function):
        match expr:
            case relay.Local():
                used[id(expr)] = expr
            case relay.Function():
                bound.update(map(id, expr.parameters))
            case relay.Let():
                bound.add(id(expr.variable))
            case relay.Match():
                for clause in expr.clauses:
                    bound.update(map(id, variables_of(clause.pattern)))
    return [variable for number, variable in used.items() if number not in bound]


def variables_of(pattern: relay.Pattern) -> list[relay.Local]:
    """The variables that a pattern binds."""
    match pattern:
        case relay.LocalPattern():
            return [pattern.variable]
        case relay.TuplePattern() | relay.ConstructorPattern():
            return [variable for inner in pattern.fields for variable in variables_of(inner)]
    return []


def operators_within(program: relay.Program) -> dict[str, str]:
    """The operators that ``main`` and what it calls use, and where one of them stands."""
    found: dict[str, str] = {}
    names = ["main"]
    for name in names:  # grows on the way
        function = program.functions.get(name)
        for expr in expressions(function) if function is not None else ():
            if isinstance(expr, relay.Global) and expr.name not in names:
                names.append(expr.name)
            elif isinstance(expr, relay.Operator):
                found.setdefault(expr.name, "")
            elif isinstance(expr, relay.Call) and isinstance(expr.callee, relay.Operator):
                found[expr.callee.name] = found.get(expr.callee.name) or expr.place
    return found
