"""The product in a fused function, and what follows it, as the tensor cores' rules need them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import ir, tirx
from tvm.s_tir import SBlock, Schedule

from tvm_tile.device.device import Device
from tvm_tile.graph.expression import Expression, summand
from tvm_tile.graph.extract import extract_operator, is_gather
from tvm_tile.graph.functions import is_tensor
from tvm_tile.graph.tile_graph import Access, Operator, element_size
from tvm_tile.schedule.rule import Task
from tvm_tile.schedule.s_tir.merge import merge_axes
from tvm_tile.schedule.s_tir.normalize import NormalForm, inline_views, inlined, store_by_sums
from tvm_tile.schedule.s_tir.steps import blocks_named
from tvm_tile.schedule.scene import streamed_names
from tvm_tile.schedule.tensor_cores.epilogue import Epilogue, fused_epilogue, plain_epilogue
from tvm_tile.schedule.tensor_cores.groups import split_groups
from tvm_tile.schedule.tensor_cores.limits import Limits, limits_of
from tvm_tile.schedule.tensor_cores.lookups import LookedUp, looked_up
from tvm_tile.schedule.tensor_cores.padding import unpadded
from tvm_tile.tile.units.paired import paired
from tvm_tile.tile.units.product import Product, find_product


@dataclass(frozen=True, slots=True)
class ProductMatch:
    """A function that computes one product, and its parts.

    Attributes:
        product: the product, whose operands are parameters.
        epilogue: arithmetic on each sum, and its store.
        params: parameters of the function, as its callers pass them.
        shapes: name of a parameter -> the shape that ``product`` and ``epilogue`` know it by.
        limits: how far axes go in a call.
        group: number of a row's group, where rows are in groups.
        constants: names of the parameters that are constants, and in no cache.
    """

    product: Product
    epilogue: Epilogue
    params: Sequence[Any]
    shapes: dict[str, tuple[int, ...]]
    limits: Limits = field(default_factory=dict)
    group: Expression | None = None
    constants: frozenset[str] = frozenset()

    def asks_ahead(self, device: Device) -> bool:
        """Whether its kernel may ask for constants before it waits for the kernel before it, as it
        reads nothing else to know which it needs."""
        return device.supports_dependent_launches and self.group is None and not self.limits


def find_in(
    task: Task, dtypes: Container[str], *, of_halves: bool = False, in_groups: bool = False
) -> ProductMatch | None:
    """The product of a function, if that is all it reduces and an operand is of ``dtypes``.

    Args:
        task: task that has the function.
        dtypes: element types.
        of_halves: whether elements may be made of two sums, one of each half of the columns.
        in_groups: whether rows may be in groups, each with a matrix of its own.
    """
    if len(task.graph.reductions) != 1:
        return None
    (reduction,) = task.graph.reductions
    if not any(read.tensor.dtype in dtypes for read in reduction.reads):
        return None
    found = _find(task.func, of_halves)
    if found is None or (found.group is not None and not in_groups):
        return None
    found = dataclasses.replace(found, constants=frozenset(streamed_names(task.func)))
    if len(task.extents) != 1:
        return found
    limits = limits_at_call(task, found.epilogue, found.product)
    return dataclasses.replace(found, limits=limits)


def in_pairs(found: ProductMatch | None) -> ProductMatch | None:
    """A match whose elements are made of neighbouring sums, if they are made of several at all."""
    if found is None or len(found.epilogue.element.given) == 1:
        return found
    product = paired(found.product)
    return None if product is None else dataclasses.replace(found, product=product)


def limits_at_call(task: Task, epilogue: Epilogue, product: Product) -> Limits:
    """How far a product's axes go in a call of a function with one output."""
    if len(task.extents) != 1:
        return {}
    shape = [int(extent) for extent in task.func.params[-1].ty.shape]
    axes = (*product.batch, *product.left.free, *product.right.free)
    return limits_of(epilogue, shape, task.extents[0], axes)


