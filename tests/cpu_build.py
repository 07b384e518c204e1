"""TVM's own CPU build, to compare with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.target.codegen import llvm_get_system_cpu

from tvm_tile import find_device
from tvm_tile.frontend import Imported
from tvm_tile.passes import ChooseCodes
from tvm_tile.tile.coded.choice import LowBit

# Of any CPU, LLVM would convert halves by calls of functions. What is compared runs once: more
# optimization takes LLVM seconds for a softmax, and saves no time.
CPU = tvm.target.Target({"kind": "llvm", "mcpu": llvm_get_system_cpu(), "opt-level": 1})


def run(imported: Imported, *arrays: np.ndarray) -> list[np.ndarray]:
    """Outputs that the CPU build computes from ``arrays``."""
    executable = tvm.compile(imported.mod, CPU)
    machine = relax.VirtualMachine(executable, tvm.cpu())
    outputs = machine["main"](*[tvm.runtime.tensor(array) for array in arrays])
    return [o.numpy() for o in ([outputs] if hasattr(outputs, "numpy") else outputs)]


def chosen(imported: Imported, low_bit: LowBit) -> Imported:
    """A model whose weights of a few bits stay codes, all that can, or none."""
    choose = ChooseCodes(find_device("emulated"), low_bit, lambda _: None)
    return replace(imported, mod=choose(imported.mod))


def operators(imported: Imported) -> list[str]:
    """Names of the Relax operators in ``main``, in order."""
    names: list[str] = []

    def visit(node: Any) -> None:
        if isinstance(node, relax.Call):
            names.append(getattr(node.op, "name", str(node.op)).removeprefix("relax."))

    relax.analysis.post_order_visit(imported.mod["main"], visit)
    return names
