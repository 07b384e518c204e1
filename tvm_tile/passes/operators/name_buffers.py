"""Buffers get names of their own: what follows stock fusion knows tensors by their names."""

from __future__ import annotations

from dataclasses import dataclass

import tvm

from tvm_tile.graph.functions import with_prim_funcs
from tvm_tile.graph.own_names import has_own_names, with_own_names


@tvm.transform.module_pass(opt_level=0, name="NameBuffers")
@dataclass(frozen=True, slots=True)
class NameBuffers:
    """No two buffers of a TensorIR function keep one name.

    before: ``def fused(lv: Buffer, lv: Buffer, out: Buffer)``
    after:  ``def fused(lv: Buffer, lv_: Buffer, out: Buffer)``
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return with_prim_funcs(
            mod, lambda func: func if has_own_names(func) else with_own_names(func)
        )
