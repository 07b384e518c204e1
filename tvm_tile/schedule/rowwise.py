"""Rules for operators on whole rows, which are known by their definitions, not by their loops."""

from __future__ import annotations

from tvm import tirx

from tvm_tile.device.device import Device
from tvm_tile.graph.rowwise import Scan
from tvm_tile.loops.scans import find_scan
from tvm_tile.schedule.rule import Scheduled
from tvm_tile.schedule.scan import schedule_scan

Rowwise = Scan


def find_rowwise(func: tirx.PrimFunc) -> Rowwise | None:
    """What ``func`` defines; ``None`` of functions that :mod:`tvm_tile.loops` has not written."""
    return find_scan(func)


def schedule_rowwise(operator: Rowwise, device: Device) -> Scheduled | None:
    """A schedule of an operator's definition; ``None`` where it has no elements."""
    return schedule_scan(operator, device)
