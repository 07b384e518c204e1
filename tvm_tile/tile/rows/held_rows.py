"""Tiles for chains of reductions whose rows are read once and held in registers.

Rows that are too long for them are held in shared memory, where each thread has a part of its own.
That is Welder's connection at the level of registers (OSDI'23, section 3): between the stages of
a row nothing crosses memory but their results, one number a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tvm_tile.device.device import VECTOR_BYTES, Device
from tvm_tile.graph.tile_graph import Axis, Operator, Tensor
from tvm_tile.tile.asked import WORD, in_flight, in_sectors, meeting, present_blocks
from tvm_tile.tile.cost import arithmetic_slots
from tvm_tile.tile.register_use import register_use
from tvm_tile.tile.rows.rows import RowTile
from tvm_tile.tile.rows.walk import Walk, common_vector
from tvm_tile.tile.tile import ranked
from tvm_tile.tile.time import AMID, WAVEFRONT, Part, Scene, Work

_THREADS = tuple(1 << power for power in range(11))  # that share a row
_BLOCK_THREADS = (128, 256)  # of several rows, where a warp is too few
_MOST_HELD = 48  # registers of a thread
_LINE = 64  # neighbours that a warp should load together: a line of half precision
_CONVERSIONS = 1  # instructions that convert one element
# Of parts of these kernels.
_COUNTS = ("fills", "stores", "operations", "moves", "wavefronts", "loads", "barriers", "exchanges")

Pairs = frozenset[tuple[int, int]]
"""Places of elements of a row, each with that of another one that it is made of."""


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows that can be held.

    With ``are_neighbours`` not the elements of a row but rows lie side by side in memory (channels
    of an image), so that threads of a warp work on different rows.

    Attributes:
        rows: number of rows.
        length: elements of a row.
        vector: neighbouring elements that are loaded, computed and stored together.
        tensors: names of tensors that are loaded once and read in several stages.
        parameters: names of parameters that only the last stage reads, along the row.
        bytes_held: bytes of registers that hold one element of a row.
        bytes_moved: bytes of memory traffic for one element of a row.
        stages: reductions.
        instructions: instructions for one element of a row.
        bytes_loaded: bytes of one element of a row in all that is held, as they lie in memory.
        bytes_beside: bytes of one element of a row in all parameters.
        bytes_stored: bytes of one element of the output.
        bytes_made: bytes of one element of a row in all that stages compute of it once.
        pairs: elements of the output, each with another one that it is made of.
    """

    rows: int
    length: int
    vector: int
    tensors: tuple[str, ...]
    parameters: tuple[str, ...]
    bytes_held: int
    bytes_moved: float
    stages: int
    instructions: int
    bytes_loaded: int
    bytes_beside: int
    bytes_stored: int
    bytes_made: int = 0
    are_neighbours: bool = False
    pairs: Pairs = frozenset()


@dataclass(frozen=True, slots=True)
class HeldTile(RowTile):
    """Launch shape: the threads of a row take turns with vectors of its elements.

    Attributes:
        vector: neighbouring elements that a thread loads, computes and stores together.
        elements: elements of a row that a thread holds.
        is_shared: whether it holds them in shared memory, not in registers.
        together: vectors that it loads at once, before it puts any of them there.
    """

    vector: int
    elements: int
    is_shared: bool = field(default=False, kw_only=True)
    together: int = field(default=0, kw_only=True)

    def describe(self) -> str:
        """The tile in one line, for people."""
        own = f"each holds {self.elements} elements in vectors of {self.vector}"
        own += " in shared memory" if self.is_shared else ""
        return f"{RowTile.describe(self)}, {own}"


