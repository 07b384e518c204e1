"""Matrix products and convolutions on Hopper's tensor cores.

``tile/product.py`` tells rows, columns and depth apart, ``tile/warpgroup.py`` ranks tiles,
``kernel.py`` writes them. Of float32 the instructions read tf32, as it lies in memory: thirteen
bits of the mantissa are cut off, not rounded. So it is taken only for a device that may
(:func:`tvm_tile.device.with_tf32`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

from tvm import ir, tirx
from tvm.s_tir import SBlock, Schedule

from tvm_tile.graph.extract import extract_operator
from tvm_tile.graph.tile_graph import Access, Operator, element_size
from tvm_tile.schedule.merge import Merged, merge_axes
from tvm_tile.schedule.normalize import NormalForm, inline_spatial, inline_views, store_by_sums
from tvm_tile.schedule.rule import Choice, Scheduled, Task
from tvm_tile.schedule.wgmma.epilogue import Epilogue, fused_epilogue, plain_epilogue
from tvm_tile.schedule.wgmma.kernel import write_kernel
from tvm_tile.schedule.wgmma.padding import unpadded
from tvm_tile.tile.product import Product, find_product, fold_window, spread_steps
from tvm_tile.tile.warpgroup import (
    LINE,
    LONGEST_STEP,
    WarpgroupTile,
    construct_warpgroup,
    warpgroup_dtypes,
)


def schedule_wgmma(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for a product of dtypes that the device multiplies a warpgroup at a time."""
    if len(task.graph.reductions) != 1:
        return ()
    (reduction,) = task.graph.reductions
    if not any(read.tensor.dtype in warpgroup_dtypes(task.device) for read in reduction.reads):
        return ()
    sch = Schedule(task.func)
    form = inline_spatial(sch, keep_producers=True)
    if form is None or len(form.reductions) != 1 or len(form.outputs) > 1:
        return ()
    form = inline_views(sch, form)
    store_by_sums(sch, form)
    merged = merge_axes(sch, form, keep_outputs=True)
    found = _read(sch, form)
    if found is None:
        return ()
    product, epilogue = found
    shapes = {
        str(param.name): tuple(int(extent) for extent in param.ty.shape)
        for param in sch.mod["main"].params
    }
    return tuple(
        partial(_written, product, epilogue, merged, shapes, tile)
        for tile in construct_warpgroup(product, task.device, count)
    )


def _written(
    product: Product,
    epilogue: Epilogue,
    merged: Merged,
    shapes: dict[str, tuple[int, ...]],
    tile: WarpgroupTile,
) -> Scheduled:
    func = write_kernel(product, tile, merged.params, shapes, epilogue)
    return Scheduled(
        func,
        "wgmma",
        tile.describe(),
        tile.grid,
        tile.block_size,
        tile.seconds,
        tile.shared_bytes,
        tile.registers,
    )


def _read(sch: Schedule, form: NormalForm) -> tuple[Product, Epilogue] | None:
    block = sch.get(sch.get_sblock(form.reductions[0]))
    operator = extract_operator(block)
    if operator is None or not is_sum_of_products(block):
        return None
    producers = [sch.get(sch.get_sblock(name)) for name in form.producers]
    reads = [_without_producer(read, producers) for read in operator.reads]
    known = tuple(read for read in reads if read is not None)
    if len(known) < len(reads):
        return None
    product = find_product(dataclasses.replace(operator, reads=known))
    epilogue = _epilogue(sch, form, block, operator)
    if product is None or epilogue is None:
        return None
    folded = fold_window(product, LINE // product.left.tensor.element_size)
    return spread_steps(folded, LONGEST_STEP), epilogue


def _epilogue(
    sch: Schedule, form: NormalForm, block: SBlock, operator: Operator
) -> Epilogue | None:
    if not form.outputs:
        return plain_epilogue(block, operator)
    return fused_epilogue(block, operator, sch.get(sch.get_sblock(form.outputs[0])))


def _without_producer(read: Access, producers: Sequence[SBlock]) -> Access | None:
    """A read of a parameter: itself, or of what a producer pads; ``None`` of anything else."""
    for producer in producers:
        if str(producer.body.buffer.name) == read.tensor.name:
            return unpadded(read, producer)
    return read


def is_sum_of_products(block: SBlock) -> bool:
    """Whether a reduction adds ``left * right``, each perhaps cast, to a sum that starts at 0."""
    body, init = block.body, block.init
    if not isinstance(body, tirx.BufferStore) or not isinstance(init, tirx.BufferStore):
        return False
    if not isinstance(init.value, tirx.FloatImm | tirx.IntImm) or float(init.value.value) != 0:
        return False
    value = body.value
    if not isinstance(value, tirx.Add) or not isinstance(value.b, tirx.Mul):
        return False
    is_own = isinstance(value.a, ir.TensorLoad) and value.a.source.same_as(body.buffer)
    dtype = str(body.buffer.ty.dtype)
    return is_own and all(_is_factor(factor, dtype) for factor in (value.b.a, value.b.b))


def _is_factor(factor: Any, sum_dtype: str) -> bool:
    """Whether it is a load, perhaps cast to a wider dtype, of what the instructions sum up so."""
    load = factor.value if isinstance(factor, tirx.Cast) else factor
    if not isinstance(load, ir.TensorLoad):
        return False
    dtype, read = str(load.source.ty.dtype), str(factor.ty.dtype)
    if element_size(read) < element_size(dtype):
        return False
    if "int" in dtype:
        return read == sum_dtype == "int32"
    return "float" in sum_dtype and sum_dtype != "float64"  # of float32 sums no more can be asked
