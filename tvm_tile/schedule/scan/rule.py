"""The rule of scans."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tvm_tile.device.device import Device
from tvm_tile.graph.rowwise import Scan
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.loops.combining import Combining
from tvm_tile.schedule.rule import Scheduled, as_written
from tvm_tile.schedule.scan.columns import ColumnKernel
from tvm_tile.schedule.scan.rows import RowKernel
from tvm_tile.schedule.scan.states import Begin, write_scan
from tvm_tile.tile.rows.scan import construct_scan
from tvm_tile.tile.rules import SCAN


def schedule_scan(scan: Scan, device: Device) -> Scheduled | None:
    """A schedule of the function that defines a scan; ``None`` where it has no elements."""
    if not scan.rows.elements:
        return None
    tile = construct_scan(scan, device)
    begin: Begin
    if tile.are_neighbours:
        begin, totals, shared = partial(ColumnKernel, scan, tile), (tile.parts, tile.rows), 0
    else:
        begin, totals = partial(RowKernel, scan, tile), (tile.rows, tile.parts)
        each = sum(map(element_size, Combining(scan).dtypes))
        shared = tile.shared_states * each
    written = write_scan(scan, totals if tile.parts > 1 else (), begin)
    return as_written(written, SCAN, replace(tile, shared_bytes=shared))
