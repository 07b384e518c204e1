"""Operators that work on each element for itself."""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax

from tvm_tile.frontend.torch.convert import Converters, overloads
from tvm_tile.frontend.torch.emit import Emit

Operand = Any  # a Relax expression or a number


def _add(emit: Emit, x: relax.Expr, other: Operand, alpha: float) -> relax.Expr:
    left, right = emit.promoted(x, other)
    if alpha != 1:
        right = emit(relax.op.multiply(right, emit.operand(alpha, emit.dtype)))
    if emit.dtype == torch.bool:
        return relax.op.logical_or(left, right)
    return relax.op.add(left, right)


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    **overloads(_add, _ATEN.add.Tensor, _ATEN.add.Scalar),
}
