"""A mutator run over a module: TVM's own rewrites one expression."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax


def rewritten(mod: tvm.IRModule, mutator: Any) -> tvm.IRModule:
    """``mod`` with every Relax function rewritten by a mutator that was made for it."""
    for global_var, function in mod.functions_items():
        if isinstance(function, relax.Function):
            mutator.builder_.update_func(global_var, mutator.visit_expr(function))
    return mutator.builder_.get()
