"""Two products, one behind the other, whose matrix in between never leaves the chip.

Attention is such a chain: scores, a softmax along their rows, and the product with the values. A
block holds some rows. It walks the keys, the columns of the first product and the depth of the
second one, a tile at a time: the tile of scores stays in registers, becomes weights there, and is
the left operand of the second product (Welder, OSDI'23, section 3: tiles connected at the level of
registers). What a softmax needs of a whole row, its maximum and its sum, runs along; sums so far
are scaled when the maximum grows (Milakov and Gimelshein, 2018; Dao et al., 2022).

A feed-forward network is such a chain, too, with an activation in place of the softmax: what is
called keys here are its hidden channels, scores and weights their values before and behind it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import mul

from tvm_tile.graph.tile_graph import Access, AffineIndex, Axis, Operator
from tvm_tile.tile.attention.band import EVERYWHERE, Band
from tvm_tile.tile.attention.key_tiles import KeyTiles
from tvm_tile.tile.attention.rounds import Rounds
from tvm_tile.tile.units.product import Operand, Product, find_product

WIDEST = 256  # columns of the second product, and depth of the first one


@dataclass(frozen=True, slots=True)
class Chain:
    """``scores = left @ right`` and ``write = f(scores) @ values``, with the same axes' names.

    Attributes:
        first: rows times keys.
        second: rows times columns, summed over the keys; its left operand is made on chip.
        band: the rows' keys outside of it weigh nothing.
        expected: the band that is walked through if rows' positions, numbers in memory that say
            which keys they see, are 0, 1, 2, and so on; ``None``: nothing but ``band`` says that.
        beside: bytes of what else weights are made of, such as a mask or a bias.
        asked: share of the tiles of scores for which some of that is read, key by key.
        listed: the tiles of keys that are walked through where a table says it; ``None``: those in
            the band.
        operations: operations that make a weight of a score where there is no softmax; else
            ``None``.
    """

    first: Product
    second: Product
    band: Band = EVERYWHERE
    expected: Band | None = None
    beside: int = 0
    asked: float = 0.0
    listed: KeyTiles | None = None
    operations: int | None = None

    @property
    def keys(self) -> Axis:
        """Columns of the first product, depth of the second."""
        return self.second.depth

    @property
    def operands(self) -> tuple[Operand, Operand, Operand]:
        """Queries, keys and values."""
        return self.first.left, self.first.right, self.second.right

    @property
    def is_whole(self) -> bool:
        """Whether no values lie behind those of the last key: what is copied there is zero."""
        values = self.second.right
        sizes = zip(values.indices, values.tensor.shape, strict=True)
        end = next((i.offset, extent) for i, extent in sizes if i.coefficient(self.keys.name))
        return end[0] + self.keys.extent >= end[1]

    def rounds(self, size: tuple[int, int], most: int | None = None) -> Rounds:
        """Order in which blocks take tiles of rows, each of which walks through tiles of keys.

        Args:
            size: rows and keys of a tile.
            most: blocks; ``None``: one for each tile of rows of each batch.
        """
        shape = self.first.left.extent, self.keys.extent
        listed = self.listed
        is_listed = listed is not None and (listed.rows, listed.keys) == size
        band = self.expected or self.band
        lengths = listed.lengths if listed and is_listed else band.kept_tiles(shape, size)
        items = len(lengths) * self.first.batches
        return Rounds(lengths, self.first.batches, min(items, most or items))

    def seekers(self, rows: int, threads: int, rounds: Rounds) -> int:
        """Threads that look together for the keys that an item's rows see; 0: the band tells.

        Args:
            rows: rows of an item; a seeker has four, or more.
            threads: threads of a block.
            rounds: order in which blocks take items; each of a block's has its own seekers.
        """
        if self.expected is None:
            return 0
        return min(rows // 4, threads // rounds.most_turns)

    @property
    def has_softmax(self) -> bool:
        """Whether weights are the softmax of a row's scores."""
        return self.operations is None

    @property
    def flops(self) -> int:
        """Floating-point operations of both products."""
        return self.first.flops + self.second.flops

    @property
    def written(self) -> int:
        """Bytes of the result."""
        return self.second.write.tensor.size

    @property
    def traffic(self) -> int:
        """Bytes that cross global memory at least."""
        read = sum(operand.read_size for operand in self.operands) + self.beside
        return read + self.written


def is_narrow(first: Operator) -> bool:
    """Whether kernels of chains hold the depth of a first product, as far as its sums tell."""
    return math.prod(axis.extent for axis in first.reduce_axes) <= WIDEST


