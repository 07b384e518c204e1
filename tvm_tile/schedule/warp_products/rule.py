"""Matrix products and convolutions on the tensor cores of any NVIDIA GPU since Ampere, and AMD's.

``tensor_cores/found.py`` finds the product, ``tile/products/mma.py`` and
``tile/products/matrix_cores.py`` rank tiles, ``kernel.py`` writes them.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import replace
from functools import partial

from tvm import tirx

from tvm_tile.schedule.rule import Choice, Task, choices_of
from tvm_tile.schedule.tensor_cores.found import ProductMatch, find_in, in_pairs
from tvm_tile.schedule.tensor_cores.over_extents import Values, times_over
from tvm_tile.schedule.tensor_cores.work import store_work
from tvm_tile.schedule.warp_products.image import write_image_kernel
from tvm_tile.schedule.warp_products.kernel import write_kernel
from tvm_tile.tile.products.image import ImageTile, construct_image
from tvm_tile.tile.products.matrix_cores import construct_matrix_cores, matrix_core_dtypes
from tvm_tile.tile.products.mma import MmaTile, construct_mma, mma_dtypes, shorter_work
from tvm_tile.tile.products.warp_tile import LEAST_LINE
from tvm_tile.tile.rules import MATRIX_CORES, MMA
from tvm_tile.tile.time import least_product_seconds
from tvm_tile.tile.units.product import fold_window


def schedule_mma(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for a product of dtypes that NVIDIA's device multiplies a warp at a time."""
    found = in_pairs(find_in(task, mma_dtypes(task.device), of_halves=True, in_groups=True))
    if found is None:
        return ()
    folded, device, scene = _folded(found), task.device, task.scene
    work = store_work(found.epilogue, found.product)
    # An image's part is whole at all extents, or is told by none.
    is_whole = not found.limits and found.group is None and found.product.sums == 1
    images = construct_image(found.product, device, count, work, scene) if is_whole else ()
    others = construct_mma(folded.product, device, count, work, scene)
    tiles = sorted((*images, *others), key=lambda tile: tile.seconds)[:count]

    def write(tile: MmaTile) -> tirx.PrimFunc:
        if isinstance(tile, ImageTile):
            return write_image_kernel(found, tile)
        return write_kernel(folded, tile, device)

    return choices_of(MMA, tiles, write)


def mma_over(task: Task, tile: str, points: Sequence[Values]) -> list[float] | None:
    """Predicted seconds of an mma tile in some calls; ``None`` if there is no such tile."""
    found = in_pairs(find_in(task, mma_dtypes(task.device), of_halves=True, in_groups=True))
    found = None if found is None else _folded(found)
    return times_over(found, task, construct_mma, shorter_work, tile, points)


def schedule_matrix_cores(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for a product of dtypes that AMD's device's matrix cores multiply."""
    found = _find(task, matrix_core_dtypes(task.device))
    if found is None:
        return ()
    tiles = construct_matrix_cores(found.product, task.device, count, task.scene)
    return choices_of(MATRIX_CORES, tiles, partial(write_kernel, found, device=task.device))


def least_seconds(task: Task) -> float:
    """Predicted time that no tile for mma can be below; infinite where there is none."""
    if len(task.graph.reductions) != 1:
        return math.inf
    (reduction,) = task.graph.reductions
    dtypes = mma_dtypes(task.device).intersection(read.tensor.dtype for read in reduction.reads)
    found = (least_product_seconds(2 * reduction.points, d, task.device) for d in dtypes)
    return min(found, default=math.inf)


def _find(task: Task, dtypes: Container[str]) -> ProductMatch | None:
    """The product of a function, its windows folded into chunks."""
    found = find_in(task, dtypes, in_groups=True)
    return None if found is None else _folded(found)


def _folded(found: ProductMatch) -> ProductMatch:
    """The same product, its windows folded into chunks."""
    element = found.product.left.tensor.element_size
    return replace(found, product=fold_window(found.product, LEAST_LINE // element))
