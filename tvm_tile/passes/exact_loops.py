"""Kernels whose machine code TVM makes compute what they say, as those that we build do."""

from __future__ import annotations

from dataclasses import dataclass

import tvm

from tvm_tile.build.exact_floats import hide_arithmetic
from tvm_tile.build.exact_in_tvm import module_in_tvm
from tvm_tile.build.tir_passes import open_blocks
from tvm_tile.graph.functions import with_prim_funcs


@tvm.transform.module_pass(opt_level=0, name="ExactLoops")
@dataclass(frozen=True, slots=True)
class ExactLoops:
    """Scheduled blocks as loops that TVM's own pipeline lowers rightly.

    before: blocks with ``x + y - y``, ``max(x, y)``, ``A[(287 - i) % 288]``
    after:  loops with ``as_written(x + y) - y``, ``maximum(x, y)``, ``A[truncmod(575 - i, 288)]``

    Without it TVM takes floating-point numbers for real ones, loses NaN in extrema, and offsets in
    quotients of places (see :mod:`tvm_tile.build.quotients`).
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return module_in_tvm(open_blocks(with_prim_funcs(mod, hide_arithmetic)))
