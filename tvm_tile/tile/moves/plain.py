"""Tiles for memory-bound operators: Roller's plain policy (OSDI'22, section 3.2).

Such an operator reuses nothing, so its tile is as wide as a memory transaction and as many
threads as fill the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tvm_tile.device.device import VECTOR_BYTES, Device
from tvm_tile.graph.tile_graph import Access, AffineIndex, Operator
from tvm_tile.tile.asked import (
    asked_bytes,
    box_of,
    loads_of,
    operations_of,
    present_blocks,
)
from tvm_tile.tile.tile import Tile, ranked
from tvm_tile.tile.time import AMID, Part, Scene, Work

_THREADS = (256, 128, 64, 32)
_REGISTERS_BESIDES = 3


@dataclass(frozen=True, slots=True)
class PlainTile(Tile):
    """A block whose threads have ``vector`` neighbouring elements each.

    Attributes:
        points: outputs.
        block_size: threads of a block.
        vector: neighbouring outputs of one thread.
        element_bytes: bytes that a thread holds for each of its elements.
    """

    points: int
    block_size: int = field()
    vector: int
    element_bytes: int = 4

    @property
    def grid(self) -> int:
        """Blocks of the kernel."""
        return -(-self.points // (self.block_size * self.vector))

    def describe(self) -> str:
        """The tile in one line, for people."""
        return f"block {self.block_size * self.vector}, thread {self.vector}"

    @classmethod
    def for_points(cls, points: int, device: Device, *, vector: int) -> PlainTile:
        """The widest block of whole warps that still gives every multiprocessor one."""
        choices = [threads for threads in _THREADS if threads >= device.warp_size]
        threads = next(
            (t for t in choices if points >= t * vector * device.multi_processor_count),
            choices[-1] if points < 1 << 16 else choices[1],
        )
        return cls(points, threads, vector).with_vector(vector)

    def with_vector(self, vector: int) -> PlainTile:
        """The tile with other vectors; in registers are their elements, and where they are."""
        registers = _REGISTERS_BESIDES + -(-vector * self.element_bytes // 4)
        return replace(self, vector=vector, registers=registers)


def construct_plain(
    operator: Operator,
    device: Device,
    scene: Scene = AMID,
    *,
    between: int = 1,
    count: int | None = None,
) -> tuple[PlainTile, ...]:
    """Tiles of an element-wise operator, best first, of several vectors and blocks.

    Args:
        operator: the operator that is computed.
        device: the device that the tiles are made for.
        scene: where the kernel runs.
        between: bytes of the widest number that it computes with on the way.
        count: the most tiles that are wanted; ``None``: all.
    """
    points = operator.outputs
    # TVM computes in vectors, too, and has no constants in longer ones.
    widest = math.gcd(flat_vector_elements(operator), VECTOR_BYTES // between)
    vector = widest
    while vector > 1 and points < vector * _THREADS[-1] * device.multi_processor_count:
        vector //= 2
    read = sum(tensor.element_size for tensor in {r.tensor for r in operator.reads})
    fitting = PlainTile.for_points(points, device, vector=vector)
    held = max(read, between, operator.write.tensor.element_size)
    best = replace(fitting, element_bytes=held).with_vector(vector)
    vectors = [vector, *(v for v in (8, 4, 2, 1) if v != vector and widest % v == 0)]
    others = [replace(best.with_vector(v), block_size=t) for v in vectors for t in _THREADS]
    tiles = (best, *(tile for tile in others if tile != best))
    told = (replace(tile, work=work_of(tile, operator, device)) for tile in tiles)
    return ranked(told, device, scene, count)


def work_of(tile: PlainTile, operator: Operator, device: Device) -> Work:
    """What an element-wise operator does: all loads at once, the arithmetic, a store."""
    axes = operator.spatial_axes
    warps = -(-tile.block_size // device.warp_size)
    block = box_of(axes, min(tile.points, tile.block_size * tile.vector))
    own = box_of(axes, tile.vector)
    moved = (*operator.reads, operator.write)
    part = Part(
        fills=sum(asked_bytes(read, block) for read in operator.reads),
        stores=asked_bytes(operator.write, block),
        operations=warps * tile.vector * operations_of(operator, device),
        moves=warps * sum(loads_of(access, own, tile.vector) for access in moved),
        # What says where to read is loaded first.
        loads=1 if all(read.is_exact for read in operator.reads) else 2,
    )
    size = operator.write.elements(operator.extents) * operator.write.tensor.element_size
    return _work(tile, device, part, read=operator.traffic - size, written=size)


def opaque_work(tile: PlainTile, device: Device) -> Work:
    """What is done for each output where an expression cannot be read: a load, one instruction."""
    warps, size = -(-tile.block_size // device.warp_size), tile.element_bytes
    held = tile.block_size * tile.vector * size
    each = warps * tile.vector
    part = Part(fills=held, stores=held, operations=each, moves=2 * each, loads=1)
    return _work(tile, device, part, read=tile.points * size, written=tile.points * size)


def _work(tile: PlainTile, device: Device, part: Part, *, read: int, written: int) -> Work:
    """The work of a kernel of one part."""
    return Work(
        blocks=tile.grid,
        resident=present_blocks(device, tile),
        warps=-(-tile.block_size // device.warp_size),
        parts=(part,),
        read=read,
        written=written,
    )


def together(main: Work, works: Sequence[Work]) -> Work:
    """What one kernel of several outputs does, all of whose loads are independent.

    Args:
        main: the work of the tile that it is written with.
        works: the work of each output, one part each, as if it had a kernel of its own.
    """
    pairs = [(work.parts[0], work.blocks / main.blocks) for work in works]
    part = Part(
        fills=sum(part.fills * share for part, share in pairs),
        stores=sum(part.stores * share for part, share in pairs),
        operations=sum(part.operations * share for part, share in pairs),
        moves=sum(part.moves * share for part, share in pairs),
        loads=max(float(part.loads) for part, _ in pairs),
    )
    return replace(
        main,
        parts=(part,),
        read=sum(work.read for work in works),
        written=sum(work.written for work in works),
    )


def vector_elements(operator: Operator) -> int:
    """Neighbouring outputs of a row that one thread can load and store at once; one if none."""
    axes = [axis for axis in operator.spatial_axes if axis.extent > 1]
    if not axes or operator.write.contiguous_axis != axes[-1].name:
        return 1
    last = axes[-1]
    for read in operator.reads:
        if last.name in read.axes and (
            not read.is_exact or read.contiguous_axis != last.name or read.is_computed
        ):
            return 1
    widest = widest_vector((*operator.reads, operator.write))
    return math.gcd(last.extent, widest, _alignment(operator.write, {last.name}))


def row_vector_elements(operator: Operator) -> int:
    """Neighbouring outputs of a row that are a vector, where the row is told by a loop of its own.

    Then it may be anything that tells which row is read, and whether: a gather's index, a division,
    a condition.
    """
    *_, last = (None, *(axis.name for axis in operator.spatial_axes if axis.extent > 1))

    def at_a_row(read: Access) -> Access:
        is_free = bool(read.guards) and last not in read.guards
        indices = tuple(
            index if last in dict(index.terms) else AffineIndex(()) for index in read.indices
        )
        return replace(read, indices=indices, is_computed=read.is_computed and not is_free)

    reads = tuple(at_a_row(read) for read in operator.reads if last in read.axes)
    return vector_elements(replace(operator, reads=reads))


def flat_vector_elements(operator: Operator) -> int:
    """Neighbouring outputs of a vector, where threads run through all outputs regardless of rows.

    The innermost axes count together, as far as every access has all of them, whole and in that
    order, or none: planes of 165 x 165 are then one run of all elements, while a row of 165 alone
    would not divide into vectors.
    """
    axes = [axis for axis in operator.spatial_axes if axis.extent > 1]
    run, names = 1, set[str]()
    for count in range(1, len(axes) + 1):
        inner = tuple((axis.name, axis.extent) for axis in axes[-count:])
        within = {name for name, _ in inner}
        if _innermost(operator.write)[-count:] != inner or any(
            not read.axes.isdisjoint(within)
            and (read.is_computed or _innermost(read)[-count:] != inner)
            for read in operator.reads
        ):
            break
        run, names = run * inner[0][1], within
    widest = widest_vector((*operator.reads, operator.write))
    alignment = _alignment(operator.write, names)
    return max(row_vector_elements(operator), math.gcd(run, widest, alignment))


def _alignment(write: Access, run: set[str]) -> int:
    """Common divisor of the places at which runs of some axes are written; 0 if all are place 0.

    A vector is stored at multiples of its length only.
    """
    divisor = 0
    for index, stride in zip(write.indices, write.tensor.strides, strict=True):
        steps = [coefficient for axis, coefficient in index.terms if axis not in run]
        divisor = math.gcd(divisor, *(stride * n for n in (index.offset, *steps)))
        if not index.is_exact:
            divisor = math.gcd(divisor, stride)
    return divisor


def widest_vector(accesses: Sequence[Access]) -> int:
    """Elements that one load or store can move of every access: what the largest type allows."""
    if any(access.tensor.dtype == "bool" for access in accesses):
        return 1  # TVM writes a vector of four one-byte booleans as an eight-byte one
    return max(1, VECTOR_BYTES // max(access.tensor.element_size for access in accesses))


def _innermost(access: Access) -> tuple[tuple[str, int], ...]:
    """The dimensions that one axis runs through alone, as (axis, extent), up to the last one."""
    found: list[tuple[str, int]] = []
    for index, extent in zip(reversed(access.indices), reversed(access.tensor.shape), strict=True):
        if extent == 1:
            continue
        if not index.is_exact or len(index.terms) != 1 or index.terms[0][1] != 1 or index.offset:
            break
        found.append((index.terms[0][0], extent))
    return tuple(reversed(found))
