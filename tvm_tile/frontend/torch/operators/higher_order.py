"""PyTorch's functions of functions: branches, and loops of all kinds.

A converter takes the builder, a name, and the node's arguments, in which functions are
:class:`Traced`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tvm import relax
from tvm.relax import op

from tvm_tile.frontend.loops import (
    Values,
    either,
    fields_of,
    repeat,
    repeat_while,
    written,
)
from tvm_tile.frontend.scan import scan
from tvm_tile.frontend.torch.emit import Refusal, shape_of
from tvm_tile.frontend.trips import known_trips

_OPS = torch.ops.higher_order
Arguments = Sequence[Any]  # Relax values, and Python's numbers


@dataclass(frozen=True, slots=True)
class TracedFunction:
    """A function that PyTorch has traced.

    Attributes:
        write: writes what it computes into the function that is being written.
        operators: how many it has.
    """

    write: Callable[[Arguments], Values]
    operators: int

    def __call__(self, *arguments: Any) -> Values:
        """Write the function's results for some arguments into the function at hand."""
        return self.write(arguments)


def _cond(
    builder: relax.BlockBuilder,
    name: str,
    condition: relax.Expr,
    then: TracedFunction,
    otherwise: TracedFunction,
    operands: Arguments,
) -> Values:
    """A function for each branch, and which of them is called."""
    tensors, whole = _apart(operands)

    def side(graph: TracedFunction, label: str) -> Callable[[], relax.Call]:
        function = written(builder, f"{name}_{label}", tensors, lambda own: graph(*whole(own)))
        return lambda: relax.Call(function, tensors)

    sides = side(then, "then"), side(otherwise, "otherwise")
    return fields_of(builder, either(builder, _scalar(builder, condition), *sides))


def _while_loop(
    builder: relax.BlockBuilder,
    name: str,
    condition: TracedFunction,
    body: TracedFunction,
    carried: Arguments,
    additional: Arguments = (),
) -> Values:
    state = _tensors(carried)
    fixed, whole = _apart(additional)
    count = len(state)

    def goes_on(values: Arguments) -> relax.Expr:
        (found,) = condition(*values)
        return _scalar(builder, found)

    def uncounted(own: Values) -> Values:
        return [builder.emit(value) for value in body(*own[:count], *whole(own[count:]))]

    def iteration(own: Values) -> Values:
        new = uncounted(own)
        return [goes_on([*new, *whole(own[count:])]), *new]

    once = written(builder, f"{name}_body", [*state, *fixed], iteration)
    trips = known_trips(builder.get()[once], state, builder.lookup_binding)
    if trips is not None and trips.is_exact:
        turn = written(builder, f"{name}_turn", [*state, *fixed], uncounted)
        return repeat(builder, name, trips.most, turn, state, fixed)
    first = builder.emit(goes_on([*state, *whole(fixed)]))
    return repeat_while(builder, name, once, [first, *state], fixed)


def _scan(
    builder: relax.BlockBuilder,
    name: str,
    combine: TracedFunction,
    init: Arguments,
    xs: Arguments,
    additional: Arguments = (),
) -> Values:
    state, tensors = _tensors(init), _tensors(xs)
    fixed, whole = _apart(additional)

    def iteration(own: Values, rows: Values, inner: Values) -> tuple[Values, Values]:
        made = combine(*own, *rows, *whole(inner))
        return made[: len(own)], made[len(own) :]

    values = state, tensors, fixed
    count = shape_of(tensors[0])[0]
    ended, made = scan(builder, name, count, values, iteration, operators=combine.operators)
    return [*ended, *made]


def _associative_scan(
    builder: relax.BlockBuilder,
    name: str,
    combine: TracedFunction,
    xs: Arguments,
    additional: Arguments = (),
) -> Values:
    """From the first row to the last: combining in this order is one of those that are allowed."""
    tensors = _tensors(xs)
    count = shape_of(tensors[0])[0]
    if count < 2:
        return tensors
    first = [builder.emit(op.strided_slice(x, [0], [0], [1])) for x in tensors]
    others = [builder.emit(op.strided_slice(x, [0], [1], [count])) for x in tensors]
    state = [builder.emit(op.squeeze(row, [0])) for row in first]
    fixed, whole = _apart(additional)

    def iteration(own: Values, rows: Values, inner: Values) -> tuple[Values, Values]:
        made = [builder.emit(value) for value in combine(*own, *rows, *whole(inner))]
        return made, made

    values = state, others, fixed
    _, made = scan(builder, name, count - 1, values, iteration, operators=combine.operators)
    pairs = zip(first, made, strict=True)
    return [builder.emit(op.concat([head, rows], 0)) for head, rows in pairs]


def _tensors(values: Arguments) -> Values:
    """What is carried, or read row by row."""
    numbers = [value for value in values if not isinstance(value, relax.Expr)]
    if numbers:
        raise Refusal(f"a loop over what is no tensor: {numbers[0]!r}")
    return list(values)


def _apart(values: Arguments) -> tuple[Values, Callable[[Values], list[Any]]]:
    """The tensors among some values, and all of them with others in place of these."""
    tensors = [value for value in values if isinstance(value, relax.Expr)]

    def whole(others: Values) -> list[Any]:
        left = iter(others)
        return [next(left) if isinstance(value, relax.Expr) else value for value in values]

    return tensors, whole


def _scalar(builder: relax.BlockBuilder, condition: Any) -> relax.Expr:
    """A condition of rank 0."""
    if not isinstance(condition, relax.Expr):
        raise Refusal("a condition that is no tensor")
    return builder.emit(op.reshape(condition, ())) if condition.ty.ndim else condition


HIGHER_ORDER: dict[Any, Callable[..., Values]] = {
    _OPS.cond: _cond,
    _OPS.while_loop: _while_loop,
    _OPS.scan: _scan,
    _OPS.map_impl: lambda builder, name, function, xs, others: _scan(
        builder, name, function, [], xs, others
    ),
    _OPS.invoke_subgraph: lambda builder, name, function, _, *operands: function(*operands),
    _OPS.associative_scan: _associative_scan,
}
"""Converters of operators that take functions."""