def find_held_rows(
    output: Operator, stages: Sequence[Operator], row_axes: frozenset[str]
) -> HeldRows | None:
    """Rows that a chain of reductions can hold in registers; ``None`` if it must reread them.

    Args:
        output: the last stage, whose ``row_axes`` tell rows apart.
        stages: stages before it, in order: reductions, and values that are computed once for each
            element of a row and read by several of the others.
    """
    along = _axes_along(output, stages, row_axes)
    if along is None:
        return None
    found = _walks((*stages, output), along)
    if found is None:
        return None
    written = Walk.of(output.write, output, along[-1])
    early = {read.tensor for op in stages for read in op.reads}
    longest = max((t for t in found if t in early), key=lambda t: t.size, default=None)
    if longest is None:
        return None
    # Elements lie side by side, or rows do.
    step = found[longest][0].steps[-1]
    are_neighbours = step != 1

    def is_held(walk: Walk) -> bool:
        return walk.is_plain and (1 in walk.across if are_neighbours else walk.steps[-1] == 1)

    alike = [
        t
        for t, walks in found.items()
        if all(map(is_held, walks)) and len({walk.place for walk in walks}) == 1
    ]
    held = [tensor for tensor in alike if tensor in early]
    parameters = [t for t in alike if t not in early and len(found[t]) == 1 and not are_neighbours]
    if longest not in held or not is_held(written):
        return None
    walks = [found[tensor][0] for tensor in (*held, *parameters)]
    vector = 1 if are_neighbours else common_vector([*walks, written], along[-1][-1].extent)
    rows = math.prod(axis.extent for axis in output.axes if axis.name in row_axes)
    length = math.prod(axis.extent for axis in along[-1])
    # The compiler may keep halves as what it converts them to.
    loaded = sum(max(4, tensor.element_size) for tensor in held)
    kept = [op.write.tensor.element_size for op in stages if not op.reduce_axes]
    return HeldRows(
        rows=rows,
        length=length,
        vector=vector,
        tensors=tuple(tensor.name for tensor in held),
        parameters=tuple(tensor.name for tensor in parameters),
        bytes_held=max(loaded, sum(kept)),
        bytes_moved=sum(t.size for t in (*found, output.write.tensor)) / (rows * length),
        stages=sum(bool(op.reduce_axes) for op in stages),
        instructions=sum(op.flops + _CONVERSIONS for op in (*stages, output)),
        bytes_loaded=sum(tensor.element_size for tensor in held),
        bytes_beside=sum(tensor.element_size for tensor in parameters),
        bytes_stored=output.write.tensor.element_size,
        bytes_made=sum(kept),
        are_neighbours=are_neighbours,
    )


def _walks(
    stages: Sequence[Operator], along: Sequence[Sequence[Axis]]
) -> dict[Tensor, list[Walk]] | None:
    """How stages go along what they read of memory; ``None`` if one reads results of other rows."""
    made = {op.write.tensor for op in stages[:-1]}
    results = {op.write.tensor for op in stages if op.reduce_axes}
    found: dict[Tensor, list[Walk]] = {}
    for op, axes in zip(stages, along, strict=True):
        for read in op.reads:
            if read.axes.isdisjoint(axis.name for axis in axes):
                continue
            if read.tensor in results:
                return None
            if read.tensor not in made:
                found.setdefault(read.tensor, []).append(Walk.of(read, op, axes))
    return found


def _axes_along(
    output: Operator, stages: Sequence[Operator], row_axes: frozenset[str]
) -> list[list[Axis]] | None:
    """The axes that run along a row, of each stage and of the output; ``None`` if they differ."""
    inner = [a for a in output.axes if a.name not in row_axes and a.extent > 1]
    names = {axis.name for axis in inner}
    along = []
    for op in stages:
        if op.reduce_axes:
            along.append([axis for axis in op.reduce_axes if axis.extent > 1])
            continue
        reads = [read for read in output.reads if read.tensor == op.write.tensor]
        places = [
            d for read in reads for d, i in enumerate(read.indices) if names & set(dict(i.terms))
        ]
        own = {axis for place in places for axis, _ in op.write.indices[place].terms}
        along.append([axis for axis in op.axes if axis.name in own])
    along.append(inner)
    extents = [axis.extent for axis in inner]
    is_same = all([axis.extent for axis in own] == extents for own in along)
    return along if inner and is_same else None


def construct_held(held: HeldRows, device: Device, scene: Scene = AMID) -> tuple[HeldTile, ...]:
    """Tiles of rows that fit into registers or shared memory, best first; none where they do not.

    ``scene`` is where the kernel runs.
    """
    own = (tile for threads in _THREADS for tile in _tiles(held, threads, device))
    return ranked((replace(t, work=work_of(t, held, device)) for t in own), device, scene)


