"""Matrix products and convolutions on the matrix cores of AMD's GPUs.

``tensor_cores/found.py`` finds the product, ``tile/matrix_cores.py`` ranks tiles, ``kernel.py``
writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tvm_tile.schedule.matrix_cores.kernel import write_kernel
from tvm_tile.schedule.rule import Choice, Scheduled, Task, as_written
from tvm_tile.schedule.tensor_cores.found import Found, find_in
from tvm_tile.tile.matrix_cores import (
    LEAST_LINE,
    MatrixTile,
    construct_matrix_cores,
    matrix_core_dtypes,
)
from tvm_tile.tile.product import fold_window
from tvm_tile.tile.rules import MATRIX_CORES


def schedule_matrix_cores(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for a product of dtypes that the device's matrix cores multiply."""
    found = find_in(task, matrix_core_dtypes(task.device))
    if found is None:
        return ()
    element = found.product.left.tensor.element_size
    product = fold_window(found.product, LEAST_LINE // element)
    own = replace(found, product=product)
    return tuple(
        Choice.of(MATRIX_CORES, tile, partial(_written, own, tile))
        for tile in construct_matrix_cores(product, task.device, count)
    )


def _written(found: Found, tile: MatrixTile) -> Scheduled:
    return as_written(write_kernel(found, tile), MATRIX_CORES, tile)
