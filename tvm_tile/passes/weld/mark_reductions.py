"""Let stock fusion merge reductions with what feeds them, and with what follows them."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx

from tvm_tile.graph.extract import extract
from tvm_tile.passes.ir.op_pattern import OpPattern, with_pattern
from tvm_tile.passes.weld.one_function import is_joined
from tvm_tile.schedule.s_tir.row_axes import keeps_order
from tvm_tile.tile.classify import is_contraction


@tvm.transform.module_pass(opt_level=0, name="MarkReductions")
@dataclass(frozen=True, slots=True)
class MarkReductions:
    """Tell FuseOps which fused functions are reductions without reuse.

    before: softmax, norms, pooling: opaque to FuseOps, so a cast before them is a kernel
    after:  marked as reductions, into which FuseOps fuses the element-wise functions that feed them

    or:     marked as convolutions, into which FuseOps fuses the element-wise functions behind them

    Ahead of reductions, casts behind reshapes are element-wise, too: of what a product has made,
    seen as heads, say. Each stage of such a function reads its rows
    again, from cache; so it may as well compute the producer again. Products and convolutions read
    each element too often for that.

    Args:
        with_followers: mark them as convolutions.
    """

    with_followers: bool = False

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        convolution, reduction = OpPattern.OUT_ELEMENT_WISE_FUSABLE, OpPattern.COMM_REDUCE
        pattern = convolution if self.with_followers else reduction
        marked = mod.clone()
        for var, func in mod.functions_items():
            # What was joined is as it is to be.
            if is_joined(str(var.name_hint)) or not isinstance(func, tirx.PrimFunc):
                continue
            if _is_reduction(func):
                marked[var] = with_pattern(func, pattern)
            elif not self.with_followers and _casts_a_reshape(func):
                marked[var] = with_pattern(func, OpPattern.BROADCAST)
        return marked


def _casts_a_reshape(func: tirx.PrimFunc) -> bool:
    """Whether a function converts the elements of one tensor, which get another shape in order."""
    graph = extract(func)
    if len(func.params) != 2 or graph is None or any(op.flops > 1 for op in graph.operators):
        return False
    given, made = (param.ty.shape for param in func.params)
    return not tvm_ffi.structural_equal(given, made) and keeps_order(func, (0,))


def _is_reduction(func: tirx.PrimFunc) -> bool:
    """Whether a function reduces without being a product."""
    graph = extract(func)
    if graph is None or not graph.reductions:
        return False
    return not any(is_contraction(op) for op in graph.reductions)
