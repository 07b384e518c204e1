"""Matrix products and convolutions on Hopper's tensor cores.

``tensor_cores/found.py`` finds the product, ``tile/warpgroup.py`` ranks tiles, ``kernel.py`` writes
them. Of float32 the instructions read tf32, as it lies in memory: thirteen bits of the mantissa are
cut off, not rounded. So it is taken only for a device that may
(:func:`tvm_tile.device.with_tf32`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tvm_tile.device.device import Device
from tvm_tile.schedule.rule import Choice, Task, choices_of
from tvm_tile.schedule.tensor_cores.found import find_in
from tvm_tile.schedule.tensor_cores.work import store_work
from tvm_tile.schedule.wgmma.kernel import write_kernel
from tvm_tile.tile.mma import mma_dtypes
from tvm_tile.tile.product import Product, fold_window, spread_steps
from tvm_tile.tile.rules import WGMMA
from tvm_tile.tile.warpgroup import LONGEST_STEP, construct_warpgroup, warpgroup_dtypes
from tvm_tile.tile.warpgroup_tile import LINE


def schedule_wgmma(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for a product of dtypes that the device multiplies a warpgroup at a time."""
    found = find_in(task, warpgroup_dtypes(task.device))
    if found is None:
        return ()
    folded = fold_window(found.product, LINE // found.product.left.tensor.element_size)
    if folded is not found.product and _has_short_lines(folded, task.device):
        return ()
    product = spread_steps(folded, LONGEST_STEP)
    work = store_work(found.epilogue, product)
    own = replace(found, product=product)
    tiles = construct_warpgroup(product, task.device, count, work)
    return choices_of(WGMMA, tiles, partial(write_kernel, own))


def _has_short_lines(product: Product, device: Device) -> bool:
    """Whether rows of a window are so short that threads copy them in half the time, for mma.

    A bulk copy takes 6 ns for each, as long as for a whole line: measured on an H200 for 3 x 3
    windows over 8 channels.
    """
    tensor = product.left.tensor
    is_short = product.depth.extent * tensor.element_size <= LINE // 2
    return is_short and tensor.dtype in mma_dtypes(device)
