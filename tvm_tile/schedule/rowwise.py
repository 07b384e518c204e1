"""Rules for operators on whole rows, which are known by their definitions, not by their loops."""

from __future__ import annotations

from tvm import tirx

from tvm_tile.device.device import Device
from tvm_tile.graph.rowwise import Scan, Sort
from tvm_tile.loops.scans import find_scan
from tvm_tile.loops.sorting import find_sort
from tvm_tile.schedule.rule import Scheduled
from tvm_tile.schedule.scan import schedule_scan
from tvm_tile.schedule.sort import schedule_sort

Rowwise = Scan | Sort


def find_rowwise(func: tirx.PrimFunc) -> Rowwise | None:
    """The operator that ``func`` defines; ``None`` if :mod:`tvm_tile.loops` did not write it."""
    return find_scan(func) or find_sort(func)


def schedule_rowwise(operator: Rowwise, device: Device) -> Scheduled | None:
    """A schedule of an operator's definition; ``None`` where it has no elements."""
    if isinstance(operator, Sort):
        return schedule_sort(operator, device)
    return schedule_scan(operator, device)
