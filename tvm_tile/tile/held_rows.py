"""Tiles for chains of reductions whose rows are read once and held in registers.

That is Welder's connection at the level of registers (OSDI'23, section 3): between the stages of
a row nothing crosses memory but their results, one number a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tvm_tile.device.device import VECTOR_BYTES, Device, MemoryLevel
from tvm_tile.graph.tile_graph import Access, Axis, Operator, Tensor

_WIDEST = 8  # elements of a vector: what CUDA has types for
_THREADS = tuple(1 << power for power in range(11))  # that share a row
_BLOCK_THREADS = (32, 128, 256)  # of several rows
_MOST_HELD = 72  # registers of a thread
_OWN_REGISTERS = 28  # of a thread, besides what it holds
_ROUND_TRIP = 1400  # cycles: a block's start, a load under load, the last store
_BLOCK_START = 30  # cycles of a multiprocessor
_SHUFFLE = 28  # cycles of one level of a tree of partial sums
_BARRIERS = 160  # cycles that several warps take to share partial sums
_LEVEL_INSTRUCTIONS = 3  # of a thread, for one level
_ELEMENT_INSTRUCTIONS = 1  # to convert one


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows that can be held.

    Attributes:
        rows: how many.
        length: elements of a row.
        vector: neighbouring elements that are loaded, computed and stored together.
        tensors: names of what is loaded once and read in several stages.
        parameters: names of what the last stage alone reads, along the row.
        bytes_held: of one element of a row, in registers.
        bytes_loaded: of one element of a row, at first.
        bytes_moved: of one element of a row, from and to memory.
        stages: reductions.
        instructions: of one element of a row.
    """

    rows: int
    length: int
    vector: int
    tensors: tuple[str, ...]
    parameters: tuple[str, ...]
    bytes_held: int
    bytes_loaded: int
    bytes_moved: float
    stages: int
    instructions: int


