"""A module's functions, each as something makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

import tvm
from tvm import relax, tirx

from tvm_tile.graph.arrays import items_of


def is_tensor(param: Any) -> bool:
    """Whether a parameter of a PrimFunc is a tensor, not a number such as an open extent."""
    return hasattr(param.ty, "shape")


def relax_functions(mod: tvm.IRModule) -> dict[Any, relax.Function]:
    """The Relax functions of a module, by their variables."""
    return {var: func for var, func in mod.functions_items() if isinstance(func, relax.Function)}


def expressions_in(tree: Any, *kinds: Any) -> list[Any]:
    """The expressions of some kinds in one, or in all Relax functions of a module; what an
    expression is made of is ahead of it."""
    found: list[Any] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, kinds):
            found.append(expr)

    for own in relax_functions(tree).values() if isinstance(tree, tvm.IRModule) else (tree,):
        relax.analysis.post_order_visit(own, visit)
    return found


def calls_in(tree: Any) -> list[relax.Call]:
    """The calls in a function or its body, or in all Relax functions of a module, in order.

    They are in normal form: each call is the value of a variable.
    """
    if isinstance(tree, tvm.IRModule):
        return [call for func in relax_functions(tree).values() for call in calls_in(func)]
    found: list[relax.Call] = []
    for _, value in bindings_of(tree.body if isinstance(tree, relax.Function) else tree):
        if isinstance(value, relax.Call):
            found.append(value)
        elif isinstance(value, relax.Function):
            found += calls_in(value)
    return found


def bindings_of(body: relax.SeqExpr) -> Iterator[tuple[Any, Any]]:
    """Variables and what they are bound to, in order, those within branches included."""
    for block in items_of(body.blocks):
        for binding in items_of(block.bindings):
            value = binding.value
            if isinstance(value, relax.If):
                yield from bindings_of(value.true_branch)
                yield from bindings_of(value.false_branch)
            yield binding.var, value


def with_values(func: relax.Function, values: dict[int, Any]) -> relax.Function:
    """A function some of whose variables are bound to others of the same types.

    Args:
        func: the function.
        values: handle of a variable -> what it is bound to; those of branches are added that are
            not as before.
    """
    body = _with_values(func.body, values)
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)


def _with_values(body: relax.SeqExpr, values: dict[int, Any]) -> relax.SeqExpr:
    blocks = [
        type(block)([_bound(binding, values) for binding in items_of(block.bindings)])
        for block in items_of(body.blocks)
    ]
    renewed = relax.SeqExpr(blocks, body.body)
    relax.expr._update_type(renewed, body.ty)
    return renewed


def _bound(binding: Any, values: dict[int, Any]) -> Any:
    """A binding to what its variable is to be bound to."""
    value, key = binding.value, binding.var.__chandle__()
    if isinstance(value, relax.If):
        both = value.true_branch, value.false_branch
        values[key] = relax.If(value.cond, *(_with_values(branch, values) for branch in both))
        relax.expr._update_type(values[key], value.ty)
    if key not in values:
        return binding
    if isinstance(binding, relax.MatchCast):
        return relax.MatchCast(binding.var, values[key], binding.ty)
    return relax.VarBinding(binding.var, values[key])


def with_prim_funcs(
    mod: tvm.IRModule, change: Callable[[tirx.PrimFunc], tirx.PrimFunc]
) -> tvm.IRModule:
    """A copy of ``mod`` with every PrimFunc as ``change`` gives it back."""
    return _changed(mod, tirx.PrimFunc, change)


def with_relax_functions(
    mod: tvm.IRModule, change: Callable[[relax.Function], relax.Function]
) -> tvm.IRModule:
    """A copy of ``mod`` with every Relax function as ``change`` gives it back."""
    return _changed(mod, relax.Function, change)


def mutated(mod: tvm.IRModule, mutator: Any) -> tvm.IRModule:
    """``mod`` with every Relax function rewritten by a mutator that was made for this module.

    TVM's mutators rewrite one expression.
    """
    for var, func in relax_functions(mod).items():
        mutator.builder_.update_func(var, mutator.visit_expr(func))
    return mutator.builder_.get()


def global_vars(expr: relax.Expr) -> list[Any]:
    """The functions that a function or a part of it names, whether called or handed on."""
    return list(relax.analysis.all_global_vars(expr))


def calls_of(mod: tvm.IRModule) -> dict[Any, set[Any]]:
    """Functions that each Relax function of a module names."""
    return {var: set(global_vars(func)) for var, func in relax_functions(mod).items()}


def reached(var: Any, calls: Mapping[Any, Set[Any]], without: Set[Any] = frozenset()) -> set[Any]:
    """The functions that a function calls, and those that these call, but for what some call.

    Args:
        var: the function.
        calls: calls of each function of a module, as :func:`calls_of` tells them.
        without: functions behind which nobody looks.
    """
    found: set[Any] = set()
    waiting = list(calls.get(var, ()))
    while waiting:
        called = waiting.pop()
        if called not in found and called not in without:
            found.add(called)
            waiting += calls.get(called, ())
    return found


def recursive_functions(mod: tvm.IRModule) -> list[Any]:
    """The functions that call themselves, by others or not."""
    calls = calls_of(mod)
    return [var for var in calls if var in reached(var, calls)]


def entries(mod: tvm.IRModule) -> list[tuple[Any, relax.Function]]:
    """The Relax functions that no function of the module names: those that callers call."""
    calls = calls_of(mod)
    named = set().union(*calls.values())
    return [(var, mod[var]) for var in calls if var not in named]


def is_called(mod: tvm.IRModule, name: str) -> bool:
    """Whether a Relax function of a module names the one of this name."""
    return any(str(var.name_hint) == name for own in calls_of(mod).values() for var in own)


def _changed(mod: tvm.IRModule, kind: type, change: Callable[[Any], Any]) -> tvm.IRModule:
    """The module with each function of a kind as ``change`` makes it."""
    result = mod.clone()
    for var, func in mod.functions_items():
        changed = change(func) if isinstance(func, kind) else func
        if not changed.same_as(func):
            result[var] = changed
    return result
