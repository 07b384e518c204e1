"""Our first schedule of each function, for all who ask."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm_ffi import StructuralKey

from tvm_tile.device.device import Device
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import Scheduled, Task, candidates
from tvm_tile.schedule.statements import find_obstacle


class FirstChoices:
    """Schedules each function once: joining asks what its kernel would take, planning takes it.

    Args:
        device: to schedule for.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._known: dict[Any, Scheduled | None] = {}

    def __call__(self, func: tirx.PrimFunc) -> Scheduled | None:
        """The schedule of an unscheduled function; ``None`` where no rule takes it."""
        anonymous = func.without_attr("global_symbol")
        key = StructuralKey(anonymous)
        if key not in self._known:
            self._known[key] = self._scheduled(anonymous)
        return self._known[key]

    def _scheduled(self, func: tirx.PrimFunc) -> Scheduled | None:
        graph = None if find_obstacle(func) else extract(func)
        found = candidates(Task(func, graph, self._device), 1) if graph else ()
        return found[0] if found else None
