"""Tiles for memory-bound operators: Roller's plain policy (OSDI'22, section 3.2).

Such an operator reuses nothing, so its tile is as wide as a memory transaction and as many
threads as fill the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tvm_tile.device.device import VECTOR_BYTES, Device, MemoryLevel
from tvm_tile.graph.tile_graph import Access, Operator
from tvm_tile.tile.tile import Tile

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
    def for_points(cls, points: int, device: Device, *, vector: int, traffic: float) -> PlainTile:
        """The widest block of whole warps that still gives every multiprocessor one."""
        choices = [threads for threads in _THREADS if threads >= device.warp_size]
        threads = next(
            (t for t in choices if points >= t * vector * device.multi_processor_count),
            choices[-1] if points < 1 << 16 else choices[1],
        )
        block = device.times.elementwise.block_cycles / device.clock
        seconds = max(traffic / device.memory(MemoryLevel.GLOBAL).bandwidth, block)
        tile = cls(points, threads, vector, seconds=seconds + device.launch_latency)
        return tile.with_vector(vector)

    def with_vector(self, vector: int) -> PlainTile:
        """The tile with other vectors; in registers are their elements, and where they are."""
        registers = _REGISTERS_BESIDES + -(-vector * self.element_bytes // 4)
        return replace(self, vector=vector, registers=registers)


def construct_plain(
    operator: Operator, device: Device, *, between: int = 1
) -> tuple[PlainTile, ...]:
    """Tiles of an element-wise operator, best first; the others vary its vector and its block.

    Args:
        operator: the operator that is computed.
        device: the device that the tiles are made for.
        between: bytes of the widest number that it computes with on the way.
    """
    points = operator.outputs
    # TVM computes in vectors, too, and has no constants in longer ones.
    widest = math.gcd(flat_vector_elements(operator), VECTOR_BYTES // between)
    vector = widest
    while vector > 1 and points < vector * _THREADS[-1] * device.multi_processor_count:
        vector //= 2
    traffic = float(operator.traffic)
    read = sum(tensor.element_size for tensor in {r.tensor for r in operator.reads})
    fitting = PlainTile.for_points(points, device, vector=vector, traffic=traffic)
    held = max(read, between, operator.write.tensor.element_size)
    best = replace(fitting, element_bytes=held).with_vector(vector)
    vectors = [vector, *(v for v in (8, 4, 2, 1) if v != vector and widest % v == 0)]
    others = [replace(best.with_vector(v), block_size=t) for v in vectors for t in _THREADS]
    return (best, *(tile for tile in others if tile != best))


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
    return max(vector_elements(operator), math.gcd(run, widest, alignment))


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
