"""Maxima of nothing are minus infinity: TVM starts them at the lowest finite number."""

from __future__ import annotations

import math
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock

from tvm_tile.graph.expression import is_load_of
from tvm_tile.graph.functions import with_prim_funcs
from tvm_tile.registered import register_extrema
from tvm_tile.schedule.s_tir.steps import replace_parts

_STARTS = {tirx.Max: (tirx.min_value, -math.inf), tirx.Min: (tirx.max_value, math.inf)}


@tvm.transform.module_pass(opt_level=0, name="InfiniteExtrema")
@dataclass(frozen=True, slots=True)
class InfiniteExtrema:
    """Start maxima and minima of floating-point numbers at infinities, as frameworks do.

    before: ``init: M[i] = -3.4e38;  M[i] = max(M[i], A[i, k])``
    after:  ``init: M[i] = -inf;     M[i] = max(M[i], A[i, k])``

    A maximum of nothing but -inf would otherwise be finite.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        register_extrema()
        return with_prim_funcs(mod, _started)


def _started(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with its extrema started at infinities."""
    return tvm_ffi.structural_map(func, (SBlock, _restarted), order="post")


def _restarted(block: SBlock) -> SBlock:
    """A maximum or minimum that starts at an infinity instead of a finite number."""
    first, update = block.init, block.body
    if not (isinstance(first, tirx.BufferStore) and isinstance(update, tirx.BufferStore)):
        return block
    if type(update.value) not in _STARTS or not isinstance(first.value, tirx.FloatImm):
        return block
    lowest, infinity = _STARTS[type(update.value)]
    dtype = str(first.value.ty.dtype)
    if not is_load_of(update.value.a, update.buffer) or float(first.value.value) != float(
        lowest(dtype).value
    ):
        return block
    init = tirx.BufferStore(first.buffer, tirx.const(infinity, dtype), first.indices)
    return replace_parts(block, init=init)
