"""What the blocks of a product staged in shared memory do, for the model of time.

See ``schedule/s_tir/staged.py`` for the kernel: a block repeats one step, between the barriers of
which it stages a chunk of each operand and multiplies it; then groups of threads add their sums,
where the block has several, and threads store.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_tile.device.device import Device
from tvm_tile.graph.tile_graph import Access
from tvm_tile.tile.adding import adding_work
from tvm_tile.tile.cost import (
    SECTOR,
    BlockResources,
    Candidates,
    Floats,
    Ints,
    SharedReads,
    arithmetic_slots,
    coalescing,
    converted,
    elements,
    store_sectors,
    vector_elements,
)
from tvm_tile.tile.residency import given_registers, occupancy
from tvm_tile.tile.time import AMID, Part, Scene, Work, work_seconds

_LOADS_IN_FLIGHT = 16  # of a thread in a staging copy, which is unrolled as far
# For each dimension in which a padded operand slides: both ends clamp the place, which is then
# compared with the one that was wanted, and the comparisons are joined.
_PADDING_TESTS = 4


def contraction_work(
    device: Device, tiles: Candidates, reads: SharedReads, resources: BlockResources
) -> Work:
    """What each candidate does, as arrays of shape (candidates,); without what adds parts of sums.

    Args:
        device: the device that the tiles are made for.
        tiles: the candidates.
        reads: cost of their layouts in shared memory.
        resources: shared memory and registers of each.
    """
    given = given_registers(device, resources.registers)
    shared = resources.footprint + reads.padding
    size = tiles.operator.write.tensor.size
    return Work(
        blocks=_floats(tiles.grid),
        resident=_floats(occupancy(device, tiles.threads, given, shared)),
        warps=_floats(_warps(device, tiles)),
        # Prefetched, the first step's operands are waited for ahead of all steps.
        parts=(
            _part(loads=tiles.prefetched),
            _step(device, tiles, reads),
            _meeting(device, tiles),
            _storing(device, tiles),
        ),
        read=tiles.operator.traffic - size,
        written=_floats(tiles.parts * size),
    )


def staged_seconds(work: Work, tiles: Candidates, device: Device, scene: Scene) -> Floats:
    """Predicted seconds of each candidate, with the kernel that adds its parts, if it has any.

    Args:
        work: work of all candidates, as :func:`contraction_work` returns it.
        tiles: the candidates.
        device: the device that they are made for.
        scene: where their kernels run.

    Returns:
        Seconds of shape (candidates,); infinite where no block fits.
    """
    size = tiles.operator.write.tensor.size
    added = work_seconds(adding_work(_floats(tiles.parts), size, device), device, AMID)
    return work_seconds(work, device, scene) + np.where(tiles.parts > 1, added, 0.0)


def works_of_rows(work: Work, tiles: Candidates, device: Device) -> Iterator[Work]:
    """The work of each candidate, in plain numbers, with the kernel that adds parts of its sums.

    Args:
        work: work of all candidates, as :func:`contraction_work` returns it.
        tiles: the candidates.
        device: the device that they are made for.
    """
    count, size = len(tiles.parts), tiles.operator.write.tensor.size
    parts = zip(*(_rows(part, count) for part in work.parts), strict=True)
    rows = zip(_rows(replace(work, parts=()), count), parts, tiles.parts.tolist(), strict=True)
    for own, of_a_row, split in rows:
        then = (adding_work(split, size, device),) if split > 1 else ()
        yield replace(work, **own, parts=tuple(Part(**row) for row in of_a_row), then=then)


def _rows(record: Part | Work, count: int) -> list[dict[str, Any]]:
    """The quantities of each row of a record of arrays, by name."""
    found = {field.name: getattr(record, field.name) for field in fields(record)}
    found = {name: own for name, own in found.items() if isinstance(own, int | float | np.ndarray)}
    columns = (np.broadcast_to(own, count).tolist() for own in found.values())
    return [dict(zip(found, row, strict=True)) for row in zip(*columns, strict=True)]


def _floats(quantity: npt.ArrayLike) -> Floats:
    """A quantity as the model of time takes it."""
    return np.asarray(quantity, np.float64)


def _part(**quantities: npt.ArrayLike) -> Part:
    """The part of a block's work that has the quantities, by their names."""
    return Part(**{name: _floats(own) for name, own in quantities.items()})


def _warps(device: Device, tiles: Candidates) -> Ints:
    """Warps of a block."""
    return np.asarray(-(-tiles.threads // device.warp_size))


def _step(device: Device, tiles: Candidates, reads: SharedReads) -> Part:
    """A step: from staging a chunk of the operands to multiplying it."""
    operator, staged, warps = tiles.operator, tiles.staged, _warps(device, tiles)
    depth = np.prod(tiles.block[:, ~tiles.is_spatial], axis=1)
    own = np.where(tiles.is_spatial, tiles.thread, tiles.block)
    multiplied = tiles.accumulators * depth * arithmetic_slots(device)
    operations = warps * (multiplied + converted(operator, own))
    none: Floats = np.zeros(len(depth))
    copies, fetched, trips = none, none, none + 1
    for read in operator.reads:
        count = elements(read, operator, staged)
        vectors = count / vector_elements(read, operator, staged)
        copies = copies + vectors / device.warp_size
        # What a thread loads beyond what is unrolled waits for another trip. So does each load of
        # padded elements of which some threads have none: its store is branched around.
        together = np.where(read.is_computed & (vectors % tiles.threads > 0), 1, _LOADS_IN_FLIGHT)
        trips = trips + np.ceil(vectors / (tiles.threads * together)) - 1
        fetched = fetched + count * read.tensor.element_size * coalescing(read, operator, staged)
        operations = operations + count / device.warp_size * _padding_tests(read, tiles)
    return _part(
        repeats=tiles.steps,
        fills=fetched,
        operations=operations,
        moves=warps * reads.loads + copies + reads.stores,
        wavefronts=reads.wavefronts,
        loads=np.where(tiles.prefetched > 0, 1, trips),
        # Behind staging, and ahead of the next step's.
        barriers=np.where(tiles.steps > 1, 2, 1),
        exchanges=1,
        ahead=1 + tiles.prefetched,
    )


def _padding_tests(read: Access, tiles: Candidates) -> int:
    """Instructions that find whether an element of an operand lies in its padding."""
    if not read.is_computed:
        return 0
    sliding = tiles.operator.sliding_axes
    dimensions = sum(any(axis in sliding for axis, _ in index.terms) for index in read.indices)
    return dimensions * _PADDING_TESTS


def _meeting(device: Device, tiles: Candidates) -> Part:
    """Groups of threads leave their sums in shared memory, and all threads add them.

    A thread adds the groups' sums of one output after the other.
    """
    several = tiles.groups > 1
    rounds = np.ceil(tiles.outputs / tiles.threads)
    sums = np.where(several, tiles.groups * tiles.outputs, 0) / device.warp_size
    return _part(
        operations=sums,
        moves=2 * sums,  # each is stored and loaded
        wavefronts=2 * sums * device.warp_size / device.bank_count,
        barriers=np.where(several, 1, 0),
        exchanges=np.where(several, rounds * tiles.groups, 0),
    )


def _storing(device: Device, tiles: Candidates) -> Part:
    """Threads store their sums: their own tiles, or in turn what groups have added up."""
    vectors = np.where(tiles.groups > 1, 1, tiles.store_vectors)
    return _part(
        stores=store_sectors(device, tiles) * SECTOR * tiles.parts / tiles.grid,
        moves=tiles.outputs / vectors / device.warp_size,
    )
