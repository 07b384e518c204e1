"""Keep sums apart from what pads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx

from tvm_tile.graph.extract import is_choice
from tvm_tile.passes.ir.op_pattern import OpPattern, pattern_of, with_pattern


@tvm.transform.module_pass(opt_level=0, name="MarkPads")
@dataclass(frozen=True, slots=True)
class MarkPads:
    """Tell FuseOps that a function whose output is longer than an input is no element-wise one.

    before: ``pad(x, (0, 1))`` is marked as element-wise, as it reads ``x[i]`` for its element ``i``
    after:  it is marked as injective, which no sum takes behind it

    Behind a sum, as one kernel, what lies beyond the sums would be written by nobody.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        marked = mod.clone()
        for var, func in mod.functions_items():
            pattern = pattern_of(func)
            is_free = pattern in (OpPattern.ELEMENT_WISE, OpPattern.BROADCAST)
            if is_free and _pads(func):
                marked[var] = with_pattern(func, OpPattern.INJECTIVE)
        return marked


def _pads(func: tirx.PrimFunc) -> bool:
    """Whether some input is shorter than the output, and is not just repeated."""
    *inputs, output = (list(getattr(param.ty, "shape", ())) for param in func.params)
    least = 1 if _is_guarded(func) else 2
    return any(
        len(given) == len(output)
        and any(least <= _known(i) < _known(o) for i, o in zip(given, output, strict=True))
        for given in inputs
    )


def _is_guarded(func: tirx.PrimFunc) -> bool:
    """Whether an element is read under a condition."""

    def visit(call: Any) -> Any:
        return tvm_ffi.VisitInterrupt() if is_choice(call) else None

    return tvm_ffi.structural_walk(func.body, (ir.Call, visit)) is not None


def _known(extent: Any) -> int:
    """The extent as a number; 0 where it is not known."""
    return int(extent) if isinstance(extent, tirx.IntImm) else 0