# The rules of all matrix units ask for the same function, one behind the other.
@functools.lru_cache(maxsize=2)
def _find(func: tirx.PrimFunc, of_halves: bool) -> ProductMatch | None:
    """The product of a function, its axes merged; ``None`` where there is none."""
    sch, form = inlined(func, keep_producers=True)
    if form is None or len(form.reductions) != 1 or len(form.outputs) > 1:
        return None
    form = inline_views(sch, form)
    store_by_sums(sch, form)
    split_groups(sch, sch.get_sblock(form.reductions[0]))
    merged = merge_axes(sch, form, keep_outputs=True)
    found = _read(sch, form, of_halves)
    if found is None:
        return None
    shapes = {
        str(param.name): tuple(int(extent) for extent in param.ty.shape)
        for param in sch.mod["main"].params
        if is_tensor(param)
    }
    product, epilogue, group = found
    return ProductMatch(product, epilogue, merged.params, shapes, group=group)


def _read(
    sch: Schedule, form: NormalForm, of_halves: bool
) -> tuple[Product, Epilogue, Expression | None] | None:
    """The product, what follows it, and what tells the groups of its rows."""
    block = sch.get(sch.get_sblock(form.reductions[0]))
    operator = extract_operator(block)
    if operator is None or not is_sum_of_products(block):
        return None
    producers = blocks_named(sch, form.producers)
    looked_up = [_looked_up(read, operator, producers) for read in operator.reads]
    found = [own for own in looked_up if own is not None]
    if len(found) > 1:
        return None
    groups, group = (found[0].groups, found[0].group) if found else (None, None)
    reads = [
        _without_producer(read, producers) if own is None else own.read
        for read, own in zip(operator.reads, looked_up, strict=True)
    ]
    known = tuple(read for read in reads if read is not None)
    if len(known) < len(reads):
        return None
    product = find_product(dataclasses.replace(operator, reads=known), groups)
    epilogue = epilogue_of(sch, form, block, operator, of_halves=of_halves)
    if product is None or epilogue is None:
        return None
    # What crosses memory are the stored elements, not the sums.
    tensor = dataclasses.replace(product.write.tensor, dtype=str(epilogue.buffer.ty.dtype))
    write = dataclasses.replace(product.write, tensor=tensor)
    return dataclasses.replace(product, write=write), epilogue, group


def epilogue_of(
    sch: Schedule, form: NormalForm, block: SBlock, operator: Operator, *, of_halves: bool = False
) -> Epilogue | None:
    """Epilogue of the sums of ``block``; ``None`` where the output does not take each once."""
    if not form.outputs:
        return plain_epilogue(block, operator)
    output = sch.get(sch.get_sblock(form.outputs[0]))
    return fused_epilogue(block, operator, output, of_halves=of_halves)


def _without_producer(read: Access, producers: Sequence[SBlock]) -> Access | None:
    """A read of a parameter: itself, or of what a producer pads; ``None`` of anything else."""
    for producer in producers:
        if str(producer.body.buffer.name) == read.tensor.name:
            return unpadded(read, producer)
    return read


def _looked_up(read: Access, operator: Operator, producers: Sequence[SBlock]) -> LookedUp | None:
    """What a producer that looks up matrices reads in place of a read of it, if one does."""
    own = (p for p in producers if str(p.body.buffer.name) == read.tensor.name and is_gather(p))
    return next((looked_up(read, operator, producer) for producer in own), None)


def is_sum_of_products(block: SBlock) -> bool:
    """Whether a reduction adds ``left * right``, each perhaps cast, to a sum that starts at 0."""
    product = summand(block)
    if not isinstance(product, tirx.Mul):
        return False
    dtype = str(block.body.buffer.ty.dtype)
    return all(_is_factor(factor, dtype) for factor in (product.a, product.b))


def _is_factor(factor: Any, sum_dtype: str) -> bool:
    """Whether a factor is a load, perhaps widened, of what the instructions sum up so."""
    load = factor.value if isinstance(factor, tirx.Cast) else factor
    if not isinstance(load, ir.TensorLoad):
        return False
    dtype, read = str(load.source.ty.dtype), str(factor.ty.dtype)
    if element_size(read) < element_size(dtype):
        return False
    if "int" in dtype:
        return read == sum_dtype == "int32"
    return "float" in sum_dtype and sum_dtype != "float64"  # of float32 sums no more can be asked
