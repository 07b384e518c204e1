"""Let products and sums drop elements at random in their own kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, tirx

from tvm_tile.graph.extract import blocks_in, loads_in, nodes_in
from tvm_tile.passes.ir.op_pattern import OpPattern, pattern_of, with_pattern
from tvm_tile.registered import is_philox


@tvm.transform.module_pass(opt_level=0, name="MarkDraws")
@dataclass(frozen=True, slots=True)
class MarkDraws:
    """Tell FuseOps that random numbers may be drawn behind a product, which takes no injective
    function there.

    before: ``uniform`` is marked as injective, or as a pad: it reads ``state[0]`` for element ``i``
    after:  it is marked as one that broadcasts: whatever the element, it reads the same places
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        marked = mod.clone()
        for var, func in mod.functions_items():
            if pattern_of(func) is OpPattern.INJECTIVE and _draws(func):
                marked[var] = with_pattern(func, OpPattern.BROADCAST)
        return marked


def _draws(func: Any) -> bool:
    """Whether a function is one block, draws random numbers, and reads nothing but what these need:
    elements at places that are numbers."""
    inner = blocks_in(func.body)
    if len(inner) != 1 or not any(map(is_philox, nodes_in(func.body, ir.Call))):
        return False
    indices = [index for load in loads_in(inner[0].body) for index in load.indices]
    return all(isinstance(index, tirx.IntImm) for index in indices)
