"""Operators that draw random numbers; ``decompositions/random.py`` makes the others of these."""

from __future__ import annotations

import torch
from tvm import relax

from tvm_tile.frontend.torch.convert import Converters
from tvm_tile.frontend.torch.emit import Emit, Refusal, constant, dtype_name
from tvm_tile.loops.random import Draw, exponential, integers, normal, uniform


def _drawn(emit: Emit, draw: Draw) -> relax.Expr:
    if emit.draws is None:
        raise Refusal("random numbers within a loop or a branch")
    return emit.draws(emit.builder, draw)


def _exponential(emit: Emit, x: relax.Expr, lambd: float, generator: None) -> relax.Expr:
    """In float32 or float64, lest half precision make zeros or infinities of what is divided."""
    wide = emit.dtype if emit.dtype == torch.float64 else torch.float32
    drawn = _drawn(emit, exponential(emit.shape, dtype_name(wide)))
    return emit.cast(emit(relax.op.divide(drawn, constant(lambd, wide))), emit.dtype)


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    _ATEN.rand.default: lambda emit, size, dtype: _drawn(
        emit, uniform(emit.shape, dtype_name(emit.dtype))
    ),
    _ATEN.randn.default: lambda emit, size, dtype: _drawn(
        emit, normal(emit.shape, dtype_name(emit.dtype))
    ),
    _ATEN.randint.low: lambda emit, low, high, size, dtype: _drawn(
        emit, integers(emit.shape, dtype_name(emit.dtype), low, high)
    ),
    _ATEN.exponential.default: _exponential,
}
