"""Values that constants alone decide are computed during compilation, as kernels would."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax, tirx

from tvm_tile.build.exact.in_tvm import exact_on_cpu
from tvm_tile.graph.functions import with_prim_funcs
from tvm_tile.loops.decoding import format_of


@tvm.transform.module_pass(opt_level=0, name="FoldConstants")
@dataclass(frozen=True, slots=True)
class FoldConstants:
    """Calls of functions on constants become constants, NaN and infinities as they are written.

    before: ``y = call_tir(relu, (constant,))``   after: ``y`` is a constant

    TVM's own pass computes them by its CPU build, to which the larger of NaN and 0 is 0. Weights
    that are kept as codes stay codes: functions that decode are not shown to it.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        functions = {v: f for v, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)}
        shown = with_prim_funcs(mod, exact_on_cpu)
        for var, func in functions.items():
            if format_of(func) is not None:
                del shown[var]
        folded = relax.transform.FoldConstant()(shown)
        folded.update(functions)
        return folded
