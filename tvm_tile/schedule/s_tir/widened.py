"""Numbers of eight bits that threads load as vectors: they become wider four at a time, too.

Before → after, where everything that is read of ``own`` is cast to float32::

    for v in vectorized(8): own[v] = A[place + v]

    for v in vectorized(8): own[v] = A[place + v]
    for u in unrolled(2):  for v in vectorized(4): wide[u * 4 + v] = float32(own[u * 4 + v])

NVIDIA's processors convert pairs. Cast where it is used, each number has an instruction of its own,
and one more that moves it to where that looks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import SBlock, SBlockRealize

from tvm_tile.device.device import Device
from tvm_tile.graph.expression import substituted
from tvm_tile.graph.extract import nodes_in
from tvm_tile.schedule.s_tir.steps import element, loop, replace_parts

_FLOATS = ("float8_e4m3fn", "float8_e5m2")
_TOGETHER = 4


def with_wide_numbers(func: tirx.PrimFunc, device: Device) -> tirx.PrimFunc:
    """``func``, scheduled for a device, with its vectors of eight-bit floats as above, in CUDA."""
    if device.kernel_language != "cuda":
        return func
    for buffer in _narrow_buffers(func):
        func = _Widening.of(buffer, func).applied(func)
    return func


def _narrow_buffers(func: tirx.PrimFunc) -> list[Any]:
    """Registers for eight-bit floats, all of which one vectorized loop fills and float32 reads."""
    casts = [node.value for node in nodes_in(func.body, tirx.Cast) if node.ty.dtype == "float32"]
    loads = nodes_in(func.body, ir.TensorLoad)
    found = []
    for block in nodes_in(func.body, SBlock):
        for buffer in block.alloc_buffers:
            own = [load for load in loads if load.source.same_as(buffer)]
            is_narrow = str(buffer.ty.dtype) in _FLOATS and buffer.scope() == "local"
            is_cast = all(any(load.same_as(cast) for cast in casts) for load in own)
            if is_narrow and own and is_cast and len(_fills(func, buffer)) == 1:
                found.append(buffer)
    return found


def _fills(func: tirx.PrimFunc, buffer: Any) -> list[tirx.For]:
    """The loops over vectors that fill a buffer."""
    found = []
    for own in nodes_in(func.body, tirx.For):
        if own.kind == tirx.ForKind.VECTORIZED and isinstance(own.body, SBlockRealize):
            block = own.body.block
            stores = isinstance(block.body, tirx.BufferStore) and block.body.buffer.same_as(buffer)
            if stores and int(own.extent) % _TOGETHER == 0:
                found.append(own)
    return found


@dataclass(frozen=True, slots=True)
class _Widening:
    """A buffer that is filled in vectors, and what takes its place.

    Attributes:
        narrow: the buffer.
        wide: registers of float32 for the same numbers.
        fill: the loop over vectors.
    """

    narrow: Any
    wide: Any
    fill: tirx.For

    @classmethod
    def of(cls, buffer: Any, func: tirx.PrimFunc) -> _Widening:
        """Room for the numbers of a buffer as float32."""
        name, shape = f"{buffer.name}_wide", list(buffer.ty.shape)
        wide = tirx.decl_buffer(shape, "float32", name, scope="local")
        return cls(buffer, wide, _fills(func, buffer)[0])

    def applied(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """The function whose numbers are wide where they are read."""

        def cast(node: tirx.Cast) -> Any:
            load = node.value
            if not isinstance(load, ir.TensorLoad) or not load.source.same_as(self.narrow):
                return node
            return tirx.BufferLoad(self.wide, list(load.indices))

        def block(own: SBlock) -> SBlock:
            buffers = list(own.alloc_buffers)
            if any(buffer.same_as(self.narrow) for buffer in buffers):
                buffers.append(self.wide)
            reads = [self._region(region) for region in own.reads]
            return replace_parts(own, reads=reads, alloc_buffers=buffers)

        def filled(own: tirx.For) -> Any:
            is_fill = own.loop_var.same_as(self.fill.loop_var)
            return tirx.SeqStmt([own, self._conversion()]) if is_fill else own

        body = tvm_ffi.structural_map(func.body, (tirx.Cast, cast), order="post")
        body = tvm_ffi.structural_map(body, (SBlock, block), order="post")
        return func.with_body(tvm_ffi.structural_map(body, (tirx.For, filled), order="post"))

    def _region(self, region: Any) -> Any:
        """A region that a block reads, of the numbers where they are wide."""
        is_own = region.source.same_as(self.narrow)
        return tirx.BufferRegion(self.wide, list(region.region)) if is_own else region

    def _conversion(self) -> Any:
        """The loops that make all numbers of a vector wide."""
        realize, var = self.fill.body, self.fill.loop_var
        outer, inner = tirx.Var("part", var.ty.dtype), tirx.Var("lane", var.ty.dtype)
        place = {var: outer * tirx.const(_TOGETHER, str(var.ty.dtype)) + inner}
        values = [substituted(value, place) for value in realize.iter_values]
        block = self._block(realize.block)
        guard = substituted(realize.predicate, place)
        lanes = loop(inner, _TOGETHER, tirx.ForKind.VECTORIZED, SBlockRealize(values, guard, block))
        count = int(self.fill.extent) // _TOGETHER
        return loop(outer, count, tirx.ForKind.UNROLLED, lanes)

    def _block(self, fill: SBlock) -> SBlock:
        """The block that makes one number wide, with variables of its own."""
        own = [tirx.Var(str(v.var.name), v.var.ty.dtype) for v in fill.iter_vars]
        pairs = list(zip(fill.iter_vars, own, strict=True))
        axes = [tirx.IterVar(v.dom, var, v.iter_type) for v, var in pairs]
        names = {v.var: var for v, var in pairs}
        indices: Sequence[Any] = [substituted(i, names) for i in fill.body.indices]
        value = tirx.Cast("float32", tirx.BufferLoad(self.narrow, indices))
        store = tirx.BufferStore(self.wide, value, indices)
        reads, writes = ([element(b, indices)] for b in (self.narrow, self.wide))
        return SBlock(axes, reads, writes, f"{fill.name_hint}_wide", store)
