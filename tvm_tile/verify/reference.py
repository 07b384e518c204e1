"""What TVM's CPU build makes of unscheduled functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.target.codegen import llvm_get_system_cpu

from tvm_tile.build.exact_in_tvm import exact_on_cpu
from tvm_tile.compat import TVM_ERRORS
from tvm_tile.verify.compare import Argument, Array


class References:
    """Unscheduled functions, built for this CPU as loops one after another.

    Floating-point arithmetic is computed as it is written, NaN and infinities included.

    Args:
        functions: name -> function.

    Attributes:
        missing: name -> why TVM does not build it.
    """

    def __init__(self, functions: Mapping[str, tirx.PrimFunc]) -> None:
        self.missing: dict[str, str] = {}
        self._modules: dict[str, Any] = {}
        try:
            self._modules = dict.fromkeys(functions, _built(functions))
        except TVM_ERRORS:
            for name, func in functions.items():
                try:
                    self._modules[name] = _built({name: func})
                except TVM_ERRORS as error:
                    self.missing[name] = str(error).strip().partition("\n")[0]

    def __call__(self, name: str, arguments: Sequence[Argument]) -> list[Array]:
        """Copies of the arguments as a function leaves them."""
        given = [a if isinstance(a, int) else tvm.runtime.tensor(a) for a in arguments]
        self._modules[name][f"reference_{name}"](*given)
        return [np.asarray(a) if isinstance(a, int) else a.numpy() for a in given]


def _built(functions: Mapping[str, tirx.PrimFunc]) -> Any:
    named = {f"reference_{name}": exact_on_cpu(func) for name, func in functions.items()}
    mod = tvm.IRModule({n: f.with_attr("global_symbol", n) for n, f in named.items()})
    # Of any CPU, LLVM would convert halves by calls of functions. More optimization takes LLVM
    # seconds for some functions, and the loops run as long.
    target = tvm.target.Target({"kind": "llvm", "mcpu": llvm_get_system_cpu(), "opt-level": 1})
    return tvm.compile(mod, target=target) if named else None
