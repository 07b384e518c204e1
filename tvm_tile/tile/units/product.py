"""Products as matrix units see them: rows times columns, summed over a depth, step by step.

A convolution is one, too (an implicit product): its rows are the places of the image, its columns
the filters, its depth the channels, and each element of the window is a step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tvm_tile.graph.positions import Grouped, Listed
from tvm_tile.graph.sparsity import Compressed, Sparsity
from tvm_tile.graph.tile_graph import Access, AffineIndex, Axis, Operator, Tensor

_Dimension = tuple[int, AffineIndex, int]  # extent, index, stride in bytes

_FARTHEST = 1 << 31  # elements that an address reaches


@dataclass(frozen=True, slots=True)
class Operand:
    """One factor, and the axes of the output that it has and the other has not.

    Attributes:
        tensor: tensor in global memory.
        indices: one a dimension; where they leave the tensor, its elements are zero.
        free: axes in the order of the dimensions that they walk through.
        is_depth_major: whether the summed depth is contiguous; if not, the last free axis is.
        strides: bytes between neighbours along each dimension.
        size: bytes in memory.
        read_size: bytes of these that are read, which are fewer of a slice.
        listed: chunks of the depth that are not zeros; ``None`` where all may have others.
        compressed: how a matrix is kept of which ``tensor`` has some numbers alone, and another one
            tells which they are; ``None`` where it has all.
    """

    tensor: Tensor
    indices: tuple[AffineIndex, ...]
    free: tuple[Axis, ...]
    is_depth_major: bool
    strides: tuple[int, ...]
    size: int
    read_size: int
    listed: Listed | None = None
    compressed: Compressed | None = None

    @property
    def extent(self) -> int:
        """Rows of the left operand, columns of the right one."""
        return math.prod(axis.extent for axis in self.free)

    def depth_bytes(self, depth: float) -> float:
        """Bytes of the tensor along so many summed elements of a row, or of a column."""
        share = 1.0 if self.sparsity is None else self.sparsity.share
        return depth * share * self.tensor.element_size

    @property
    def sparsity(self) -> Sparsity | None:
        """How many of a row's neighbours the tensor has; ``None`` where all."""
        return None if self.compressed is None else self.compressed.sparsity

    @property
    def is_within_reach(self) -> bool:
        """Whether a signed number of 32 bits tells its elements apart."""
        return self.size // self.tensor.element_size < _FARTHEST

    @property
    def dimensions(self) -> list[_Dimension]:
        """Extent, index and stride of each."""
        return list(zip(self.tensor.shape, self.indices, self.strides, strict=True))


