"""The rule of scans."""

from __future__ import annotations

from dataclasses import replace

from tvm_tile.device.device import Device
from tvm_tile.graph.rowwise import Scan
from tvm_tile.schedule.rule import Scheduled, as_written
from tvm_tile.schedule.scan.columns import write_columns
from tvm_tile.schedule.scan.rows import shared_bytes, write_rows
from tvm_tile.tile.rules import SCAN
from tvm_tile.tile.scan import construct_scan


def schedule_scan(scan: Scan, device: Device) -> Scheduled | None:
    """A schedule of the function that defines a scan; ``None`` where it has no elements."""
    if not scan.rows.elements:
        return None
    tile = construct_scan(scan, device)
    if not tile.are_neighbours:
        written, shared = write_rows(scan, tile), shared_bytes(scan, tile)
    else:
        written, shared = write_columns(scan, tile), 0
    return as_written(written, SCAN, replace(tile, shared_bytes=shared))
