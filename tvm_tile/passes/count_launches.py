"""How many launches a call of a program queues itself, beside its CUDA graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax, tirx

from tvm_tile import compat
from tvm_tile.passes.capture_graphs import CAPTURE, WITH_CONTEXT
from tvm_tile.plan.report import Launches


def count_launches(mod: tvm.IRModule, kernels: Mapping[str, int]) -> Launches:
    """Count what ``main`` launches, and what it calls; of two branches the one that launches more.

    Args:
        mod: behind all Relax passes, graphs captured.
        kernels: how many kernels each PrimFunc became; one where it is not among them.
    """
    return _Counter(mod, kernels).of(mod["main"].body)


class _Counter:
    def __init__(self, mod: tvm.IRModule, kernels: Mapping[str, int]) -> None:
        self._mod = mod
        self._kernels = kernels
        self._within: list[Any] = []  # functions that are being counted: one may call itself

    def of(self, value: Any) -> Launches:
        """What an expression launches when it is evaluated."""
        if isinstance(value, relax.SeqExpr):
            bound = [binding.value for block in value.blocks for binding in block.bindings]
            parts = [self.of(part) for part in (*bound, value.body)]
            return Launches(sum(p.outside for p in parts), sum(p.graphs for p in parts))
        if isinstance(value, relax.If):
            branches = self.of(value.true_branch), self.of(value.false_branch)
            return max(branches, key=lambda found: (found.outside, found.graphs))
        return self._of_call(value) if isinstance(value, relax.Call) else Launches(0, 0)

    def _of_call(self, call: relax.Call) -> Launches:
        if isinstance(call.op, tvm.ir.GlobalVar):
            return self._of_function(call.op)
        if isinstance(call.op, relax.ExternFunc):
            return Launches(int(not str(call.op.global_symbol).startswith("vm.builtin")), 0)
        is_graph = call.op == WITH_CONTEXT and call.args[0].global_symbol == CAPTURE
        return Launches(0, int(is_graph))

    def _of_function(self, var: tvm.ir.GlobalVar) -> Launches:
        func, name = self._mod[var], str(var.name_hint)
        if isinstance(func, tirx.PrimFunc):
            return Launches(0 if compat.runs_on_host(func) else self._kernels.get(name, 1), 0)
        if name in self._within:
            return Launches(0, 0)
        self._within.append(name)
        found = self.of(func.body)
        self._within.remove(name)
        return found
