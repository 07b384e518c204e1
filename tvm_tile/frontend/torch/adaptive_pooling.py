"""Adaptive pooling: so many windows of nearly equal length as are asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tvm import relax, te, tirx

from tvm_tile.frontend.torch.convert import Converters, overloads
from tvm_tile.frontend.torch.emit import Emit, dtype_of, shape_of
from tvm_tile.frontend.torch.maxima import largest_and_where
from tvm_tile.frontend.torch.pooling import avg_pool

_HALVES = (torch.float16, torch.bfloat16)


def _adaptive_avg_pool(emit: Emit, x: relax.Expr, output_size: Sequence[int]) -> relax.Expr:
    rank = len(output_size)
    extents = shape_of(x)[-rank:]
    if all(count == 1 for count in output_size):
        lead = len(shape_of(x)) - rank
        return relax.op.mean(x, list(range(lead, lead + rank)), keepdims=True)
    if all(extent % count == 0 for extent, count in zip(extents, output_size, strict=True)):
        sizes = [extent // count for extent, count in zip(extents, output_size, strict=True)]
        return avg_pool(emit, x, sizes, sizes, [0] * rank, False, True)
    wide = "float32" if dtype_of(x) in _HALVES else str(x.ty.dtype)

    def loops(data: te.Tensor) -> te.Tensor:
        parts = _parts(extents, output_size)
        lead = len(data.shape) - rank
        along = [te.reduce_axis((0, part.longest), f"k{i}") for i, part in enumerate(parts)]
        shape = [*data.shape[:lead], *output_size]

        def body(*at: Any) -> Any:
            places, inside = _places(parts, at[lead:], [k.var for k in along])
            value = data(*at[:lead], *places).astype(wide)
            return te.sum(tirx.if_then_else(inside, value, tirx.const(0, wide)), axis=along)

        total = te.compute(shape, body, name="parts")

        def quotient(*at: Any) -> Any:
            count = math.prod(part.size(i) for part, i in zip(parts, at[lead:], strict=True))
            return (total(*at) / count.astype(wide)).astype(data.dtype)

        return te.compute(shape, quotient, name="quotients")

    return emit.te(loops, x, name="adaptive_avg_pool")


@dataclass(frozen=True, slots=True)
class _Part:
    """The parts of nearly equal length into which adaptive pooling cuts a dimension."""

    extent: int
    count: int

    def start(self, i: Any) -> Any:
        return (i * self.extent) // self.count

    def size(self, i: Any) -> Any:
        return ((i + 1) * self.extent + (self.count - 1)) // self.count - self.start(i)

    @property
    def longest(self) -> int:
        return max((self.size(i) for i in range(self.count)), default=0)


def _parts(extents: Sequence[int], counts: Sequence[int]) -> list[_Part]:
    return [_Part(extent, count) for extent, count in zip(extents, counts, strict=True)]


def _places(
    parts: Sequence[_Part], at: Sequence[Any], along: Sequence[Any]
) -> tuple[list[Any], Any]:
    """Where the elements of a part lie, and whether they belong to it; any other place is valid."""
    pairs = list(zip(parts, at, along, strict=True))
    places = [tirx.min(part.start(i) + k, part.extent - 1) for part, i, k in pairs]
    return places, tirx.all(*(k < part.size(i) for part, i, k in pairs))


def _adaptive_max_pool(
    emit: Emit, x: relax.Expr, output_size: Sequence[int]
) -> tuple[relax.Expr, relax.Expr]:
    parts = _parts(shape_of(x)[-len(output_size) :], output_size)

    def loops(data: te.Tensor) -> list[te.Tensor]:
        def elements(at: Sequence[Any], along: Sequence[Any]) -> tuple[list[Any], Any]:
            return _places(parts, at, along)

        return largest_and_where(data, [p.longest for p in parts], output_size, elements)

    both = emit.te(loops, x, name="adaptive_max_pool")
    return emit(relax.TupleGetItem(both, 0)), emit(relax.TupleGetItem(both, 1))


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    **overloads(
        _adaptive_avg_pool,
        _ATEN.adaptive_avg_pool1d.default,
        _ATEN._adaptive_avg_pool2d.default,
        _ATEN._adaptive_avg_pool3d.default,
    ),
    **overloads(
        _adaptive_max_pool,
        _ATEN.adaptive_max_pool2d.default,
        _ATEN.adaptive_max_pool3d.default,
    ),
}