@dataclass(frozen=True, slots=True)
class Product:
    """``write[batch, rows, columns] = sum over steps and depth of left * right``.

    Attributes:
        left: the operand that has the rows.
        right: the operand that has the columns, among them the output's contiguous axis.
        batch: axes of the output that both operands have (groups of a convolution, too).
        steps: summed axes that are walked one by one.
        depth: the summed axis that is cut into chunks.
        write: the output.
        groups: groups of the rows, if each has a matrix of its own on the right; ``None``: all have
            the same.
        sums: how many sums make an element of the output: neighbours along the last of the right
            operand's axes.
    """

    left: Operand
    right: Operand
    batch: tuple[Axis, ...]
    steps: tuple[Axis, ...]
    depth: Axis
    write: Access
    groups: Grouped | None = None
    sums: int = 1

    @property
    def outer(self) -> tuple[Axis, ...]:
        """Axes of which a tile has one value: batches, and the group of its rows."""
        return (*self.batch, self.groups.axis) if self.groups else self.batch

    @property
    def batches(self) -> int:
        """Products that are independent of each other."""
        return math.prod(axis.extent for axis in self.batch)

    def shortened(self, extents: Mapping[str, int]) -> Product:
        """The product without the last values of some axes that the output has.

        Args:
            extents: names of axes -> how many values they keep.
        """

        def shorter(axes: Sequence[Axis]) -> tuple[Axis, ...]:
            return tuple(replace(axis, extent=extents.get(axis.name, axis.extent)) for axis in axes)

        def own(operand: Operand) -> Operand:
            free, batch = shorter(operand.free), shorter(self.batch)
            kept = math.prod(axis.extent for axis in (*free, *batch))
            size = operand.read_size * kept // (operand.extent * self.batches)
            return replace(operand, free=free, read_size=size)

        axes = (*self.batch, *self.left.free, *self.right.free)
        shape = self.write.region({axis.name: axis.extent for axis in shorter(axes)})
        tensor = replace(self.write.tensor, shape=shape)
        left, right = own(self.left), own(self.right)
        write = replace(self.write, tensor=tensor)
        groups = self.groups and replace(self.groups, rows=shorter(self.groups.rows))
        found = replace(self, left=left, right=right, batch=shorter(self.batch), write=write)
        return replace(found, groups=groups)

    @property
    def listed(self) -> Listed | None:
        """Lists of the chunks that are not zeros, if one of the operands has some."""
        return self.left.listed or self.right.listed

    @property
    def read_size(self) -> int:
        """Bytes of both operands that are read; of one with lists, of what these tell."""
        shares = [1.0 if side.listed is None else side.listed.share for side in self._sides]
        return sum(int(s.read_size * n) for s, n in zip(self._sides, shares, strict=True))

    @property
    def _sides(self) -> tuple[Operand, Operand]:
        return self.left, self.right

    @property
    def flops(self) -> int:
        """A multiply-add is two."""
        summed = self.depth.extent * math.prod(axis.extent for axis in self.steps)
        return 2 * self.batches * self.left.extent * self.right.extent * summed

    @property
    def traffic(self) -> int:
        """Bytes that cross global memory at least."""
        return self.read_size + self.write.tensor.size


def find_product(operator: Operator, groups: Grouped | None = None) -> Product | None:
    """The roles of an operator's axes; ``None`` where it is no product of two tensors.

    Args:
        operator: sum of products of two tensors' elements.
        groups: groups of the output's rows, of whose axis one of the tensors has a dimension.
    """
    if len(operator.reads) != 2 or not operator.reduce_axes:
        return None
    operator = _without_units(operator, (groups.axis.name,) if groups else ())
    if not operator.reduce_axes:
        return None
    if not all(read.is_exact and not read.is_computed for read in operator.reads):
        return None
    if operator.reads[0].tensor.element_size != operator.reads[1].tensor.element_size:
        return None
    used = [read.axes for read in operator.reads]
    depth = _depth(operator)
    rows = {axis.name for axis in groups.rows} if groups else set()
    is_complete = all(axis.name in used[0] | used[1] | rows for axis in operator.spatial_axes)
    if depth is None or not is_complete:
        return None
    free = [
        [axis for axis in operator.spatial_axes if axis.name in used[i] - used[1 - i]]
        for i in range(2)
    ]
    operands = [
        _operand(read, own, depth, operator.extents)
        for read, own in zip(operator.reads, free, strict=True)
    ]
    if operator.write.contiguous_axis in used[0] - used[1]:
        operands.reverse()
    left, right = operands
    if left is None or right is None:
        return None
    batch = tuple(axis for axis in operator.spatial_axes if axis.name in used[0] & used[1])
    steps = tuple(axis for axis in operator.reduce_axes if axis is not depth)
    found = Product(left, right, batch, steps, depth, operator.write)
    return found if groups is None else _of_groups(found, groups)


def _of_groups(product: Product, groups: Grouped) -> Product | None:
    """A product whose rows are in groups; ``None`` where its left operand has not all its rows, or
    cannot be read row by row."""
    left, right = product.left, product.right
    groups = replace(groups, rows=tuple(axis for axis in groups.rows if axis.extent > 1))
    names = {axis.name for axis in groups.rows}
    has_group = any(index.coefficient(groups.axis.name) for index in right.indices)
    if product.batch or not names or not has_group or not left.is_depth_major:
        return None
    if not {axis.name for axis in left.free} <= names:
        return None
    # Of the matrices those are read that some row is of.
    read = round(right.size * min(1.0, groups.met / groups.axis.extent))
    left, right = replace(left, free=groups.rows), replace(right, read_size=read)
    return replace(product, left=left, right=right, groups=groups)


