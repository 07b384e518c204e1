"""Let stock fusion merge reductions with what feeds them, and with what follows them."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import tirx

from tvm_tile.graph.extract import extract
from tvm_tile.passes.ir.op_pattern import OpPattern, with_pattern
from tvm_tile.passes.weld.one_function import is_joined
from tvm_tile.tile.classify import is_contraction


@tvm.transform.module_pass(opt_level=0, name="MarkReductions")
@dataclass(frozen=True, slots=True)
class MarkReductions:
    """Tell FuseOps which fused functions are reductions without reuse.

    before: softmax, norms, pooling: opaque to FuseOps, so a cast before them is a kernel
    after:  marked as reductions, into which FuseOps fuses the element-wise functions that feed them

    or:     marked as convolutions, into which FuseOps fuses the element-wise functions behind them

    Each stage of such a function reads its rows again, from cache; so it may as well compute the
    producer again. Products and convolutions read each element too often for that.

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
        return marked


def _is_reduction(func: tirx.PrimFunc) -> bool:
    """Whether a function reduces without being a product."""
    graph = extract(func)
    if graph is None or not graph.reductions:
        return False
    return not any(is_contraction(op) for op in graph.reductions)
