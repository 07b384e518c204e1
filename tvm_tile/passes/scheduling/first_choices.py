"""Our first schedule of each function, for all who ask."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm_ffi import StructuralKey

from tvm_tile.device.device import Device
from tvm_tile.graph.extract import extract
from tvm_tile.passes.ir.rewriter import is_call_tir, is_in_place, size_of
from tvm_tile.schedule import Scheduled, Task, candidates
from tvm_tile.schedule.statements import find_obstacle
from tvm_tile.tile.rules import Rule
from tvm_tile.tile.weld.side_by_side import Cost

Rules = tuple[Rule, ...] | None
"""Rules to ask; ``None`` for all."""


def content_of(func: tirx.PrimFunc) -> Any:
    """A key of a function, whatever its name: equal for equal functions, and hashable."""
    return StructuralKey(func.without_attr("global_symbol"))


class FirstChoices:
    """Schedules each function once: joining asks what its kernel would take, planning takes it.

    Args:
        device: the device that is scheduled for.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._known: dict[tuple[Any, Rules], Scheduled | None] = {}

    def __call__(self, func: tirx.PrimFunc, rules: Rules = None) -> Scheduled | None:
        """The schedule of an unscheduled function; ``None`` where no rule takes it.

        Args:
            func: the function.
            rules: rules to be asked, by default all. Their answer stands: the kernel that was
                compared with others is the one that is planned.
        """
        key = content_of(func)
        of_all = self._known.get((key, None))
        if of_all is not None:
            return of_all
        if (key, rules) in self._known:
            return self._known[key, rules]
        found = self._scheduled(func.without_attr("global_symbol"), rules)
        self._known[key, rules] = found
        if found is not None:
            self._known[key, None] = found
        return found

    def forget(self, most: int) -> None:
        """Keep so many choices at most, the latest: between models, as each counts on its own."""
        for key in list(self._known)[: max(0, len(self._known) - most)]:
            del self._known[key]

    @property
    def device(self) -> Device:
        """The device that it chooses for."""
        return self._device

    def _scheduled(self, func: tirx.PrimFunc, rules: Rules) -> Scheduled | None:
        """The first choice of the rules for a function."""
        graph = None if find_obstacle(func) else extract(func)
        found = candidates(Task(func, graph, self._device), 1, rules) if graph else ()
        return found[0] if found else None


def predicted_cost(mod: tvm.IRModule, first: FirstChoices) -> Cost | None:
    """The cost of a run of a fused module's ``main``, each kernel launched by itself, amid a model.

    Returns:
        ``None`` where no rule takes one of its functions.
    """
    seconds, written = 0.0, 0
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            if is_call_tir(binding.value) or is_in_place(binding.value):
                found = first(mod[binding.value.args[0]])
                if found is None:
                    return None
                seconds += found.seconds
                written += size_of(binding.var.ty)
    return Cost(seconds, written)
