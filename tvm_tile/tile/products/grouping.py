"""The kernels that put the rows of a product's groups side by side: in a table, or in memory."""

from __future__ import annotations

from dataclasses import replace

from tvm_tile.device.device import Device
from tvm_tile.graph.positions import Grouped
from tvm_tile.graph.tile_graph import AffineIndex, Tensor
from tvm_tile.tile.powers import powers_of_two
from tvm_tile.tile.time import Part, Work
from tvm_tile.tile.units.product import Operand, Product
from tvm_tile.tile.units.slab import UNIT_BYTES, leaves, vector_width

_INDEX = 8  # bytes of the number of a row's group, at most
_PLACE = 4  # bytes of the number of a row
_SLOT = 12  # bytes of what tells a tile
_EACH = 4  # rows or slots of a thread, where threads suffice
TURN = 32  # threads whose rows are added up first
_OPERATIONS = 6  # for a row: two comparisons, and where it goes


def grouping_threads(count: int, device: Device) -> int:
    """Threads of a block that lists rows, or packs slots, of which each has some of ``count``."""
    most = device.max_threads_per_block
    sizes = powers_of_two(2 * TURN, most)
    return next((size for size in sizes if size * _EACH >= count), most)


def grouping_work(groups: Grouped, device: Device) -> Work:
    """What the kernel does: a block a group goes through the numbers of all rows."""
    threads = grouping_threads(groups.count, device)
    warps, each = -(-threads // device.warp_size), -(-groups.count // threads)
    reading = Part(
        repeats=each,
        fills=threads * _INDEX,
        operations=warps * _OPERATIONS,
        moves=warps,
        loads=1 / _EACH,
    )
    keeping = Part(repeats=each, operations=warps * _OPERATIONS)
    return Work(
        blocks=groups.axis.extent,
        resident=device.max_threads_per_multi_processor // threads,
        warps=warps,
        parts=(reading, _adding(warps), keeping),
        read=groups.count * _INDEX,
        written=groups.count * _PLACE,
    )


def packing_work(slots: int, device: Device) -> Work:
    """What the kernel does that moves the slots that are not empty to the front."""
    threads = grouping_threads(slots, device)
    warps, each = -(-threads // device.warp_size), -(-slots // threads)
    reading = Part(
        repeats=each, fills=threads * _PLACE, operations=warps * _OPERATIONS, moves=warps, loads=1
    )
    return Work(
        blocks=1,
        resident=1,
        warps=warps,
        parts=(reading, _adding(warps), reading),
        read=slots * _SLOT,
        written=slots * _SLOT,
    )


def _adding(warps: int) -> Part:
    """What so many warps do to know what threads before have, and what all have."""
    steps = 2 * TURN * warps
    return Part(operations=steps, moves=steps, wavefronts=steps, barriers=2)


SORTED = "sorted_rows"
GATHERING_THREADS = 256
GATHERING_TURNS = 4  # copies of a thread, begun together


def with_sorted_rows(product: Product) -> Product:
    """A product in groups whose rows have been copied to where those of a group lie side by side.

    Its left operand is this copy, (rows, depth); the output is what it was.
    """
    groups, left, depth = product.groups, product.left, product.depth
    assert groups is not None, "whose rows these are"
    tensor = Tensor(SORTED, (groups.count, depth.extent), left.tensor.dtype)
    indices = tuple(AffineIndex(((axis.name, 1),)) for axis in (groups.place, depth))
    strides = (depth.extent * tensor.element_size, tensor.element_size)
    size = tensor.size
    return replace(
        product, left=Operand(tensor, indices, (groups.place,), True, strides, size, size)
    )


def can_be_sorted(product: Product) -> bool:
    """Whether all rows lie in their tensor, in whole units of 16 bytes."""
    left, depth = product.left, product.depth
    is_inside = not any(below or above for below, above in leaves(product, left))
    return is_inside and vector_width(left, depth) * left.tensor.element_size == UNIT_BYTES


def gathering_work(product: Product, device: Device) -> Work:
    """What the kernel does that copies the rows of a product with sorted ones."""
    size = product.left.size
    held = GATHERING_THREADS * GATHERING_TURNS * UNIT_BYTES  # bytes of a block
    warps = GATHERING_THREADS // device.warp_size
    each = GATHERING_TURNS * warps
    part = Part(fills=held, stores=held, operations=8 * each, moves=3 * each, loads=2)
    return Work(
        blocks=-(-size // held),
        resident=device.max_threads_per_multi_processor // GATHERING_THREADS,
        warps=warps,
        parts=(part,),
        read=size,
        written=size,
    )
