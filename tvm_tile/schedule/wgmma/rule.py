"""Matrix products and convolutions on Hopper's tensor cores.

``tensor_cores/found.py`` finds the product, ``tile/products/warpgroup.py`` ranks tiles,
``kernel.py`` writes them. Of float32 the instructions read tf32, as it lies in memory: thirteen
bits of the mantissa are cut off, not rounded. So it is taken only for a device that may
(:func:`tvm_tile.device.with_tf32`).

A matrix that a function makes of what is kept of it, two numbers of four, is not made: instructions
take what is kept (:mod:`tvm_tile.schedule.compressed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tvm_tile.device.device import Device
from tvm_tile.graph.sparsity import TWO_OF_FOUR, Compressed, places_shape
from tvm_tile.graph.tile_graph import AffineIndex, Axis, Tensor
from tvm_tile.schedule.compressed import CompressedMatrix, compressed_of
from tvm_tile.schedule.listed import listed_of
from tvm_tile.schedule.rule import Choice, Task, choices_of
from tvm_tile.schedule.tensor_cores.found import ProductMatch, find_in, in_pairs
from tvm_tile.schedule.tensor_cores.over_extents import Values, times_over
from tvm_tile.schedule.tensor_cores.work import store_work
from tvm_tile.schedule.wgmma.kernel import write_kernel
from tvm_tile.tile.products.copyable import LONGEST_STEP
from tvm_tile.tile.products.grouping import can_be_sorted, with_sorted_rows
from tvm_tile.tile.products.mma import mma_dtypes
from tvm_tile.tile.products.warpgroup import (
    construct_warpgroup,
    shorter_work,
    warpgroup_dtypes,
)
from tvm_tile.tile.products.warpgroup_tile import LINE
from tvm_tile.tile.rules import WGMMA
from tvm_tile.tile.units.product import Operand, Product, fold_window, spread_steps


def schedule_wgmma(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for a product of dtypes that the device multiplies a warpgroup at a time."""
    found = _find(task)
    if found is None:
        return ()
    work = store_work(found.epilogue, found.product)
    product = with_sorted_rows(found.product) if found.group else found.product
    tiles = construct_warpgroup(product, task.device, count, work, task.scene)
    return choices_of(WGMMA, tiles, partial(write_kernel, found, device=task.device))


def wgmma_over(task: Task, tile: str, points: Sequence[Values]) -> list[float] | None:
    """Predicted seconds of a wgmma tile in some calls; ``None`` if there is no such tile."""
    found = _find(task)
    if found is not None and found.group is not None:
        return None
    return times_over(found, task, construct_warpgroup, shorter_work, tile, points)


def _find(task: Task) -> ProductMatch | None:
    """The product of a function, as copies have it."""
    dtypes = warpgroup_dtypes(task.device)
    compressed = compressed_of(task.func)
    if compressed is not None:
        found = find_in(replace(task, func=compressed.func), dtypes)
        return None if found is None else _with_compressed(found, compressed, task)
    found = in_pairs(find_in(task, dtypes, of_halves=True, in_groups=True))
    if found is None:
        return None
    if found.group is not None:
        return found if can_be_sorted(found.product) else None
    folded = fold_window(found.product, LINE // found.product.left.tensor.element_size)
    if folded is not found.product and _has_short_lines(folded, task.device):
        return None
    product = spread_steps(folded, LONGEST_STEP)
    return replace(found, product=_with_lists(product, task))


def _with_lists(product: Product, task: Task) -> Product:
    """The product with the lists of a constant operand's chunks that are not zeros, if it has some
    and is one of matrices, a line of depth to a chunk."""
    told = listed_of(task.func)
    if told is None or product.steps or product.batch:
        return product
    matrix, listed = told

    def own(side: Operand) -> Operand:
        tensor, whole = side.tensor, len(listed.groups) * listed.step
        ends = [[c for _, c in index.terms] == [1] and not index.offset for index in side.indices]
        is_matrix = len(side.free) == 1 and ends == [True, True]
        is_told = tensor.name == str(matrix.name) and listed.chunk * tensor.element_size == LINE
        is_whole = is_matrix and whole - listed.step < side.extent <= whole
        return replace(side, listed=listed) if is_told and is_whole else side

    return replace(product, left=own(product.left), right=own(product.right))


def _with_compressed(
    found: ProductMatch, matrix: CompressedMatrix, task: Task
) -> ProductMatch | None:
    """The product with a matrix that is kept without its zeros; ``None`` where it is none of two
    matrices, the kept one whole."""
    product, name = found.product, str(matrix.func.params[0].name)
    is_last = product.right.tensor.name == name
    own = product.right if is_last else product.left
    if own.tensor.name != name or product.steps or product.batch or len(own.free) != 1:
        return None
    if (own.extent, product.depth.extent) != matrix.shape or name in found.epilogue.tensors:
        return None
    kept = _without_zeros(own, product.depth, matrix)
    product = replace(product, right=kept) if is_last else replace(product, left=kept)
    return replace(found, product=product, params=task.func.params)


def _without_zeros(own: Operand, depth: Axis, matrix: CompressedMatrix) -> Operand:
    """The operand that has the kept numbers of one that is a whole matrix: its rows as they were,
    half of its elements side by side."""
    rows, _ = matrix.shape
    half = Axis(f"{depth.name}.kept", depth.extent // 2, is_reduce=True)
    tensor = Tensor(matrix.values, (rows, half.extent), own.tensor.dtype)
    indices = tuple(AffineIndex(((axis.name, 1),)) for axis in (*own.free, half))
    strides = half.extent * tensor.element_size, tensor.element_size
    words = Tensor(matrix.places, places_shape(*matrix.shape), "uint32")
    size = tensor.size + words.size
    compressed = Compressed(TWO_OF_FOUR, words.name)
    return Operand(tensor, indices, own.free, True, strides, size, size, compressed=compressed)


def _has_short_lines(product: Product, device: Device) -> bool:
    """Whether rows of a window are so short that threads copy them in half the time, for mma.

    A bulk copy takes 6 ns for each, as long as for a whole line: measured on an H200 for 3 x 3
    windows over 8 channels.
    """
    tensor = product.left.tensor
    is_short = product.depth.extent * tensor.element_size <= LINE // 2
    return is_short and tensor.dtype in mma_dtypes(device)
