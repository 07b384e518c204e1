"""Values that constants alone decide are computed during compilation, as kernels would."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, relax, tirx

from tvm_tile.build.exact.in_tvm import exact_on_cpu
from tvm_tile.frontend.fold import is_large
from tvm_tile.graph.extract import nodes_in
from tvm_tile.graph.functions import is_tensor, with_prim_funcs
from tvm_tile.loops.decoding import format_of


@tvm.transform.module_pass(opt_level=0, name="FoldConstants")
@dataclass(frozen=True, slots=True)
class FoldConstants:
    """Calls of functions on constants become constants, NaN and infinities as they are written.

    before: ``y = call_tir(relu, (constant,))``   after: ``y`` is a constant

    TVM's own pass computes them by its CPU build, to which the larger of NaN and 0 is 0. Weights
    that are kept as codes stay codes: functions that decode are not shown to it, nor those that
    make a large mask, or distances, of much smaller tensors.

    Args:
        is_open: whether extents are to be open, so that none of them may decide what is large.
    """

    is_open: bool = False

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        functions = {v: f for v, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)}
        shown = with_prim_funcs(mod, exact_on_cpu)
        for var, func in functions.items():
            if format_of(func) is not None or (not self.is_open and _spreads(func)):
                del shown[var]
        folded = relax.transform.FoldConstant()(shown)
        folded.update(functions)
        return folded


def _spreads(func: tirx.PrimFunc) -> bool:
    """Whether a function makes as much of smaller tensors, of others of bools besides, as is better
    computed where it is used: masks, and positions."""
    *inputs, last = (param.ty for param in func.params if is_tensor(param))
    made = _elements(last)
    others = [ty for ty in inputs if str(ty.dtype) != "bool" or _elements(ty) != made]
    is_spread = len(inputs) > max(0, 1 - len(others)) and is_large(
        made, sum(map(_elements, others))
    )
    return is_spread and not nodes_in(func.body, ir.Call)


def _elements(ty: Any) -> int:
    extents = [int(own) for own in ty.shape if isinstance(own, tirx.IntImm)]
    return math.prod(extents) if len(extents) == len(ty.shape) else 0
