"""Places that operators read are told as simply as their axes allow, before these are replaced."""

from __future__ import annotations

from dataclasses import dataclass

import tvm

from tvm_tile.graph.functions import with_prim_funcs
from tvm_tile.schedule.s_tir.steps import with_simple_places


@tvm.transform.module_pass(opt_level=0, name="SimplifyPlaces")
@dataclass(frozen=True, slots=True)
class SimplifyPlaces:
    """Write the places that reshapes read without what the ranges of their axes rule out.

    before: ``B[i, j, k] = A[((i * 56 + j) * 96 + k) // 672, (j * 96 + k) % 672 // 96, k % 96]``
    after:  ``B[i, j, k] = A[i * 8 + j // 7, j % 7, k]``

    Once functions are joined, ``j`` is perhaps a sum with an offset, and nothing is seen any more.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return with_prim_funcs(mod, with_simple_places)
