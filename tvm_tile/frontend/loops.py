"""Loops of a model: private functions that end with a call of themselves.

Whatever a format calls a loop becomes this, which every pass sees as functions, and which is a jump
in the end (:mod:`tvm_tile.build.tail_calls`)::

    body(carried..., fixed...) = new values of what is carried
    loop(goes_on, carried..., fixed...) =
        if goes_on: new_goes_on, new... = body(carried..., fixed...)
                    loop(new_goes_on, new..., fixed...)
        else: carried...

A counted loop has, instead of the tensor ``goes_on``, an integer of the host's that it counts down:
nobody has to wait for a device to know whether it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import ir, relax, tirx

from tvm_tile.frontend.trips import known_trips

Value = Any  # a Relax expression of a known type
Values = list[Value]
Write = Callable[[Values], Values]

COUNTED = "tvm_tile.counted_loop"
"""Attribute of the function of a loop whose first parameter says how many iterations are left."""

MOST = "tvm_tile.most_iterations"
"""Attribute of the function of any other loop: its iterations at most, where that is known."""

_OWN = "tvm_tile.own"


FOR_KERNEL = "tvm_tile.for_kernel"
"""Attribute of the function of a loop that would be written out, could no kernel hold it."""


def repeat_while(
    builder: relax.BlockBuilder, name: str, body: Any, state: Values, fixed: Values
) -> Values:
    """Write a loop that goes on as long as the data say; if a count bounds it, it knows that.

    Args:
        builder: within the function that has the loop.
        name: of the loop's function.
        body: the function of an iteration, from :func:`written`: of what is carried and of what is
            fixed whether the loop goes on, then new values, all of the types of ``state``.
        state: whether it is to begin, a bool of rank 0, then the first values of what is carried.
        fixed: what iterations read and do not change.

    Returns:
        The last values of what is carried.

    Raises:
        ValueError: an iteration changes the type of what is carried.
    """
    _require_kept(builder, body, state)
    trips = known_trips(builder.get()[body], state[1:], builder.lookup_binding)
    return _loop(builder, name, body, state, fixed, {MOST: trips.most} if trips else {})


def repeat(
    builder: relax.BlockBuilder,
    name: str,
    count: int,
    body: Any,
    state: Values,
    fixed: Values,
    *,
    for_kernel: bool = False,
) -> Values:
    """Write a loop of ``count`` iterations; all else is as of :func:`repeat_while`.

    Neither ``state`` nor what ``body`` returns has a value that says whether it goes on. Whoever
    wants it ``for_kernel`` writes its iterations out where it is in none.
    """
    _require_kept(builder, body, state)
    state = [tirx.IntImm("int64", count), *state]
    kind = {COUNTED: True, FOR_KERNEL: True} if for_kernel else {COUNTED: True}
    return _loop(builder, name, body, state, fixed, kind)


def wants_kernel(func: Any) -> bool:
    """Whether a function is a loop that is better written out than run by the host."""
    return isinstance(func, relax.Function) and FOR_KERNEL in (func.attrs or {})


def _require_kept(builder: relax.BlockBuilder, body: Any, state: Values) -> None:
    for own, new in zip(state, body.ty.ret.fields, strict=True):
        if not is_same_type(own.ty, new):
            raise ValueError(f"a loop's value changes from {own.ty} to {new}")


def written(builder: relax.BlockBuilder, name: str, values: Values, write: Write) -> Any:
    """Write a private function of parameters like some values.

    Args:
        builder: may have functions open.
        name: of the function.
        values: its parameters have the types of these.
        write: makes the values of its tuple from the parameters.

    Returns:
        What stands for it in calls.
    """
    parameters = parameters_like(values)
    with builder.function(name, parameters, unshared(builder), private=True):
        made = builder.emit(relax.Tuple(list(map(builder.normalize, write(parameters)))))
        return builder.emit_func_output(made)


def unshared(builder: relax.BlockBuilder) -> dict[str, str]:
    """Attributes of a function that no other one has: a builder takes equal functions for one.

    Two layers whose loops have equal bodies would then share one, which could have neither the
    weights of the one nor of the other as constants, nor the names of both.
    """
    return {_OWN: builder.get_unique_name("own")}


def parameters_like(values: Values) -> list[relax.Var]:
    """A variable of each value's type."""
    return [relax.Var(f"p{number}", value.ty) for number, value in enumerate(values)]


def is_same_type(one: Any, other: Any) -> bool:
    """Whether types are those of tensors of the same extents and element types."""
    return [*one.shape] == [*other.shape] and one.dtype == other.dtype


def called(builder: relax.BlockBuilder, function: Any, arguments: Sequence[Value]) -> Values:
    """Call a function that returns a tuple, and take that apart."""
    return fields_of(builder, builder.emit(relax.Call(function, list(arguments))))


def fields_of(builder: relax.BlockBuilder, value: Value) -> Values:
    """The fields of a tuple, each bound to a variable."""
    return [builder.emit(relax.TupleGetItem(value, n)) for n in range(len(value.ty.fields))]


def either(
    builder: relax.BlockBuilder,
    condition: Value,
    then: Callable[[], Value],
    otherwise: Callable[[], Value],
) -> Value:
    """What ``then`` writes where a condition holds, else what ``otherwise`` does; the side that is
    not taken is not computed.

    The builder must not be in a dataflow block.
    """
    sides = []
    for write in (then, otherwise):
        builder._begin_binding_block()
        try:
            result = builder.normalize(write())
        finally:
            block = builder._end_block()
        sides.append(relax.SeqExpr([block] if block.bindings else [], result))
    return builder.emit(relax.If(condition, *sides))


def _loop(
    builder: relax.BlockBuilder,
    name: str,
    body: Any,
    state: Values,
    fixed: Values,
    attributes: Mapping[str, Any],
) -> Values:
    """Write the function that calls itself, and its first call.

    The first of ``state`` says whether the loop goes on, or how many iterations are left.
    """
    parameters = parameters_like([*state, *fixed])
    head, *own = parameters[: len(state)]
    inner = parameters[len(state) :]
    is_counted = isinstance(head.ty, ir.PrimType)
    result = relax.TupleType([value.ty for value in own])
    function = ir.GlobalVar(builder.get_unique_name(name))
    relax.expr._update_type(function, relax.FuncType([p.ty for p in parameters], result))

    def again() -> Value:
        made = called(builder, body, [*own, *inner])
        new = [head - 1, *made] if is_counted else made
        return builder.emit(relax.Call(function, [*new, *inner]))

    builder.begin_scope(parameters)
    builder._begin_binding_block()
    goes_on = head > 0 if is_counted else head
    end = either(builder, goes_on, again, lambda: relax.Tuple(own))
    sequence = builder.normalize(relax.SeqExpr([builder._end_block()], end))
    builder.end_scope()
    func = relax.Function(parameters, sequence, result)
    for key, value in attributes.items():
        func = func.with_attr(key, value)
    builder.update_func(function, func)
    return called(builder, function, [*state, *fixed])
