"""An imported model on the CPU: our loops of its operators, not fused, not scheduled.

What is wrong here is wrong in the import, what is wrong on a device alone in our schedules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_tile.build.exact.in_tvm import exact_on_cpu
from tvm_tile.graph.functions import with_prim_funcs
from tvm_tile.loops import LEGALIZATIONS
from tvm_tile.passes.operators.infinite_extrema import InfiniteExtrema


def run_on_cpu(
    mod: tvm.IRModule, arrays: Sequence[np.ndarray], optimization: int = 1
) -> list[np.ndarray]:
    """What a module of Relax operators computes.

    Args:
        mod: its ``main`` takes the arrays.
        arrays: the inputs.
        optimization: LLVM's; most of a small model's time would be LLVM's.
    """
    loops = [relax.transform.LegalizeOps(dict(LEGALIZATIONS)), InfiniteExtrema()]
    mod = with_prim_funcs(tvm.transform.Sequential(loops)(mod), exact_on_cpu)
    target = tvm.target.Target({"kind": "llvm", "opt-level": optimization})
    machine = relax.VirtualMachine(tvm.compile(mod, target), tvm.cpu())
    outputs: Any = machine["main"](*[tvm.runtime.tensor(array) for array in arrays])
    return [o.numpy() for o in ([outputs] if hasattr(outputs, "numpy") else outputs)]
