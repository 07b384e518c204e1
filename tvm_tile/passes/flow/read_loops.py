"""Loops of a module as :mod:`tvm_tile.frontend.loops` writes them, read again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from tvm_tile.frontend.loops import COUNTED, MOST


@dataclass(frozen=True, slots=True)
class LoopForm:
    """A function that repeats another one.

    Attributes:
        is_counted: whether its first argument says how many iterations are left, and not, as a
            tensor, whether there is one.
        body: the function of an iteration.
        given: for each parameter of the body, the parameter of the loop that it is given.
        carried: for each parameter of the loop that changes, the result of the body that is next;
            the first is whether it goes on, where it is not counted.
        results: for each result of the loop, the parameter that it is when the loop ends.
        most: iterations at most, if that is known.
    """

    is_counted: bool
    body: Any
    given: tuple[int, ...]
    carried: dict[int, int]
    results: tuple[int, ...]
    most: int | None


def read_loop(mod: tvm.IRModule, function: Any) -> LoopForm | None:
    """The loop that a function of a module is; ``None`` where it is none, or of another form."""
    loop = mod[function]
    if not isinstance(loop, relax.Function) or not isinstance(loop.body, relax.SeqExpr):
        return None
    branches = _only_value(loop.body)
    is_counted = COUNTED in (loop.attrs or {})
    if not isinstance(branches, relax.If) or not loop.params:
        return None
    if not is_counted and not branches.cond.same_as(loop.params[0]):
        return None
    turn = _read_turn(branches.true_branch, function, loop.params)
    end = _value_of(branches.false_branch)
    if turn is None or not isinstance(end, relax.Tuple):
        return None
    results = [_place(loop.params, field) for field in end.fields]
    if None in results:
        return None
    body, given, following = turn
    first = 1 if is_counted else 0
    carried = {
        number: item
        for number, item in list(enumerate(following))[first:]
        if not isinstance(item, _Kept)
    }
    kept = (item for item in following[first:] if isinstance(item, _Kept))
    own = (number for number in range(first, len(following)) if number not in carried)
    if any(item.parameter != number for item, number in zip(kept, own, strict=True)):
        return None
    places = tuple(place for place in results if place is not None)
    most = (loop.attrs or {}).get(MOST)
    return LoopForm(is_counted, body, given, carried, places, None if most is None else int(most))


@dataclass(frozen=True, slots=True)
class _Kept:
    """An argument that is a parameter of the function."""

    parameter: int


def _read_turn(
    sequence: Any, function: Any, params: Any
) -> tuple[Any, tuple[int, ...], list[int | _Kept]] | None:
    """An iteration: the function that it calls, with which parameters, and the next arguments."""
    bindings = [binding for block in sequence.blocks for binding in block.bindings]
    values = {binding.var: binding.value for binding in bindings}
    calls = [
        (binding.var, binding.value)
        for binding in bindings
        if isinstance(binding.value, relax.Call) and isinstance(binding.value.op, tvm.ir.GlobalVar)
    ]
    if len(calls) != 2 or not calls[1][1].op.same_as(function) or calls[0][1].op.same_as(function):
        return None
    (made, body), (_, again) = calls
    given = [_place(params, argument) for argument in body.args]

    def following(argument: Any) -> int | _Kept | None:
        value = values.get(argument) if isinstance(argument, relax.Var) else None
        if isinstance(value, relax.TupleGetItem) and value.tuple_value.same_as(made):
            return int(value.index)
        place = _place(params, argument)
        return None if place is None else _Kept(place)

    counted = [] if isinstance(again.args[0], relax.Var) else [_Kept(0)]
    rest = [following(argument) for argument in again.args[len(counted) :]]
    if None in given or None in rest:
        return None
    places = tuple(place for place in given if place is not None)
    return body.op, places, [*counted, *(item for item in rest if item is not None)]


def _place(params: Any, value: Any) -> int | None:
    """Position of a value among parameters; ``None`` where it is none of them."""
    return next((n for n, param in enumerate(params) if value.same_as(param)), None)


def _only_value(sequence: Any) -> Any | None:
    """The value of a sequence that binds nothing else."""
    bindings = [binding for block in sequence.blocks for binding in block.bindings]
    is_only = len(bindings) == 1 and bindings[0].var.same_as(sequence.body)
    return bindings[0].value if is_only else None


def _value_of(sequence: Any) -> Any:
    """The value of a sequence."""
    if not isinstance(sequence, relax.SeqExpr):
        return sequence
    bindings = [binding for block in sequence.blocks for binding in block.bindings]
    found = sequence.body
    for binding in reversed(bindings):
        if binding.var.same_as(found):
            found = binding.value
    return found
