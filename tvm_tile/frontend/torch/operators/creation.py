"""Operators that make tensors of numbers."""

from __future__ import annotations

import torch
from tvm import relax

from tvm_tile.frontend.torch.convert import Converters
from tvm_tile.frontend.torch.emit import Emit, Refusal, constant, dtype_name
from tvm_tile.frontend.torch.weights import held


def _full_like(
    emit: Emit, x: relax.Expr, fill_value: float, dtype: torch.dtype | None
) -> relax.Expr:
    if isinstance(fill_value, complex):
        raise Refusal("complex numbers")
    # Not folded into a scalar: passes know a softmax that is guarded against empty rows by it.
    return relax.op.full_like(x, constant(fill_value, emit.dtype), dtype_name(emit.dtype))


def _filled(emit: Emit, value: float | complex) -> relax.Expr:
    if isinstance(value, complex):
        raise Refusal("complex numbers")
    return emit.full(value)


def _arange(
    emit: Emit, start: float, end: float, step: float, dtype: torch.dtype | None
) -> relax.Expr:
    """``start + i * step``; in steps of integers TVM's own, which later passes know."""
    (count,) = emit.shape
    if all(isinstance(value, int) for value in (start, end, step)) and count:
        stop = start + count * step
        numbers = emit(relax.op.arange(start, stop, step, "int64"))
        return emit.cast(numbers, emit.dtype)
    if not count:
        return emit.full(0)
    exact = torch.arange(start, end, step, dtype=emit.dtype)
    if count > _MOST_NUMBERS:
        raise Refusal(f"{count} numbers in steps that are no integers")
    return relax.const(held(exact))


_MOST_NUMBERS = 1 << 20

_ATEN = torch.ops.aten
_EMPTY = (_ATEN.empty.memory_format, _ATEN.empty_permuted.default, _ATEN.empty_strided.default)
CONVERTERS: Converters = {
    _ATEN.full.default: lambda emit, size, fill_value, dtype: _filled(emit, fill_value),
    _ATEN.full_like.default: _full_like,
    _ATEN.scalar_tensor.default: lambda emit, s, dtype: _filled(emit, s),
    # Any numbers will do.
    **dict.fromkeys(_EMPTY, lambda emit, **_: emit.full(0)),
    _ATEN.arange.start_step: _arange,
}
