"""Operators on whole rows that are no loops over affine accesses: scans and sorts.

A row is what runs along one axis of a tensor. Its elements are neighbours in memory where no later
axis has more than one; else rows are neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from tvm_tile.graph.tile_graph import element_size


class Combine(Enum):
    """How a scan combines what is before an element with it."""

    SUM = "sum"
    PRODUCT = "product"
    LARGEST = "largest"
    SMALLEST = "smallest"
    LOG_SUM_EXP = "log_sum_exp"


@dataclass(frozen=True, slots=True)
class Rows:
    """A tensor as rows.

    Attributes:
        shape: shape of the tensor; it has one dimension or more.
        axis: axis that rows run along.
    """

    shape: tuple[int, ...]
    axis: int

    @property
    def outer(self) -> int:
        """Rows that are far from each other."""
        return math.prod(self.shape[: self.axis])

    @property
    def length(self) -> int:
        """Elements of a row."""
        return self.shape[self.axis]

    @property
    def inner(self) -> int:
        """Rows whose elements are neighbours."""
        return math.prod(self.shape[self.axis + 1 :])

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self.outer * self.inner

    @property
    def elements(self) -> int:
        """Elements of all rows."""
        return self.count * self.length


@dataclass(frozen=True, slots=True)
class Scan:
    """``y[p] = x[0] ∘ ... ∘ x[p]`` along each row.

    Attributes:
        combine: the operation ∘.
        rows: rows of the input, and of all outputs.
        source: data type of the input.
        result: data type of the output.
        is_exclusive: ``y[p]`` is without ``x[p]``; for sums and products.
        is_reversed: the last element of a row is its first.
        has_places: a second output, int64, tells where each largest or smallest value was: the last
            place of equal ones, as in PyTorch.
    """

    combine: Combine
    rows: Rows
    source: str
    result: str
    is_exclusive: bool = False
    is_reversed: bool = False
    has_places: bool = False

    @property
    def name(self) -> str:
        """Name of the operator, for people and for its kernels."""
        return f"scan_{self.combine.value}"

    @property
    def written(self) -> int:
        """Bytes of the outputs."""
        each = element_size(self.result) + (8 if self.has_places else 0)
        return self.rows.elements * each

    @property
    def traffic(self) -> int:
        """Bytes that cross global memory at least."""
        return self.rows.elements * element_size(self.source) + self.written


@dataclass(frozen=True, slots=True)
class Sort:
    """The first elements of each row in order; equal ones stay in the order that they were in.

    NaN is larger than all numbers, as in PyTorch.

    Attributes:
        rows: rows of the input.
        kept: how many first elements of each row are kept.
        source: data type of the input, and of the values.
        is_descending: the largest first.
        has_values: the elements are an output.
        places: data type of another output, where in its row each element was; ``None`` for none.
    """

    rows: Rows
    kept: int
    source: str
    is_descending: bool
    has_values: bool
    places: str | None

    @property
    def name(self) -> str:
        """Name of the operator, for people and for its kernels."""
        return "sort" if self.kept == self.rows.length else "topk"

    @property
    def result(self) -> Rows:
        """The rows of the outputs."""
        shape = list(self.rows.shape)
        shape[self.rows.axis] = self.kept
        return Rows(tuple(shape), self.rows.axis)

    @property
    def words(self) -> int:
        """Words of 32 bits that tell an element's value and, below it, its place.

        One has room for a value of 16 bits and a place in a row of fewer than 2**16 elements.
        """
        size = element_size(self.source)
        if size <= 2 and self.rows.length < 1 << 16:
            return 1
        return 2 if size <= 4 else 3

    @property
    def written(self) -> int:
        """Bytes of the outputs."""
        values = element_size(self.source) if self.has_values else 0
        places = element_size(self.places) if self.places else 0
        return self.result.elements * (values + places)

    @property
    def traffic(self) -> int:
        """Bytes that cross global memory at least."""
        return self.rows.elements * element_size(self.source) + self.written