def _tiles(held: HeldRows, threads: int, device: Device) -> Iterator[HeldTile]:
    """Tiles of so many threads a row, which have their parts in registers if these are enough."""
    least = device.warp_size if held.are_neighbours else 1
    blocks = (device.warp_size, *_BLOCK_THREADS)
    rows = dict.fromkeys(max(least, block // threads) for block in blocks)
    tiles = (_tile(held, threads, count, device) for count in rows)
    fitting = [tile for tile in tiles if tile and present_blocks(device, tile)]
    yield from fitting
    shared = None if fitting else _shared_tile(held, threads, device)
    if shared:
        yield shared


def _tile(held: HeldRows, threads: int, rows: int, device: Device) -> HeldTile | None:
    """The tile with these threads and rows; ``None`` if it does not fit."""
    pieces = held.length // held.vector
    elements = -(-pieces // threads) * held.vector
    own = -(-elements * held.bytes_held // WORD)
    use = register_use(device)
    # Of no more than two vectors, the parameters wait until their turn.
    is_ahead = use.is_eager and held.parameters and elements > 2 * held.vector
    last = use.row_vectors * (elements if is_ahead else held.vector)
    tile = HeldTile(
        *(held.rows, rows, threads, held.vector, elements),
        are_neighbours=held.are_neighbours,
        registers=use.beside_rows + own + last,
    )
    if own > _MOST_HELD or (threads > 1 and threads >= 2 * pieces):
        return None
    run = threads * held.vector
    if exchanges(held.pairs, threads, held.vector) is None:
        return None
    line = _LINE // 2 if held.pairs else _LINE  # what other threads hold takes longer than lines
    if run < min(line, held.length) and threads < device.warp_size and not held.are_neighbours:
        return None
    return tile


def _shared_tile(held: HeldRows, threads: int, device: Device) -> HeldTile | None:
    """The tile with these threads of one row, which is held in shared memory; ``None`` if that is
    no way for it: rows side by side, or what is held is not as it was read."""
    pieces, vector = held.length // held.vector, held.vector
    is_plain = not (held.are_neighbours or held.pairs or held.bytes_made)
    if not is_plain or not device.warp_size <= threads <= pieces:
        return None
    turns, words = -(-pieces // threads), -(-vector * held.bytes_loaded // WORD)
    together = in_flight(turns, words, is_tested=pieces % threads > 0)
    # Threads that meet leave a line of warps' results there, and one with that of all.
    shared = held.length * held.bytes_loaded + held.stages * 2 * WAVEFRONT
    use = register_use(device)
    return HeldTile(
        *(held.rows, 1, threads, vector, turns * vector),
        is_shared=True,
        together=together,
        shared_bytes=shared,
        registers=use.beside_rows + together * words + use.row_vectors * vector,
    )


def exchanges(pairs: Pairs, threads: int, vector: int) -> Mapping[int, int] | None:
    """How far apart a thread's elements lie among all that it holds, by their distance in a row.

    Args:
        pairs: elements of a row, each with another one that is wanted with it.
        threads: threads that share a row, and take turns with its vectors.
        vector: elements of a vector.

    Returns:
        ``None`` where another thread holds one, or how far apart they lie differs.
    """
    run, found = threads * vector, dict[int, int]()
    for place, other in pairs:
        owners = {at % run // vector for at in (place, other)}
        slots = [at // run * vector + at % vector for at in (place, other)]
        apart = slots[1] - slots[0]
        if len(owners) > 1 or found.setdefault(other - place, apart) != apart:
            return None
    return found


def work_of(tile: HeldTile, held: HeldRows, device: Device) -> Work:
    """What a chain of reductions does that holds its rows.

    Its threads load all that they hold at once, go through the stages in registers, meeting after
    each, and load parameters on the way to the store. What they hold in shared memory they load in
    turns, and read it again in each stage.
    """
    warps, rows = -(-tile.block_size // device.warp_size), min(tile.rows, tile.rows_per_block)
    # Neighbouring rows are side by side in memory, or else the elements of each.
    runs, run = (held.length, rows) if held.are_neighbours else (rows, held.length)
    turns = tile.elements // held.vector
    each = warps * tile.elements * held.instructions * arithmetic_slots(device) / (held.stages + 1)

    def moves(tensors: int, size: int) -> int:
        return warps * turns * max(tensors, -(-held.vector * size // VECTOR_BYTES))

    kept = moves(len(held.tensors), held.bytes_loaded)
    own = rows * held.length * held.bytes_loaded
    near = Part(moves=kept, wavefronts=own / WAVEFRONT, exchanges=1) if tile.is_shared else Part()
    beside = Part(
        fills=in_sectors(held.length * held.bytes_beside),
        moves=moves(len(held.parameters), held.bytes_beside),
        loads=1 if held.parameters else 0,
    )
    load = Part(
        fills=runs * in_sectors(run * held.bytes_loaded),
        moves=kept + near.moves,
        loads=1,
        wavefronts=near.wavefronts,
    )
    meets = meeting(tile, tile.threads_per_row, device, is_across=held.are_neighbours)
    stage = replace(_both(_both(meets, near), Part(operations=each)), repeats=held.stages)
    store = Part(
        stores=runs * in_sectors(run * held.bytes_stored),
        operations=each,
        moves=moves(1, held.bytes_stored),
    )
    elements = held.rows * held.length
    return Work(
        blocks=tile.grid,
        resident=present_blocks(device, tile, tile.shared_bytes),
        warps=warps,
        parts=(_in_turns(load, tile), stage, _both(_both(beside, near), store)),
        read=elements * (held.bytes_moved - held.bytes_stored),
        written=elements * held.bytes_stored,
    )


def _both(one: Part, other: Part) -> Part:
    """What is done once for each of two parts' repetitions."""
    sums = {name: getattr(one, name) + getattr(other, name) for name in _COUNTS}
    return replace(one, **sums)


def _in_turns(load: Part, tile: HeldTile) -> Part:
    """What is loaded, as often as a thread puts some of it into shared memory, if it does."""
    trips = tile.elements // tile.vector / tile.together if tile.is_shared else 1
    each = {name: getattr(load, name) / trips for name in ("fills", "moves", "wavefronts")}
    return replace(load, repeats=trips, **each)
