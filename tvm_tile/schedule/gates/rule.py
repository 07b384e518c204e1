"""Several products of few rows and the arithmetic on their sums: one kernel, units by blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.schedule.gates.find import GatesMatch, find_gates
from tvm_tile.schedule.gates.kernel import write_gates, write_load
from tvm_tile.schedule.rule import Choice, Resident, Scheduled, Task, as_written
from tvm_tile.tile.few_rows.gates import GatesTile, construct_gates
from tvm_tile.tile.rules import GATES


def schedule_gates(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for a recurrent cell, or another function of several sums for each unit."""
    # The kernels are of TVM's thread-level dialect, which only what has matrix units builds.
    if not task.device.matrix_instructions:
        return ()
    found = find_gates(task)
    # One sum a unit is a matrix-vector product, which has a rule of its own.
    if found is None or len(found.cell.sums) == 1:
        return ()
    tiles = construct_gates(found.gates, task.device, count, task.scene)
    return tuple(
        Choice.of(GATES, tile, partial(_written, found, tile, task.device)) for tile in tiles
    )


def _written(found: GatesMatch, tile: GatesTile, device: Device) -> Scheduled:
    """The scheduled function, with a form whose weights stay in shared memory if they fit."""
    done = as_written(write_gates(found, tile), GATES, tile)
    if tile.shared_bytes + tile.resident_bytes > device.memory(MemoryLevel.SHARED).capacity:
        return done
    run = write_gates(found, tile, resident=True)
    resident = Resident(write_load(found, tile), run, tile.resident_bytes)
    return replace(done, resident=resident)
