"""The product of a function that decodes its matrix, and how that is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tvm_tile.graph.extract import blocks_in, extract, loads_in
from tvm_tile.graph.tensor_format import E8M0, Entries, Floats, Integers, Shared, TensorFormat
from tvm_tile.graph.tile_graph import Axis
from tvm_tile.loops.decoding import format_of_block
from tvm_tile.schedule.coded.made_vectors import MadeVectors, find_made_vectors
from tvm_tile.schedule.coded.pairs import Pairs, pairs_of
from tvm_tile.schedule.coded.words import WORD
from tvm_tile.schedule.rule import Task
from tvm_tile.schedule.s_tir.steps import without_blocks
from tvm_tile.schedule.tensor_cores.found import ProductMatch, find_in
from tvm_tile.tile.coded.few_vectors import CodedProduct
from tvm_tile.tile.units.product import Operand

_LOAD = 16  # bytes
_FARTHEST = 1 << 31  # words of codes that an index reaches
_BYTE = 8  # bits
_SCALES = ("float16", "bfloat16", "float32", "int8", "uint8")


@dataclass(frozen=True, slots=True)
class CodedMatch:
    """A product with a matrix of codes, or of each row with one of a stack of these.

    Attributes:
        found: the product; its right operand is the decoded matrix, or the stack.
        params: parameters of the function, as its callers pass them.
        form: how the matrix is kept.
        pairs: how the codes become halves.
        packed: name of the parameter that has them.
        table: name of the one that has the entries that they number; ``None`` of other codes.
        scales: each of its boxes, and the name of the parameter that has it.
        zero: likewise; ``None`` where nothing is subtracted.
        made: vectors that each block makes for itself; ``None`` where they lie in memory.
        starts_early: whether the kernel may start while the one before it ends, and then waits for
            it once it has asked for codes. Not where data tell which codes these are.
        slot: the most rows of a tile, where rows are in groups, of which each has a matrix.
    """

    found: ProductMatch
    params: Sequence[Any]
    form: TensorFormat
    pairs: Pairs
    packed: str
    table: str | None
    scales: tuple[tuple[Shared, str], ...]
    zero: tuple[Shared, str] | None
    made: MadeVectors | None = None
    starts_early: bool = False
    slot: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the matrix, or of the stack."""
        return self.found.product.right.tensor.shape

    @property
    def sizes(self) -> CodedProduct:
        """Sizes of the product that tiles are made for."""
        product, groups = self.found.product, self.found.product.groups
        boxes = [box for box, _ in (*self.scales, *((self.zero,) if self.zero else ()))]
        depth = product.depth.extent
        group = math.gcd(depth, *(min(box.box[-1], depth) for box in boxes))
        beside = sum(box.bytes(self.shape) for box in boxes)
        if groups is not None:
            beside //= groups.axis.extent
        codes, vectors = self.pairs, self.slot or product.left.extent
        halves = len(self.found.epilogue.element.given)
        prologue = self.made.prologue if self.made else None
        sizes = vectors, product.right.extent, depth, codes.bits, group, beside
        how = codes.instructions, halves, prologue, self._can_be_scaled
        return CodedProduct(*sizes, *how, groups)

    @property
    def _can_be_scaled(self) -> bool:
        """Whether weights times their only scale, in their own type, are the format's numbers.

        Codes have few bits, so that no product is rounded in float32.
        """
        if len(self.scales) != 1:
            return False
        ((scale, _),) = self.scales
        dtype, stored = self.form.dtype, scale.stored
        is_power = dtype == "bfloat16" and stored == E8M0
        is_half = is_power or stored in (dtype, "int8", "uint8")
        return is_half and scale.dtype in (dtype, "float32")