def fold_window(product: Product, line: int) -> Product:
    """The product with a longer depth, where its depth is short and a window's row lies beside it.

    An image of 8 channels under a window 7 wide: ``x[n, 2 * i + a, 2 * j + b, c]`` is
    ``x'[n, 2 * i + a, j, d]`` with ``d = 8 * b + c``, of which there are 56, where ``x'`` is ``x``
    seen with 16 elements from one ``j`` to the next: its rows overlap.

    Args:
        product: a product with the depth contiguous in both operands, if it is to be folded.
        line: elements of a chunk, less of which takes as long.

    Returns:
        The product with fewer chunks, or as it was.
    """
    depth = product.depth
    for step in product.steps:
        longer = Axis(f"{step.name}.{depth.name}", step.extent * depth.extent, is_reduce=True)
        if -(-longer.extent // line) >= step.extent * -(-depth.extent // line):
            continue
        left = _folded(product.left, step, depth, longer)
        right = _folded(product.right, step, depth, longer)
        if left is not None and right is not None:
            steps = tuple(axis for axis in product.steps if axis is not step)
            return replace(product, left=left, right=right, steps=steps, depth=longer)
    return product


def _folded(operand: Operand, step: Axis, depth: Axis, longer: Axis) -> Operand | None:
    """An operand with its last two dimensions as one, the rest of the window's index before it."""
    if not operand.is_depth_major or len(operand.indices) < 2:
        return None
    *dimensions, (_, window, stride), (extent, inner, element) = operand.dimensions
    rest = tuple(term for term in window.terms if term[0] != step.name)
    used = sum(index.coefficient(step.name) != 0 for index in operand.indices)
    is_window = window.coefficient(step.name) == 1 and not window.offset and used == 1
    # What is read from elsewhere on, such as from padding, is no row of neighbours.
    if extent != depth.extent or inner.offset or not is_window or len(rest) > 1:
        return None
    free = {axis.name: axis for axis in operand.free}
    for name, coefficient in rest:
        if name not in free:
            return None
        place = AffineIndex(((name, 1),))
        dimensions.append((free[name].extent, place, stride * coefficient))
    dimensions.append((longer.extent, AffineIndex(((longer.name, 1),)), element))
    return seen_as(operand, dimensions)


def spread_steps(product: Product, longest: int) -> Product:
    """Windows that move by more than ``longest`` elements as two dimensions each.

    Patches of an image, 16 apart: ``x[n, 16 * i + a]`` is ``x'[n, i, a]``, where ``x'`` is ``x``
    seen with 16 rows from one ``i`` to the next. Copies then step over nothing.
    """
    left, right = (_spread(operand, longest) for operand in (product.left, product.right))
    return replace(product, left=left, right=right)


def _spread(operand: Operand, longest: int) -> Operand:
    """The operand with axes of large strides as dimensions of their own."""
    free = {axis.name: axis for axis in operand.free}
    dimensions: list[_Dimension] = []
    for extent, index, stride in operand.dimensions:
        long = [(name, c) for name, c in index.terms if name in free and c > longest]
        if index.offset or not long:
            dimensions.append((extent, index, stride))
            continue
        ((name, coefficient),) = long
        rest = tuple(term for term in index.terms if term[0] != name)
        dimensions.append((free[name].extent, AffineIndex(((name, 1),)), stride * coefficient))
        if rest:
            dimensions.append((extent, AffineIndex(rest), stride))
    return seen_as(operand, dimensions)


def seen_as(operand: Operand, dimensions: Sequence[_Dimension]) -> Operand:
    """The operand, its memory seen as a tensor of other dimensions."""
    extents, indices, strides = zip(*dimensions, strict=True)
    tensor = Tensor(operand.tensor.name, extents, operand.tensor.dtype)
    return replace(operand, tensor=tensor, indices=indices, strides=strides)


def _without_units(operator: Operator, others: Sequence[str]) -> Operator:
    """An operator without its axes of one element, whose only value is zero; with ``others``."""
    long = operator.long_axes.union(others)
    return replace(
        operator,
        axes=tuple(axis for axis in operator.axes if axis.name in long),
        reads=tuple(read.along(long) for read in operator.reads),
        write=operator.write.along(long),
    )


def _depth(operator: Operator) -> Axis | None:
    """The longest summed axis that has a dimension of each operand for itself."""
    alone = [
        axis
        for axis in operator.reduce_axes
        if all(_is_alone(read.indices, axis) for read in operator.reads)
    ]
    contiguous = [
        axis for axis in alone if any(axis.name == r.contiguous_axis for r in operator.reads)
    ]
    return max(contiguous or alone, key=lambda axis: axis.extent, default=None)


def _is_alone(indices: tuple[AffineIndex, ...], axis: Axis) -> bool:
    """Whether an axis has a dimension for itself, or the inner part of one."""
    found = [index for index in indices if index.coefficient(axis.name)]
    if len(found) != 1 or found[0].coefficient(axis.name) != 1:
        return False
    return all(name == axis.name or c % axis.extent == 0 for name, c in found[0].terms)


def _operand(
    read: Access, free: list[Axis], depth: Axis, extents: dict[str, int]
) -> Operand | None:
    """An operand, its dimensions of one element left out; ``None`` if it cannot be boxed."""
    kept = [d for d, extent in enumerate(read.tensor.shape) if extent > 1]
    # What is read elsewhere in a left-out dimension lies outside, and is zero.
    left_out = (index for d, index in enumerate(read.indices) if d not in kept)
    if any(index.offset or index.terms for index in left_out) or not kept:
        return None
    whole = Tensor(read.tensor.name, tuple(read.tensor.shape[d] for d in kept), read.tensor.dtype)
    strides = (stride * whole.element_size for stride in whole.strides)
    dimensions = zip(whole.shape, (read.indices[d] for d in kept), strides, strict=True)
    boxed = {axis.name: axis.extent for axis in (*free, depth)}
    shape, indices, steps = zip(
        *(part for dimension in dimensions for part in _parts(dimension, boxed)), strict=True
    )
    names = {axis.name for axis in free}
    order = [name for index in indices for name, _ in index.terms if name in names]
    # At most one boxed axis a dimension, and each in one dimension.
    most = max(sum(name in boxed for name, _ in index.terms) for index in indices)
    if len(set(order)) != len(order) or most > 1 or len(order) != len(names):
        return None
    if any(c < 0 for index in indices for _, c in index.terms):
        return None
    last = indices[-1].terms
    if any(coefficient != 1 for _, coefficient in last) or len(last) != 1:
        return None
    ((inner, _),) = last
    if inner not in boxed:
        return None
    by_name = {axis.name: axis for axis in free}
    tensor = replace(whole, shape=shape)
    own = tuple(by_name[n] for n in order)
    read_size = read.elements(extents) * read.tensor.element_size
    return Operand(tensor, indices, own, inner == depth.name, steps, tensor.size, read_size)


def _parts(dimension: _Dimension, boxed: Mapping[str, int]) -> list[_Dimension]:
    """A dimension, or the two that it is made of: heads of 64 elements each, say.

    ``x[64 * h + d]`` is ``x'[h, d]`` where ``d`` runs through 64 elements.
    """
    extent, index, stride = dimension
    inner = [name for name, coefficient in index.terms if name in boxed and coefficient == 1]
    if len(index.terms) < 2 or len(inner) != 1:
        return [dimension]
    size = boxed[inner[0]]
    rest = [(name, coefficient) for name, coefficient in index.terms if name != inner[0]]
    if any(number % size for number in (extent, index.offset, *(c for _, c in rest))):
        return [dimension]
    outer = AffineIndex(tuple((name, c // size) for name, c in rest), index.offset // size)
    return [
        (extent // size, outer, stride * size),
        (size, AffineIndex(((inner[0], 1),)), stride),
    ]
