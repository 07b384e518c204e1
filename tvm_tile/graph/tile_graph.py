"""Operators with affine accesses, as frozen data without TVM.

Roller describes an operator by its tensor expression (section 3.1); this is the part of
that expression which tile decisions need: the axes, and how each tensor is indexed by them.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Any


@functools.cache
def element_size(dtype: str) -> int:
    """Bytes of one element of ``dtype``, as TVM spells it (``float16``, ``int64``, ``bool``)."""
    digits = re.match(r"[a-z_]*(\d+)", dtype)
    return max(1, int(digits.group(1)) // 8) if digits else 1


def stored_bytes(tensor: Any) -> int:
    """Bytes of a tensor, or of one of a type: of whatever has a static shape and a dtype."""
    return math.prod(map(int, tensor.shape)) * element_size(str(tensor.dtype))


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop of an operator: ``is_reduce`` tells a summed axis from a spatial one."""

    name: str
    extent: int
    is_reduce: bool = False


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in global memory: its name, extents, and element type."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def element_size(self) -> int:
        """Bytes of one element."""
        return element_size(self.dtype)

    @property
    def size(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape) * self.element_size

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours along each dimension.

        A tensor is compact: its last dimension is contiguous, and rows follow each other.
        """
        return tuple(math.prod(self.shape[d + 1 :]) for d in range(len(self.shape)))


@dataclass(frozen=True, slots=True)
class AffineIndex:
    """``sum(coefficient * axis) + offset`` for one dimension of an access.

    ``is_exact`` is false where the index is no affine form of the axes (a gather, or a
    division by a reshape); ``terms`` then names the axes it depends on with coefficient one.
    """

    terms: tuple[tuple[str, int], ...]
    offset: int = 0
    is_exact: bool = True

    def coefficient(self, axis: str) -> int:
        """The factor of ``axis``; zero if the index does not depend on it."""
        return dict(self.terms).get(axis, 0)

    def along(self, axes: Container[str]) -> AffineIndex:
        """The index without the terms of all other axes than these.

        The others stay at zero, which is all that an axis of one element has.
        """
        return replace(self, terms=tuple(term for term in self.terms if term[0] in axes))

    def span(self, tile: dict[str, int]) -> int:
        """Distinct positions, at most, when each axis runs over ``tile[axis]`` values."""
        return 1 + sum(abs(c) * (tile.get(axis, 1) - 1) for axis, c in self.terms)


@dataclass(frozen=True, slots=True)
class Access:
    """A tensor together with one index per dimension.

    Attributes:
        tensor: the tensor.
        indices: one a dimension.
        is_computed: whether an inlined producer (padding, cast) stands between it and memory.
        guards: names of the axes on which it depends whether an element is read at all.
    """

    tensor: Tensor
    indices: tuple[AffineIndex, ...]
    is_computed: bool = False
    guards: frozenset[str] = frozenset()

    @property
    def axes(self) -> frozenset[str]:
        """Names of the axes this access depends on."""
        return frozenset(axis for index in self.indices for axis, _ in index.terms)

    @property
    def is_exact(self) -> bool:
        """Whether every index is an affine form of the axes, with nothing left out."""
        return all(index.is_exact for index in self.indices)

    def along(self, axes: Container[str]) -> Access:
        """The access without the terms of all other axes than these.

        It touches what the whole one does while the others stay at zero.
        """
        return replace(self, indices=tuple(index.along(axes) for index in self.indices))

    def renamed(self, names: Mapping[str, str]) -> Access:
        """The access with other names of all axes.

        Args:
            names: pairs of each axis's former name and its new one.
        """
        terms = (tuple((names[axis], c) for axis, c in index.terms) for index in self.indices)
        indices = zip(self.indices, terms, strict=True)
        moved = tuple(replace(old, terms=own) for old, own in indices)
        return replace(self, indices=moved, guards=frozenset(names[g] for g in self.guards))

    def region(self, tile: dict[str, int]) -> tuple[int, ...]:
        """Extents of what is touched when each axis runs over ``tile[axis]`` values."""
        spans = zip(self.indices, self.tensor.shape, strict=True)
        return tuple(min(index.span(tile), extent) for index, extent in spans)

    def elements(self, tile: dict[str, int]) -> int:
        """Elements of that region (its footprint)."""
        return math.prod(self.region(tile))

    @property
    def strides(self) -> dict[str, int]:
        """Elements between neighbouring values of each axis, in memory."""
        strides: dict[str, int] = {}
        for index, stride in zip(self.indices[::-1], self.tensor.strides[::-1], strict=True):
            for axis, coefficient in index.terms:
                strides[axis] = strides.get(axis, 0) + abs(coefficient) * stride
        return strides

    @property
    def contiguous_axis(self) -> str | None:
        """The axis that moves through memory with stride one, if there is one."""
        return next(iter(self.contiguous_axes), None)

    @property
    def contiguous_axes(self) -> tuple[str, ...]:
        """All axes of stride one: several, where dimensions of one element lie among them."""
        return tuple(axis for axis, stride in self.strides.items() if stride == 1)


@dataclass(frozen=True, slots=True)
class Operator:
    """One block of TensorIR: ``write[spatial axes] = reduce over reduce axes of f(reads)``.

    ``flops`` counts the operations at one point of the iteration space; a multiply-add is two, and
    a copy, which ``is_copy``, counts as one.
    """

    name: str
    axes: tuple[Axis, ...]
    reads: tuple[Access, ...]
    write: Access
    flops: int
    is_copy: bool = False

    @property
    def spatial_axes(self) -> tuple[Axis, ...]:
        """Axes of the output, in the order of the loops."""
        return tuple(axis for axis in self.axes if not axis.is_reduce)

    @property
    def reduce_axes(self) -> tuple[Axis, ...]:
        """Summed axes, in the order of the loops."""
        return tuple(axis for axis in self.axes if axis.is_reduce)

    @property
    def extents(self) -> dict[str, int]:
        """Names of all axes, and their extents, in the order of the loops."""
        return {axis.name: axis.extent for axis in self.axes}

    @property
    def long_axes(self) -> frozenset[str]:
        """Names of the axes of several elements.

        The others have one value only, zero, so what depends on them alone is constant.
        """
        return frozenset(axis.name for axis in self.axes if axis.extent > 1)

    @property
    def outputs(self) -> int:
        """Values of all spatial axes together: sums, where something is summed."""
        return math.prod(axis.extent for axis in self.spatial_axes)

    @property
    def depth(self) -> int:
        """Values of all summed axes together; one, where nothing is summed."""
        return math.prod(axis.extent for axis in self.reduce_axes)

    @property
    def sliding_axes(self) -> frozenset[str]:
        """Spatial axes that move a window: they share an index with a summed axis."""
        reduce = {axis.name for axis in self.reduce_axes if axis.extent > 1}
        return frozenset(
            name
            for read in self.reads
            for index in read.indices
            for name, _ in index.terms
            if name not in reduce and any(other in reduce for other, _ in index.terms)
        )

    @property
    def points(self) -> int:
        """Size of the iteration space."""
        return math.prod(axis.extent for axis in self.axes)

    @property
    def total_flops(self) -> int:
        """Floating-point operations of the whole operator."""
        return self.points * self.flops

    @property
    def traffic(self) -> int:
        """Bytes that cross global memory at least: each input and the output once."""
        accesses = (*{read.tensor: read for read in self.reads}.values(), self.write)
        return sum(map(self.touched, accesses))

    def touched(self, access: Access) -> int:
        """Bytes of a tensor's region that all points touch.

        Of an index that is data only an outline is known, such as all of a table: then no point
        touches more than an element.
        """
        elements = access.elements(self.extents)
        if not access.is_exact:
            elements = min(elements, self.points)
        return elements * access.tensor.element_size


@dataclass(frozen=True, slots=True)
class TileGraph:
    """Operators in topological order; they hand tensors over to each other (Welder, section 3)."""

    operators: tuple[Operator, ...]

    @property
    def reductions(self) -> tuple[Operator, ...]:
        """Operators with at least one summed axis."""
        return tuple(op for op in self.operators if op.reduce_axes)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Tensors read but made by no operator of the graph, each once.

        What is written where others tell, such as rows of a cache, is there before.
        """
        made = {op.write.tensor for op in self.operators if op.write.is_exact}
        read = [a.tensor for op in self.operators for a in op.reads if a.tensor not in made]
        return tuple(dict.fromkeys(read))

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Tensors made but read by no operator of the graph, and those written in part."""
        return tuple(dict.fromkeys(access.tensor for access in self._stores))

    @property
    def _stores(self) -> list[Access]:
        """Writes of outputs."""
        read = {a.tensor for op in self.operators for a in op.reads}
        writes = [(op.write, op.write.tensor in read) for op in self.operators]
        return [own for own, is_read in writes if not is_read or not own.is_exact]

    @property
    def traffic(self) -> int:
        """Bytes that cross global memory at least, counting what each tensor's readers touch.

        Readers that begin at one element are taken to touch the same ones, others to touch others:
        slices of a tensor are different elements.
        """
        inputs = set(self.inputs)
        touched: dict[Tensor, dict[tuple[int, ...], int]] = {tensor: {} for tensor in inputs}
        for op in self.operators:
            for a in op.reads:
                if a.tensor in inputs:
                    start = tuple(index.offset for index in a.indices)
                    size = op.touched(a)
                    known = touched[a.tensor]
                    known[start] = max(known.get(start, 0), size)
        read = sum(min(sum(sizes.values()), tensor.size) for tensor, sizes in touched.items())
        return read + self.written

    @property
    def written(self) -> int:
        """Bytes of the outputs: the part of ``traffic`` that goes to global memory."""
        whole = {own.tensor: own.tensor.size for own in self._stores if own.is_exact}
        parts = ((op, op.write) for op in self.operators if not op.write.is_exact)
        found = (op.touched(own) for op, own in parts)
        return sum(whole.values()) + sum(found)

    @property
    def flops(self) -> int:
        """Floating-point operations of all operators."""
        return sum(op.total_flops for op in self.operators)
