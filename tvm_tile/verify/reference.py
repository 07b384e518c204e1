"""Results of unscheduled functions: in NumPy, or in TVM's CPU build for those that NumPy cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.target.codegen import llvm_get_system_cpu

from tvm_tile.build.exact.in_tvm import exact_on_cpu
from tvm_tile.compat import TVM_ERRORS
from tvm_tile.verify.blocks import evaluated
from tvm_tile.verify.compare import Argument, Array
from tvm_tile.verify.expressions import NotEvaluatedError


class NoReferenceError(Exception):
    """Neither NumPy nor TVM's CPU build computes a function."""


class References:
    """Unscheduled functions, to be called.

    Args:
        functions: name -> function.

    Attributes:
        in_tvm: name -> why it is computed by TVM's CPU build, whose faults kernels may share.
    """

    def __init__(self, functions: Mapping[str, tirx.PrimFunc]) -> None:
        self._functions = functions
        self._modules: dict[str, Any] = {}
        self.in_tvm: dict[str, str] = {}

    def __call__(self, name: str, arguments: Sequence[Argument]) -> list[Array]:
        """Copies of the arguments as a function leaves them.

        Raises:
            NoReferenceError: nothing computes it.
        """
        if name not in self.in_tvm:
            try:
                return evaluated(self._functions[name], arguments)
            except NotEvaluatedError as error:
                self.in_tvm[name] = str(error)
        return self.by_tvm(name, arguments)

    def by_tvm(self, name: str, arguments: Sequence[Argument]) -> list[Array]:
        """Compute a function's results by TVM's CPU build: loops one after another, floating-point
        arithmetic as it is written, NaN and infinities included."""
        if name not in self._modules:
            try:
                self._modules[name] = _built(name, self._functions[name])
            except TVM_ERRORS as error:
                raise NoReferenceError(str(error).strip().partition("\n")[0]) from error
        given = [a if isinstance(a, int) else tvm.runtime.tensor(a) for a in arguments]
        self._modules[name][f"reference_{name}"](*given)
        return [np.asarray(a) if isinstance(a, int) else a.numpy() for a in given]


def _built(name: str, func: tirx.PrimFunc) -> Any:
    """A build of a function for this CPU, its arithmetic kept as written."""
    symbol = f"reference_{name}"
    mod = tvm.IRModule({symbol: exact_on_cpu(func).with_attr("global_symbol", symbol)})
    # Of any CPU, LLVM would convert halves by calls of functions. More optimization takes LLVM
    # seconds for some functions, and the loops run as long.
    target = tvm.target.Target({"kind": "llvm", "mcpu": llvm_get_system_cpu(), "opt-level": 1})
    return tvm.compile(mod, target=target)
