"""Which transpositions of a model are those of weights, as linear layers have them."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

_MATRIX = 2  # dimensions


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
    if not _is_call(value, "relax.permute_dims"):
        return None
    source = value.args[0]
    rank = source.ty.ndim
    order = [*range(rank - 2), rank - 1, rank - 2]
    axes = list(reversed(range(rank))) if value.attrs.axes is None else list(value.attrs.axes)
    return source if [int(axis) % rank for axis in axes] == order else None


def is_product(value: Any) -> bool:
    """Whether it multiplies rows with a matrix."""
    if not _is_call(value, "relax.matmul"):
        return False
    return value.args[0].ty.ndim >= _MATRIX and value.args[1].ty.ndim == _MATRIX


def _is_call(value: Any, name: str) -> bool:
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") == name
