"""How products read weights: transposed, as linear layers have them, or looked up among others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

_MATRIX = 2  # dimensions
_STACK = 3  # dimensions of matrices that are looked up


@dataclass(frozen=True, slots=True)
class ReadWeights:
    """How a product reads an operand that it has behind transpositions, or behind a look-up.

    Attributes:
        weights: a matrix or, where it is looked up, a stack of matrices: (matrices, ., .).
        is_turned: whether the product takes matrices with their axes exchanged.
        ids: number of each product's own matrix, (products,); ``None`` where all have the same.
        side: place of the operand: 0 for the left one, else 1.
    """

    weights: Any
    is_turned: bool
    ids: Any | None
    side: int

    @property
    def is_by_depth(self) -> bool:
        """Whether what is summed up lies along the last axis of the weights."""
        return self.is_turned == (self.side == 1)


def reading_of(operand: Any, side: int, made: Callable[[Any], Any]) -> ReadWeights:
    """How a product reads an operand.

    before: ``own = take(w, ids, axis=0); y = matmul(x, permute_dims(own))``
    found:  ``w``, turned, with ``ids``

    Args:
        operand: the operand.
        side: its place.
        made: a variable -> what it is bound to.
    """
    source = transposition_source(made(operand))
    is_turned = source is not None
    weights, ids = source if is_turned else operand, None
    call = made(weights)
    if is_lookup(call):
        weights, ids = call.args
        source = transposition_source(made(weights))
        if source is not None:
            weights, is_turned = source, not is_turned
    return ReadWeights(weights, is_turned, ids, side)


def weights_of(value: Any, made: Callable[[Any], Any]) -> ReadWeights | None:
    """How a product reads its weights: a matrix on its right, or matrices that are looked up on one
    of its sides; ``None`` of anything else.

    Args:
        value: any expression.
        made: a variable -> what it is bound to.
    """
    if is_product(value):
        return reading_of(value.args[1], 1, made)
    if not is_call(value, "relax.matmul") or any(own.ty.ndim != _STACK for own in value.args):
        return None
    both = [reading_of(operand, side, made) for side, operand in enumerate(value.args)]
    found = [own for own in both if own.ids is not None]
    return found[0] if len(found) == 1 else None


def is_lookup(value: Any) -> bool:
    """Whether it looks matrices up among others, by numbers in a row."""
    if not is_call(value, "relax.take") or value.args[0].ty.ndim != _STACK:
        return False
    axis, mode = value.attrs.axis, str(value.attrs.mode)
    is_first = axis is not None and int(axis) == 0
    return is_first and value.args[1].ty.ndim == 1 and mode in ("clip", "fast")


def transposed_weights(mod: tvm.IRModule) -> set[Any]:
    """Calls that transpose a matrix of floating-point numbers for products, and nothing else.

    Products have it as their second operand: ``wt = permute_dims(w); y = matmul(x, wt)``.
    """
    found: set[Any] = set()
    for func in mod.functions.values():
        if isinstance(func, relax.Function) and isinstance(func.body, relax.SeqExpr):
            found |= _within(func.body)
    return found


def _within(body: relax.SeqExpr) -> set[Any]:
    made: dict[Any, relax.Call] = {}
    read = set(relax.analysis.free_vars(body.body))  # by others than products
    for block in body.blocks:
        for binding in block.bindings:
            value = binding.value
            if is_transposition(value):
                made[binding.var] = value
            others = value.args[0] if is_product(value) else value
            read.update(relax.analysis.free_vars(others))
    return {call for var, call in made.items() if var not in read}


def is_transposition(value: Any) -> bool:
    """Whether it exchanges the axes of a matrix of floating-point numbers."""
    source = transposition_source(value)
    is_matrix = source is not None and source.ty.ndim == _MATRIX
    return is_matrix and "float" in str(source.ty.dtype)


def transposition_source(value: Any) -> Any:
    """What a value is the transposition of, its last two axes exchanged; ``None`` of others."""
    if not is_call(value, "relax.permute_dims"):
        return None
    source = value.args[0]
    rank = source.ty.ndim
    order = [*range(rank - 2), rank - 1, rank - 2]
    axes = list(reversed(range(rank))) if value.attrs.axes is None else list(value.attrs.axes)
    return source if [int(axis) % rank for axis in axes] == order else None


def is_product(value: Any) -> bool:
    """Whether it multiplies rows with a matrix."""
    if not is_call(value, "relax.matmul"):
        return False
    return value.args[0].ty.ndim >= _MATRIX and value.args[1].ty.ndim == _MATRIX


def is_call(value: Any, name: str) -> bool:
    """Whether an expression is a call of an operator."""
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") == name
