"""Products as matrix units see them: rows times columns, summed over a depth, step by step.

A convolution is one, too (an implicit product): its rows are the places of the image, its columns
the filters, its depth the channels, and each element of the window is a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tvm_tile.graph.tile_graph import Access, AffineIndex, Axis, Operator, Tensor


@dataclass(frozen=True, slots=True)
class Operand:
    """One factor, and the axes of the output that it has and the other has not.

    Attributes:
        tensor: in global memory.
        indices: one a dimension; where they leave the tensor, its elements are zero.
        free: in the order of the dimensions that they walk through.
        is_depth_major: whether the summed depth is contiguous; if not, the last free axis is.
    """

    tensor: Tensor
    indices: tuple[AffineIndex, ...]
    free: tuple[Axis, ...]
    is_depth_major: bool

    @property
    def extent(self) -> int:
        """Rows of the left operand, columns of the right one."""
        return math.prod(axis.extent for axis in self.free)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes between neighbours along each dimension."""
        sizes = [self.tensor.element_size]
        for extent in reversed(self.tensor.shape[1:]):
            sizes.append(sizes[-1] * extent)
        return tuple(reversed(sizes))


@dataclass(frozen=True, slots=True)
class Product:
    """``write[batch, rows, columns] = sum over steps and depth of left * right``.

    Attributes:
        left: has the rows.
        right: has the columns, among them the output's contiguous axis.
        batch: axes of the output that both operands have (groups of a convolution, too).
        steps: summed axes that are walked one by one.
        depth: the summed axis that is cut into chunks.
        write: the output.
    """

    left: Operand
    right: Operand
    batch: tuple[Axis, ...]
    steps: tuple[Axis, ...]
    depth: Axis
    write: Access

    @property
    def batches(self) -> int:
        """Independent products."""
        return math.prod(axis.extent for axis in self.batch)

    @property
    def flops(self) -> int:
        """A multiply-add is two."""
        summed = self.depth.extent * math.prod(axis.extent for axis in self.steps)
        return 2 * self.batches * self.left.extent * self.right.extent * summed

    @property
    def traffic(self) -> int:
        """Bytes that cross global memory at least."""
        return self.left.tensor.size + self.right.tensor.size + self.write.tensor.size


def find_product(operator: Operator) -> Product | None:
    """The roles of an operator's axes; ``None`` where it is no product of two tensors."""
    operator = _without_units(operator)
    if len(operator.reads) != 2 or not operator.reduce_axes:
        return None
    if not all(read.is_exact and not read.is_computed for read in operator.reads):
        return None
    if operator.reads[0].tensor.dtype != operator.reads[1].tensor.dtype:
        return None
    used = [read.axes for read in operator.reads]
    depth = _depth(operator)
    is_complete = all(axis.name in used[0] | used[1] for axis in operator.spatial_axes)
    if depth is None or not is_complete:
        return None
    free = [
        [axis for axis in operator.spatial_axes if axis.name in used[i] - used[1 - i]]
        for i in range(2)
    ]
    operands = [_operand(read, own, depth) for read, own in zip(operator.reads, free, strict=True)]
    if operator.write.contiguous_axis in used[0] - used[1]:
        operands.reverse()
    left, right = operands
    if left is None or right is None:
        return None
    batch = tuple(axis for axis in operator.spatial_axes if axis.name in used[0] & used[1])
    steps = tuple(axis for axis in operator.reduce_axes if axis is not depth)
    return Product(left, right, batch, steps, depth, operator.write)


def _without_units(operator: Operator) -> Operator:
    """An operator without its axes of one element, whose only value is zero."""
    long = {axis.name for axis in operator.axes if axis.extent > 1}

    def reduced(access: Access) -> Access:
        indices = tuple(
            replace(index, terms=tuple(term for term in index.terms if term[0] in long))
            for index in access.indices
        )
        return replace(access, indices=indices)

    axes = tuple(axis for axis in operator.axes if axis.name in long)
    reads = tuple(map(reduced, operator.reads))
    return replace(operator, axes=axes, reads=reads, write=reduced(operator.write))


def _depth(operator: Operator) -> Axis | None:
    """The longest summed axis that has a dimension of each operand for itself."""
    alone = [
        axis
        for axis in operator.reduce_axes
        if all(_is_alone(read.indices, axis.name) for read in operator.reads)
    ]
    contiguous = [
        axis for axis in alone if any(axis.name == r.contiguous_axis for r in operator.reads)
    ]
    return max(contiguous or alone, key=lambda axis: axis.extent, default=None)


def _is_alone(indices: tuple[AffineIndex, ...], name: str) -> bool:
    found = [index for index in indices if index.coefficient(name)]
    return len(found) == 1 and found[0].terms == ((name, 1),)


def _operand(read: Access, free: list[Axis], depth: Axis) -> Operand | None:
    """One operand, its dimensions of one element left out; ``None`` if it cannot be boxed."""
    kept = [d for d, extent in enumerate(read.tensor.shape) if extent > 1]
    # What is read elsewhere in a left-out dimension lies outside, and is zero.
    left_out = (index for d, index in enumerate(read.indices) if d not in kept)
    if any(index.offset or index.terms for index in left_out) or not kept:
        return None
    shape = tuple(read.tensor.shape[d] for d in kept)
    indices = tuple(read.indices[d] for d in kept)
    names = {axis.name for axis in free}
    order = [name for index in indices for name, _ in index.terms if name in names]
    # At most one boxed axis a dimension, and each in one dimension.
    boxed = [sum(n in names or n == depth.name for n, _ in index.terms) for index in indices]
    if len(set(order)) != len(order) or max(boxed) > 1 or len(order) != len(names):
        return None
    if any(c < 0 for index in indices for _, c in index.terms):
        return None
    last = indices[-1].terms
    if any(coefficient != 1 for _, coefficient in last) or len(last) != 1:
        return None
    ((inner, _),) = last
    if inner != depth.name and inner not in names:
        return None
    by_name = {axis.name: axis for axis in free}
    tensor = Tensor(read.tensor.name, shape, read.tensor.dtype)
    return Operand(tensor, indices, tuple(by_name[n] for n in order), inner == depth.name)
