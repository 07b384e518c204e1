"""Products of a long operand with a few vectors: the parts that axes play, what makes the short
operand, and which products of one short operand are one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tvm_tile.device.device import VECTOR_BYTES, Device
from tvm_tile.graph.tile_graph import Access, AffineIndex, Axis, Operator
from tvm_tile.tile.cost import arithmetic_slots
from tvm_tile.tile.register_use import register_use
from tvm_tile.tile.time import Part

MOST_VECTORS = 8  # each has a sum in registers for every row that a thread works on
_FEWEST_ROWS = 4  # fewer share a vector too little to be told from plain sums
_SHORTEST_SUM = 32  # points; below that, lanes have nothing to share
_BYTES_AT_ONCE = 4  # elements of one byte in a vector
# Words of a thread's loads that nvcc has on their way at once, and turns of a short loop whose
# loads it does together, as machine code for sm_90a shows.
_FLYING_WORDS, _UNROLLED = 16, 4
TREE_MOVES = 4  # stores and loads of shared memory by which warps add up a sum, and all get it


@dataclass(frozen=True, slots=True)
class Prologue:
    """Computation of the short operand, such as a norm of its rows, by each block anew.

    Attributes:
        stages: number of stages, each of which takes the result of the one before.
        sums: sums that all threads of a block add up together, one after the other.
        operations: operations on single elements, in all stages.
        shared_bytes: bytes of the short operand in shared memory.
        elements: elements of the short operand.
        loads: elements that are loaded from memory, in all stages.
        read_bytes: bytes of all tensors that are read from memory.
        stored_bytes: bytes of tensors that one block stores for others.
    """

    stages: int
    sums: int
    operations: int
    shared_bytes: int
    elements: int
    loads: int
    read_bytes: int
    stored_bytes: int = 0

    @classmethod
    def of(cls, stages: Sequence[Operator]) -> Prologue | None:
        """The prologue of operators, the last of which makes the operand.

        ``None`` where some make sums of more rows than there are vectors in a product.
        """
        sums = [op.write.tensor for op in stages if op.reduce_axes]
        if any(math.prod(tensor.shape) > MOST_VECTORS for tensor in sums):
            return None
        operations = sum(op.points * (op.flops + len(op.reads)) for op in stages)
        results = sum(math.prod(tensor.shape) for tensor in sums)
        operand, made = stages[-1].write.tensor, {op.write.tensor for op in stages}
        outside = [(op, r) for op in stages for r in op.reads if r.tensor not in made]
        sizes = {read.tensor: _bytes(read, op) for op, read in outside}
        return cls(
            *(len(stages), results, operations, operand.size, math.prod(operand.shape)),
            loads=sum(op.points for op, _ in outside),
            read_bytes=sum(sizes.values()),
        )

    def part(self, threads: int, device: Device) -> Part:
        """What a block of ``threads`` threads does until these can read the operand.

        Sums follow one another: partial sums meet in a tree of shuffles, through shared memory in
        another one, and its result goes to all threads through shared memory, too. The first stage
        brings the rows, the last one what it alone reads; stages between find the rows in the
        first-level cache.
        """
        warp = device.warp_size
        warps = -(-threads // warp)
        turns = -(-self.elements // threads)
        rows = self.sums // max(1, self.stages - 1)
        trips = max(rows, -(-turns // _UNROLLED))
        tree = 2 * math.log2(threads)  # shuffles and additions
        stored = self.elements / warp
        return Part(
            fills=self.read_bytes,
            operations=self.operations * arithmetic_slots(device) / warp + self.sums * warps * tree,
            moves=self.loads / warp + stored + self.sums * warps * TREE_MOVES,
            wavefronts=stored + self.sums * warps * TREE_MOVES,
            loads=trips + (self.stages > 1) * -(-turns // _UNROLLED),
            barriers=2 * self.sums + 1,
            exchanges=max(0, self.stages - 2) * trips + self.sums * (math.log2(threads) + 2),
        )


@dataclass(frozen=True, slots=True)
class Matvec:
    """The parts that the axes of such a product play; axes of one element count as vectors.

    Attributes:
        streamed: the long operand.
        reused: the short one.
        batch: places, in the operator's axes, of those that both operands have.
        rows: extent of the axes that only the long operand has.
        vectors: extent of the axes that only the short operand has, or none.
        summed: extent of the long summed axis.
        parts: the first axis, where it tells apart the sums of several products of one short
            operand, which a thread works on side by side.
        beside: the long operands of the others of these.
        prologue: computation of the short operand by each block; ``None`` where it lies in memory.
    """

    streamed: Access
    reused: Access
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    vectors: tuple[int, ...]
    summed: int
    parts: tuple[int, ...] = ()
    beside: tuple[Access, ...] = ()
    prologue: Prologue | None = None


def find_matvec(operator: Operator, device: Device) -> Matvec | None:
    """The parts of a product that is bound by reading its longer operand; ``None`` for others.

    Both operands are read as they lie, each dimension along one axis, and the arithmetic, on
    plain cores in float32, takes less time than reading.
    """
    if len(operator.reads) != 2 or not all(_is_plain(read, operator) for read in operator.reads):
        return None
    reused, streamed = sorted(operator.reads, key=lambda read: _bytes(read, operator))
    if reused.tensor == streamed.tensor:
        return None
    long = [(place, axis) for place, axis in enumerate(operator.axes) if axis.extent > 1]
    summed = [place for place, axis in long if axis.is_reduce]
    if len(summed) != 1 or operator.axes[summed[0]].extent < _SHORTEST_SUM:
        return None
    if any(operator.axes[summed[0]].name not in read.axes for read in operator.reads):
        return None
    spatial = [(place, axis.name) for place, axis in long if not axis.is_reduce]
    batch = [p for p, name in spatial if name in streamed.axes and name in reused.axes]
    rows = [p for p, name in spatial if name in streamed.axes and name not in reused.axes]
    vectors = [p for p, axis in enumerate(operator.axes) if not axis.is_reduce]
    vectors = [p for p in vectors if p not in (*batch, *rows)]
    found = Matvec(streamed, reused, tuple(batch), tuple(rows), tuple(vectors), summed[0])
    is_few = extent_of(operator, found.vectors) <= MOST_VECTORS
    if not is_few or extent_of(operator, found.rows) < _FEWEST_ROWS:
        return None
    arithmetic = operator.total_flops / device.flops("float32")
    return found if arithmetic <= _bytes(streamed, operator) / device.read_bandwidth else None


def load_trips(words: int, steps: int, device: Device) -> float:
    """Trips to memory, one behind the other, for a step of a loop.

    A compiler that saves registers waits for some of a step's loads before it asks for more, and
    asks for those of several short steps at once.

    Args:
        words: registers of a thread that the step's loads fill.
        steps: steps of the loop.
        device: the device that is compiled for.
    """
    if register_use(device).is_eager:
        return 1
    together = min(steps, _UNROLLED, max(1, _FLYING_WORDS // max(1, words)))
    return -(-words // _FLYING_WORDS) / together


def _is_plain(read: Access, operator: Operator) -> bool:
    """Whether every dimension is walked along one axis of its own, from the start."""
    terms = [index.terms for index in read.along(operator.long_axes).indices]
    axes = [axis for own in terms for axis, _ in own]
    return (
        read.is_exact
        and not read.is_computed
        and not any(index.offset for index in read.indices)
        and all(len(own) < 2 for own in terms)
        and all(coefficient == 1 for own in terms for _, coefficient in own)
        and len(set(axes)) == len(axes)
    )


def extent_of(operator: Operator, places: tuple[int, ...]) -> int:
    """Elements of the axes at these places together."""
    return math.prod(operator.axes[place].extent for place in places)


def _bytes(read: Access, operator: Operator) -> int:
    """Bytes that a read touches over the whole operator."""
    return read.elements(operator.extents) * read.tensor.element_size


def vector_along(read: Access, axis: Axis, operator: Operator) -> int:
    """Neighbouring elements along ``axis`` that one aligned load can fetch."""
    strides = read.strides
    if strides.get(axis.name) != 1:
        return 1
    size = read.tensor.element_size
    # Of types of one byte TVM writes no longer vectors of zeros.
    widest = _BYTES_AT_ONCE if size == 1 else max(1, VECTOR_BYTES // size)
    others = [a for a in operator.axes if a.extent > 1 and a.name != axis.name]
    return math.gcd(widest, axis.extent, *(strides.get(a.name, 0) for a in others))


def side_by_side(
    operators: Sequence[Operator], products: Sequence[Matvec]
) -> tuple[Operator, Matvec] | None:
    """Products of one short operand as one: a first axis more tells their sums apart.

    Args:
        operators: the products, as they stand.
        products: the parts of their axes.

    Returns:
        ``None`` where axes have other extents, play another part or lie elsewhere in one of them.
    """
    operator, product = operators[0], products[0]
    others = [
        _in_terms_of(operator, own, part)
        for own, part in zip(operators[1:], products[1:], strict=True)
    ]
    beside = tuple(other.streamed for other in others if other is not None)
    like = replace(product.streamed.tensor, name="")
    for other in others:
        if other is None or replace(other, streamed=product.streamed) != product:
            return None
        streamed = other.streamed
        is_alike = replace(streamed.tensor, name="") == like
        if not is_alike or streamed.indices != product.streamed.indices:
            return None
    part = Axis("part", len(operators))
    sums = replace(operator.write.tensor, shape=(part.extent, *operator.write.tensor.shape))
    write = Access(sums, (AffineIndex(((part.name, 1),)), *operator.write.indices))
    axes, reads = (part, *operator.axes), (*operator.reads, *beside)
    batch, rows, vectors = (
        tuple(place + 1 for place in own) for own in (product.batch, product.rows, product.vectors)
    )
    whole = replace(product, batch=batch, rows=rows, vectors=vectors, summed=product.summed + 1)
    return (
        replace(operator, axes=axes, reads=reads, write=write),
        replace(whole, parts=(0,), beside=beside),
    )


def _in_terms_of(like: Operator, operator: Operator, product: Matvec) -> Matvec | None:
    """A product's parts, its axes named as those of another; ``None`` where they differ."""
    pairs = list(zip(operator.axes, like.axes, strict=False))
    names = {own.name: other.name for own, other in pairs}
    is_alike = len(operator.axes) == len(like.axes) and all(
        replace(own, name=other.name) == other for own, other in pairs
    )

    own, other = operator.write.renamed(names), like.write
    if not is_alike or own.indices != other.indices or own.tensor.dtype != other.tensor.dtype:
        return None
    streamed, reused = (read.renamed(names) for read in (product.streamed, product.reused))
    return replace(product, streamed=streamed, reused=reused)
