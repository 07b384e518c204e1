"""What TVM's CPU build makes of unscheduled functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.target.codegen import llvm_get_system_cpu

from tvm_tile.verify.compare import Array


class References:
    """Unscheduled functions, built for this CPU all at once, as loops one after another.

    Args:
        functions: name -> function.
    """

    def __init__(self, functions: Mapping[str, tirx.PrimFunc]) -> None:
        named = {f"reference_{name}": func for name, func in functions.items()}
        mod = tvm.IRModule({n: f.with_attr("global_symbol", n) for n, f in named.items()})
        # Of any CPU, LLVM would convert halves by calls of functions.
        target = tvm.target.Target({"kind": "llvm", "mcpu": llvm_get_system_cpu()})
        self._module: Any = tvm.compile(mod, target=target) if named else None

    def __call__(self, name: str, arguments: Sequence[Array]) -> list[Array]:
        """Copies of the arguments as a function leaves them."""
        tensors = [tvm.runtime.tensor(array) for array in arguments]
        self._module[f"reference_{name}"](*tensors)
        return [tensor.numpy() for tensor in tensors]
