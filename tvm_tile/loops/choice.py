"""Choices by truth values, as they are: ``y[i] = a[i] if condition[i] else b[i]``.

TVM's loops ask whether a truth value, cast to an integer, is not zero. Vectors of such comparisons
are beyond its simplifier, and the kernel does not build.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx

from tvm_tile.loops.rows import number


def choice(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Write ``relax.where`` as loops."""
    shape = list(call.ty.shape)

    def loops(*operands: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            return tirx.Select(*(own(*_index(own, shape, at)) for own in operands))

        return te.compute(shape, element, name="where")

    return builder.call_te(loops, *call.args, primfunc_name_hint="where")


def _index(tensor: te.Tensor, shape: Sequence[Any], at: Sequence[Any]) -> list[Any]:
    """The index of a tensor that is broadcast to a shape. Where it is not, the loops' own variable
    tells TVM's fusion that elements stay where they are."""
    first = len(shape) - len(tensor.shape)
    triples = zip(tensor.shape, shape[first:], at[first:], strict=True)
    return [
        number(0) if _is_one(own) and not _is_one(whole) else index for own, whole, index in triples
    ]


def _is_one(extent: Any) -> bool:
    """Whether an extent is known to be 1."""
    return isinstance(extent, tirx.IntImm) and int(extent) == 1