def find_coded(task: Task) -> CodedMatch | None:
    """The product of a function, if it decodes its matrix and that is kept as this rule reads it.

    Its vectors lie in memory, or are rows that sums along them make, such as a norm's. Each may
    have a matrix of its own, which data tell, among those of a stack.
    Codes are integers, floats or entries of a table, of any scales, and integers perhaps less a
    zero point that is an integer, too; shared along the sum.
    """
    decoding = _decoding(task.func)
    if decoding is None:
        return None
    block, form = decoding
    pairs = pairs_of(form)
    if pairs is None or not _is_known(form, len(block.body.buffer.ty.shape)):
        return None
    decoded = block.body.buffer
    func = without_blocks(task.func, [block], decoded)
    behind = find_made_vectors(func, decoded)
    made = None
    if behind is not None:
        made, func, blocks = behind
        func = without_blocks(func, blocks, made.tensor)
    graph = extract(func)
    if graph is None:
        return None
    own = Task(func, graph, task.device, task.extents)
    found = find_in(own, (form.dtype,), of_halves=True, in_groups=True)
    if found is None or not _is_matrix(found, str(decoded.name), pairs.bits):
        return None
    if made is not None and not _takes_all(found, made):
        return None
    sources = dict.fromkeys(load.source for load in loads_in(block.body.value))
    names = [str(source.name) for source in sources]
    table = names.pop(0) if isinstance(form.code, Entries) else None  # read at what a code says
    if len(names) != 1 + len(form.shared):
        return None
    packed, *others = names
    shared = list(zip(form.shared, others, strict=True))
    zero = shared.pop(0) if form.zero is not None else None
    scales, params = tuple(shared), task.func.params
    beside = made, task.device.supports_dependent_launches and found.group is None
    return CodedMatch(found, params, form, pairs, packed, table, scales, zero, *beside)


def _decoding(func: tirx.PrimFunc) -> tuple[Any, TensorFormat] | None:
    """The only block of a function that decodes a tensor, and how that is kept."""
    blocks = blocks_in(func.body)
    found = [(block, form) for block in blocks if (form := format_of_block(block)) is not None]
    return found[0] if len(found) == 1 else None


def _is_known(form: TensorFormat, rank: int) -> bool:
    """Whether the steps behind the codes of a tensor of ``rank`` dimensions are a zero point of
    integers, if any, and scales.

    Products with all scales but the last are not to overflow: they are float32's.
    """
    if form.offset is not None or any(len(shared.box) != rank for shared in form.shared):
        return False
    if form.zero is not None and form.zero.stored not in _zeros(form):
        return False
    is_wide = all(scale.dtype == "float32" for scale in form.scales[:-1])
    stored = [scale.stored for scale in form.scales]
    return is_wide and all(isinstance(kind, Floats) or kind in _SCALES for kind in stored)


def _zeros(form: TensorFormat) -> tuple[str, ...]:
    """Element types of zero points whose differences from all codes the values' type has."""
    if not isinstance(form.code, Integers):
        return ()
    if form.dtype == "bfloat16" and form.code.bits == _BYTE:
        return ()
    # Of bfloat16 integers up to 256: not -8 - 255.
    is_far = form.dtype == "bfloat16" and form.code.is_signed
    return ("int8",) if is_far else ("int8", "uint8")


def _is_matrix(found: ProductMatch, name: str, bits: int) -> bool:
    """Whether a match is a plain product of rows with a whole matrix, contiguous along the sum, or
    with those of a whole stack, of ``bits`` an element."""
    product, right = found.product, found.product.right
    if product.batch or product.steps or right.tensor.name != name:
        return False
    left, groups, matrix = product.left, product.groups, (right.extent, product.depth.extent)
    whole = matrix if groups is None else (groups.axis.extent, *matrix)
    is_near = math.prod(whole) * bits // WORD < _FARTHEST
    is_whole = right.tensor.shape == whole and is_near
    is_short = (groups is not None or len(left.free) <= 1) and len(right.free) == 1
    is_16_bits = left.tensor.dtype == right.tensor.dtype
    is_plain = is_whole and is_short and is_16_bits
    return is_plain and right.is_depth_major and _is_loaded_whole(left, product.depth)


def _is_loaded_whole(operand: Operand, depth: Axis) -> bool:
    """Whether rows begin where 16 bytes do, and nothing of them is outside of the tensor."""
    extents = {axis.name: axis.extent for axis in (*operand.free, depth)}
    start = 0
    for extent, index, stride in operand.dimensions:
        steps = [c * stride for name, c in index.terms if name != depth.name]
        last = index.offset + sum(c * (extents[name] - 1) for name, c in index.terms)
        if any(step % _LOAD for step in steps) or index.offset < 0 or last >= extent:
            return False
        start += index.offset * stride
    return operand.is_depth_major and start % _LOAD == 0


def _takes_all(found: ProductMatch, made: MadeVectors) -> bool:
    """Whether a product, and nothing behind it, takes the vectors that blocks make, all of them."""
    left, name = found.product.left, str(made.tensor.name)
    is_whole = math.prod(made.extents) == left.extent * found.product.depth.extent
    return left.tensor.name == name and is_whole and name not in found.epilogue.tensors
