"""Functions without a reduction: element-wise chains, broadcasts, slices, gathers, transposes.

Before → after, for a chain ``B = f(A)``, ``C = g(B)``::

    for i, j: B[i, j] = f(A[i, j])
    for i, j: C[i, j] = g(B[i, j])

    for block in blockIdx:  for thread in threadIdx:  for v in vectorized:
        C[...] = g(f(A[...]))

Everything between input and output is inlined. Outputs of as many elements each, none of which is
computed from another, are one kernel, a thread of which writes the same place of each; else each
output becomes one kernel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from tvm_tile.device.device import Device
from tvm_tile.graph.extract import extract_operator, nodes_in
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.schedule.rule import (
    Choice,
    Scheduled,
    Task,
    as_written,
    choices_of,
    choices_of_outputs,
    works_of,
)
from tvm_tile.schedule.s_tir.normalize import inlined
from tvm_tile.schedule.s_tir.steps import bind_elements, bind_loop, blocks_named, flat_loop
from tvm_tile.tile.moves.plain import PlainTile, construct_plain, opaque_work, together
from tvm_tile.tile.rules import ELEMENTWISE
from tvm_tile.tile.tile import priced, ranked


def schedule_elementwise(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for a function without reductions; none if it has one."""
    if task.graph.reductions:
        return ()
    sch, form = inlined(task.func, keep_producers=False)
    if form is None or form.producers or not form.outputs:
        return ()
    choices = [_tiles(sch, name, task, count) for name in form.outputs]
    if _are_alike(sch, form.outputs):
        several = itertools.islice(zip(*choices, strict=False), count)
        tiles = ranked(map(_as_one, several), task.device, task.scene)
        return choices_of(ELEMENTWISE, tiles, partial(_together, sch, form.outputs))
    return choices_of_outputs(ELEMENTWISE, choices, count, partial(_written, sch, form.outputs))


def _are_alike(sch: Schedule, outputs: Sequence[str]) -> bool:
    """Whether several outputs have as many elements each, and none is computed from another."""
    blocks = blocks_named(sch, outputs)
    written = [region.source for block in blocks for region in block.writes]
    read = [region.source for block in blocks for region in block.reads]
    is_apart = not any(one.same_as(own) for one in read for own in written)
    return len(blocks) > 1 and is_apart and len(set(map(_points, blocks))) == 1


def _points(block: Any) -> int:
    """Points of a block's iteration space."""
    return math.prod(int(v.dom.extent) for v in block.iter_vars)


def _as_one(tiles: tuple[PlainTile, ...]) -> PlainTile:
    """The tile of one kernel of all outputs: that of the one that takes longest, given each's."""
    longest = max(tiles, key=lambda tile: tile.seconds)
    main = longest.with_vector(min(tile.vector for tile in tiles))
    works = works_of(tiles)
    return replace(main, work=together(max(works, key=lambda work: work.blocks), works))


def _together(sch: Schedule, outputs: Sequence[str], tile: PlainTile) -> tirx.PrimFunc:
    """One kernel of all outputs."""
    sch = sch.copy()
    flat = sch.merge(*(flat_loop(sch, sch.get_sblock(name)) for name in outputs))
    bind_loop(sch, flat, tile.block_size, tile.vector)
    return sch.mod["main"]


def _tiles(sch: Schedule, name: str, task: Task, count: int) -> tuple[PlainTile, ...]:
    """At most ``count`` tiles of an output, best first, by its own reads where these are known."""
    block = sch.get(sch.get_sblock(name))
    operator = extract_operator(block)
    if operator is None:
        return priced((_opaque(sch, name, task.device),), task.device, task.scene)
    between = _widest_between(block.body.value)
    return construct_plain(operator, task.device, task.scene, between=between, count=count)


def _widest_between(value: Any) -> int:
    """Bytes of the widest floating-point number that an expression casts to."""
    dtypes = [str(cast.ty.dtype) for cast in nodes_in(value, tirx.Cast)]
    return max((element_size(dtype) for dtype in dtypes if "float" in dtype), default=1)


def _written(sch: Schedule, outputs: Sequence[str], tiles: tuple[PlainTile, ...]) -> Scheduled:
    """The schedule with a tile for each output."""
    sch = sch.copy()
    for name, tile in zip(outputs, tiles, strict=True):
        bind_elements(sch, sch.get_sblock(name), tile.block_size, tile.vector)
    main = max(tiles, key=lambda tile: tile.seconds)
    seconds = sum(tile.seconds for tile in tiles)
    return as_written(sch.mod["main"], ELEMENTWISE, replace(main, seconds=seconds))


def _opaque(sch: Schedule, name: str, device: Device) -> PlainTile:
    """A tile for a block whose expression extraction does not read (a tuple, a select)."""
    points = _points(sch.get(sch.get_sblock(name)))
    tile = PlainTile.for_points(points, device, vector=1)
    return replace(tile, work=opaque_work(tile, device))