def connect(first: Operator, second: Operator) -> Chain | None:
    """Two products as a chain; ``None`` unless the second one takes the first one's output.

    Args:
        first: a product.
        second: product that reads the output of ``first`` and one other tensor, of whose dtype the
            output is taken to be; its axes are named by :func:`with_axes_of`.
    """
    handed = [read for read in second.reads if read.tensor == first.write.tensor]
    others = [read for read in second.reads if read.tensor != first.write.tensor]
    if len(handed) != 1 or len(others) != 1:
        return None
    weights = replace(handed[0].tensor, dtype=others[0].tensor.dtype)
    reads = (replace(handed[0], tensor=weights, is_computed=False), others[0])
    left, right = find_product(first), find_product(replace(second, reads=reads))
    if left is None or right is None or not left.left.free:
        return None
    rows = max(left.left.free, key=lambda axis: axis.extent)
    left, right = (_along(product, rows) for product in (left, right))
    return Chain(left, right) if _are_linked(left, right) else None


def _along(product: Product, rows: Axis) -> Product:
    """A product whose left operand's other axes are its batch's: each makes rows of its own."""
    others = tuple(axis for axis in product.left.free if axis != rows)
    left = replace(product.left, free=tuple(axis for axis in product.left.free if axis == rows))
    # Neighbours, such as heads of a group, read the same keys.
    return replace(product, left=left, batch=(*product.batch, *others))


def with_axes_of(first: Operator, second: Operator) -> Operator | None:
    """``second``, its axes named as in ``first`` where both walk through the same elements.

    Returns:
        ``None`` unless each dimension of the output of ``first`` is read along one axis, or along
        all digits of a number that both write alike.
    """
    handed = [read for read in second.reads if read.tensor == first.write.tensor]
    names = _same_axes(first, second, handed[0]) if len(handed) == 1 else None
    return None if names is None else _renamed(second, names)


def _same_axes(first: Operator, second: Operator, handed: Access) -> dict[str, str] | None:
    """Name of an axis of ``second`` -> of the axis of ``first`` that wrote what it reads."""
    names: dict[str, str] = {}
    for wrote, reads in zip(first.write.indices, handed.indices, strict=True):
        own, others = _digits(wrote, first.extents), _digits(reads, second.extents)
        if own is None or others is None or [t[:2] for t in own] != [t[:2] for t in others]:
            return None
        names |= {theirs[-1]: mine[-1] for mine, theirs in zip(own, others, strict=True)}
    used = {axis.name for axis in first.axes}
    free = [axis.name for axis in second.axes if axis.name not in names]
    # Names of its own may be names of the first one's, too.
    return names | {name: name if name not in used else f"{name}.second" for name in free}


def _digits(index: AffineIndex, extents: Mapping[str, int]) -> list[tuple[int, int, str]] | None:
    """Coefficients, extents and names of the axes that are an index's digits, the fastest first.

    Returns:
        ``None`` where the index is no number of these digits.
    """
    found = sorted((c, extents[name], name) for name, c in index.terms if extents[name] > 1)
    places = itertools.accumulate((extent for _, extent, _ in found), mul, initial=1)
    is_number = all(c == place for (c, _, _), place in zip(found, places, strict=False))
    return found if is_number and not index.offset else None


def _renamed(operator: Operator, names: dict[str, str]) -> Operator:
    """The operator with other names of its axes."""
    return replace(
        operator,
        axes=tuple(replace(axis, name=names[axis.name]) for axis in operator.axes),
        reads=tuple(read.renamed(names) for read in operator.reads),
        write=operator.write.renamed(names),
    )


def _are_linked(first: Product, second: Product) -> bool:
    """Whether rows are rows, the keys are the depth, all of them, and nothing else is summed."""
    rows, keys = first.left.free, first.right.free
    is_row = second.left.free == rows and len(rows) == 1
    is_key = len(keys) == 1 and second.depth == replace(keys[0], is_reduce=True)
    same_batch = set(first.batch) == set(second.batch)
    return is_row and is_key and same_batch and not first.steps and not second.steps


def is_along_rows(keys: Axis, operators: Sequence[Operator]) -> bool:
    """Whether results between two products are of a row's keys, all of them, and used in that row.

    Args:
        keys: the axis, as of the first product or of the second one's depth.
        operators: the operators between the products, and the second product, in order; their axes
            are named by :func:`with_axes_of`.
    """
    for place, operator in enumerate(operators[:-1]):
        if [axis.name for axis in operator.reduce_axes if axis.extent > 1] != [keys.name]:
            return False
        own = operator.write.along(operator.long_axes).indices
        for later in operators[place + 1 :]:
            reads = [read for read in later.reads if read.tensor == operator.write.tensor]
            if any(read.along(later.long_axes).indices != own for read in reads):
                return False
    return True
