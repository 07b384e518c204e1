"""Squares are products: a general power takes eighty instructions, a product one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx

from tvm_tile.graph.functions import with_prim_funcs


@tvm.transform.module_pass(opt_level=0, name="MultiplyPowers")
@dataclass(frozen=True, slots=True)
class MultiplyPowers:
    """Write squares of floating-point numbers as products, which round better, too.

    before: ``B[i] = pow(A[i], 2.0)``
    after:  ``B[i] = A[i] * A[i]``
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return with_prim_funcs(mod, _multiplied)


def _multiplied(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with squares as products."""
    return tvm_ffi.structural_map(func, (ir.Call, _square), order="post")


def _square(call: ir.Call) -> Any:
    """A square of a loaded number as a product."""
    if getattr(call.op, "name", "") != "tirx.pow":
        return call
    base, exponent = call.args
    is_square = isinstance(exponent, tirx.FloatImm) and float(exponent.value) == 2.0
    # A load may be repeated; what is computed should not be.
    return base * base if is_square and isinstance(base, ir.TensorLoad) else call
