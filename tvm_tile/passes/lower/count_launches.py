"""Number of launches that a call of a program queues itself, and that its CUDA graphs hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax, tirx

from tvm_tile import compat
from tvm_tile.build.early.dependent_launches import step_seconds
from tvm_tile.graph.functions import calls_in
from tvm_tile.passes.ir.count_calls import turns_of
from tvm_tile.passes.lower.capture_graphs import CAPTURE, WITH_CONTEXT
from tvm_tile.report.compiled import Launches


def count_launches(
    mod: tvm.IRModule, kernels: Mapping[str, int], dependent: Mapping[str, int]
) -> Launches:
    """Count what ``main`` launches, and what it calls; of two branches the one that launches more,
    of loops as many iterations as are known.

    Args:
        mod: a module behind all Relax passes, graphs captured.
        kernels: number of kernels that each PrimFunc became; one where it is not among them.
        dependent: number of these that depend programmatically on the kernel before them.
    """
    return _Counter(mod, kernels, dependent).of(mod["main"].body)


class _Counter:
    def __init__(
        self, mod: tvm.IRModule, kernels: Mapping[str, int], dependent: Mapping[str, int]
    ) -> None:
        self._mod = mod
        self._kernels = kernels
        self._dependent = dependent
        self._within: list[Any] = []  # functions that are being counted: one may call itself

    def of(self, value: Any) -> Launches:
        """Launches of an expression when it is evaluated."""
        if isinstance(value, relax.SeqExpr):
            bound = [binding.value for block in value.blocks for binding in block.bindings]
            return sum((self.of(part) for part in (*bound, value.body)), Launches(0, 0))
        if isinstance(value, relax.If):
            branches = self.of(value.true_branch), self.of(value.false_branch)
            return max(branches, key=lambda found: (found.outside, found.graphs))
        return self._of_call(value) if isinstance(value, relax.Call) else Launches(0, 0)

    def _of_call(self, call: relax.Call) -> Launches:
        """Launches of a call: a function's, an external function's, or a graph's."""
        if isinstance(call.op, tvm.ir.GlobalVar):
            return self._of_function(call.op) * max(1, turns_of(self._mod, call))
        if isinstance(call.op, relax.ExternFunc):
            return Launches(int(not str(call.op.global_symbol).startswith("vm.builtin")), 0)
        is_graph = call.op == WITH_CONTEXT and call.args[0].global_symbol == CAPTURE
        return self._of_graph(call.args[1].fields[0]) if is_graph else Launches(0, 0)

    def _of_graph(self, captured: tvm.ir.GlobalVar) -> Launches:
        """One graph; its first kernel depends on none, whatever it can."""
        calls = calls_in(self._mod[captured].body)
        named = [call.op for call in calls if isinstance(call.op, tvm.ir.GlobalVar)]
        kernels = [var for var in named if isinstance(self._mod[var], tirx.PrimFunc)]
        called = [str(v.name_hint) for v in kernels if not compat.runs_on_host(self._mod[v])]
        inside = sum(self._kernels.get(name, 1) for name in called)
        dependent = [self._dependent.get(name, 0) for name in called]
        first = int(any(dependent[:1]))
        saved = sum(step_seconds(self._mod[name]) for name in called[1:])
        return Launches(0, 1, inside, sum(dependent) - first, saved)

    def _of_function(self, var: tvm.ir.GlobalVar) -> Launches:
        """Launches of a function; none for one that calls itself."""
        func, name = self._mod[var], str(var.name_hint)
        if isinstance(func, tirx.PrimFunc):
            return Launches(0 if compat.runs_on_host(func) else self._kernels.get(name, 1), 0)
        if name in self._within:
            return Launches(0, 0)
        self._within.append(name)
        found = self.of(func.body)
        self._within.remove(name)
        return found
