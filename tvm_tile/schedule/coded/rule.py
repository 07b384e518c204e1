"""Offers tiles for products with matrices of codes, of few vectors and of many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from tvm_tile.graph.tensor_format import E8M0, Shared, TensorFormat
from tvm_tile.schedule.coded.find import CodedMatch, find_coded
from tvm_tile.schedule.coded.fragments import fragments_of
from tvm_tile.schedule.coded.kernel import write_coded
from tvm_tile.schedule.coded.warpgroup_kernel import write_coded_warpgroup
from tvm_tile.schedule.rule import Choice, Task, choices_of
from tvm_tile.schedule.tensor_cores.work import store_work
from tvm_tile.tile.coded.few_vectors import construct_coded
from tvm_tile.tile.coded.warpgroup import construct_coded_warpgroup
from tvm_tile.tile.products.grouping import can_be_sorted, gathering_work
from tvm_tile.tile.products.mma import mma_dtypes
from tvm_tile.tile.rules import CODED, CODED_WARPGROUP

_SLOTS = (1, 8, 16, 24, 32)  # vectors of a tile, of one group
_SMALL_INTEGERS = ("int8", "uint8")


def schedule_coded(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for a product whose matrix the function decodes; none for any other.

    They are of two kernels, which one model of time compares.
    """
    if not mma_dtypes(task.device):
        return ()
    found = find_coded(task)
    if found is None:
        return ()
    few = _of_warps(found, task, count)
    both = (*few, *_of_warpgroups(found, task, count))
    return sorted(both, key=lambda choice: choice.seconds)[:count]


def _of_warps(found: CodedMatch, task: Task, count: int) -> Iterator[Choice]:
    """Choices of the kernel for few vectors, which tiles of few vectors are, too, where all vectors
    are in groups."""
    slots = (0,) if found.found.group is None else _SLOTS
    for own in (replace(found, slot=slot) for slot in slots):
        tiles = construct_coded(own.sizes, task.device, count, task.scene)
        yield from choices_of(CODED, tiles, partial(write_coded, own, device=task.device))


def _of_warpgroups(found: CodedMatch, task: Task, count: int) -> Sequence[Choice]:
    """Choices of the kernel for many vectors, whose weights are the format's to the last bit.

    Each element is one sum: a gate and its product, which lie in different rows, are not for it.
    Vectors lie in memory: blocks that had many rows would each make them anew.
    """
    product, form = found.found.product, found.form
    fragments = fragments_of(form.code, form.dtype) if found.made is None else None
    is_scaled_once = len(found.scales) == 1 and found.sizes.halves == 1
    if fragments is None or not is_scaled_once or not _is_scaled_exactly(found.scales[0][0], form):
        return ()
    sizes = replace(found.sizes, instructions=fragments.instructions + 1)
    work = store_work(found.found.epilogue, product)
    words, copying = (1 if found.zero is None else 2), None
    if product.groups is not None:
        if not can_be_sorted(product):
            return ()
        copying = gathering_work(product, task.device)
    tiles = construct_coded_warpgroup(sizes, words, task.device, work, count, task.scene, copying)
    write = partial(write_coded_warpgroup, found, fragments, device=task.device)
    return choices_of(CODED_WARPGROUP, tiles, write)


def _is_scaled_exactly(scale: Shared, form: TensorFormat) -> bool:
    """Whether the step has its operands as they are stored, and is the values' or float32."""
    dtype = form.dtype
    if scale.dtype == "float32":
        return True
    is_power = dtype == "bfloat16" and scale.stored == E8M0
    is_exact = is_power or scale.stored == dtype or scale.stored in _SMALL_INTEGERS
    return scale.dtype == dtype and is_exact