@dataclass(frozen=True, slots=True)
class HeldTile:
    """Launch shape: ``threads_per_row`` take turns with vectors of ``vector`` elements.

    ``registers`` are a thread's, as predicted.
    """

    rows: int
    rows_per_block: int
    threads_per_row: int
    vector: int
    elements: int
    registers: int
    seconds: float

    @property
    def grid(self) -> int:
        """Blocks of the kernel."""
        return -(-self.rows // self.rows_per_block)

    @property
    def block_size(self) -> int:
        """Threads of a block."""
        return self.rows_per_block * self.threads_per_row

    def describe(self) -> str:
        """One line for people."""
        return (
            f"{self.rows_per_block} rows a block, {self.threads_per_row} threads a row, each "
            f"holds {self.elements} elements in vectors of {self.vector}"
        )


def find_held_rows(
    output: Operator, stages: Sequence[Operator], row_axes: frozenset[str]
) -> HeldRows | None:
    """What a chain of reductions can hold; ``None`` if it must read its rows where they are.

    Args:
        output: the last stage, whose ``row_axes`` tell rows apart.
        stages: those before it in order: reductions, and what is computed once for each element
            of a row and read by several of the others.
    """
    along = _axes_along(output, stages, row_axes)
    if along is None:
        return None
    made = {op.write.tensor for op in stages}
    found: dict[Tensor, list[tuple[Access, tuple[int, ...] | None]]] = {}
    for op, axes in zip((*stages, output), along, strict=True):
        for read in op.reads:
            if read.tensor not in made and not read.axes.isdisjoint(a.name for a in axes):
                found.setdefault(read.tensor, []).append((read, _steps(read, axes)))
    early = {read.tensor for op in stages for read in op.reads}
    alike = [t for t, reads in found.items() if _are_alike([steps for _, steps in reads])]
    held = [tensor for tensor in alike if tensor in early]
    parameters = [tensor for tensor in alike if tensor not in early and len(found[tensor]) == 1]
    longest = max((t for t in found if t in early), key=lambda t: t.size, default=None)
    if longest not in held or _steps(output.write, along[-1]) is None:
        return None
    accesses = [found[tensor][0][0] for tensor in (*held, *parameters)]
    rows = math.prod(axis.extent for axis in output.axes if axis.name in row_axes)
    length = math.prod(axis.extent for axis in along[-1])
    kept = [op.write.tensor.element_size for op in stages if not op.reduce_axes]
    loaded = sum(tensor.element_size for tensor in held)
    return HeldRows(
        rows=rows,
        length=length,
        vector=_vector([*accesses, output.write], along[-1][-1].extent),
        tensors=tuple(tensor.name for tensor in held),
        parameters=tuple(tensor.name for tensor in parameters),
        bytes_held=max(loaded, sum(kept)),
        bytes_loaded=loaded,
        bytes_moved=sum(t.size for t in (*found, output.write.tensor)) / (rows * length),
        stages=sum(bool(op.reduce_axes) for op in stages),
        instructions=sum(op.flops + _ELEMENT_INSTRUCTIONS for op in (*stages, output)),
    )


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


def _steps(access: Access, axes: Sequence[Axis]) -> tuple[int, ...] | None:
    """Strides along a row whose last axis has neighbours side by side; ``None`` for any other."""
    steps = tuple(access.strides.get(axis.name, 0) for axis in axes)
    is_plain = access.is_exact and not access.is_computed and access.tensor.dtype != "bool"
    is_ordered = steps[-1] == 1 and list(steps) == sorted(steps, reverse=True)
    return steps if is_plain and is_ordered else None


def _are_alike(steps: Sequence[tuple[int, ...] | None]) -> bool:
    return None not in steps and len(set(steps)) == 1


def _vector(accesses: Sequence[Access], run: int) -> int:
    """Neighbours that every access finds side by side, aligned, within a run of so many."""
    vector = math.gcd(_WIDEST, VECTOR_BYTES // min(a.tensor.element_size for a in accesses), run)
    for access in accesses:
        extents = [*access.tensor.shape[1:], 1]
        places = [math.prod(extents[d:]) for d in range(len(extents))]
        offset = sum(i.offset * place for i, place in zip(access.indices, places, strict=True))
        vector = math.gcd(vector, offset, *(s for s in access.strides.values() if s != 1))
    return vector


def construct_held(held: HeldRows, device: Device) -> tuple[HeldTile, ...]:
    """Tiles of rows that fit into registers, best first; none where no thread can hold its part."""
    tiles = [
        tile
        for threads in _THREADS
        for rows in dict.fromkeys(max(1, block // threads) for block in _BLOCK_THREADS)
        if (tile := _tile(held, threads, rows, device)) is not None
    ]
    return tuple(sorted(tiles, key=lambda tile: tile.seconds))


def _tile(held: HeldRows, threads: int, rows: int, device: Device) -> HeldTile | None:
    pieces = held.length // held.vector
    elements = -(-pieces // threads) * held.vector
    own = -(-elements * held.bytes_held // 4)
    registers = own + _OWN_REGISTERS + held.vector
    block = rows * threads
    if own > _MOST_HELD or (threads > 1 and threads >= 2 * pieces):
        return None
    if block > device.max_threads_per_block:
        return None
    if registers * block > device.registers_per_multi_processor:
        return None
    seconds = _seconds(held, threads, block, registers, device)
    return HeldTile(held.rows, rows, threads, held.vector, elements, registers, seconds)


def _seconds(held: HeldRows, threads: int, block: int, registers: int, device: Device) -> float:
    """Time by whatever binds: memory, instructions, or blocks that wait for memory in turns.

    Behind that comes the last block, whose way through its stages nothing hides.
    """
    warps = -(-block // device.warp_size)
    resident = min(
        32,
        device.max_threads_per_multi_processor // (warps * device.warp_size),
        device.registers_per_multi_processor // (registers * warps * device.warp_size),
    )
    levels = math.ceil(math.log2(threads)) + 1 if threads > 1 else 0
    shared = _BARRIERS if threads > device.warp_size else 0
    elements = -(-held.length // threads)
    cycles = _ROUND_TRIP + held.stages * (levels * _SHUFFLE + shared) + held.instructions * elements
    blocks = -(-held.rows * threads // block)
    waves = blocks / (resident * device.multi_processor_count)
    own = held.instructions * elements + held.stages * levels * _LEVEL_INSTRUCTIONS
    issue = blocks * (warps * own / 4 + _BLOCK_START) / device.multi_processor_count
    moved = held.rows * held.length * held.bytes_moved
    memory = moved / device.memory(MemoryLevel.GLOBAL).bandwidth
    turns = max(1.0, waves) * cycles / device.clock
    bound = math.hypot(memory, issue / device.clock, turns)
    return bound + cycles / device.clock + device.launch_latency
