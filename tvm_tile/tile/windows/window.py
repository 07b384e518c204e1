"""Sliding windows: what slides along what, and which rows of it a strip of outputs needs.

See ``schedule/s_tir/window.py`` for the kernel, and ``strips.py`` for how long the strips are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tvm_tile.graph.tile_graph import Access, AffineIndex, Axis, Operator
from tvm_tile.tile.tile import Tile
from tvm_tile.tile.windows.vectors import ONE_BY_ONE, Vectors

_MAX_WINDOW = 128  # points of a sum that one thread adds up alone


@dataclass(frozen=True, slots=True)
class Window:
    """The tensor that slides, and the axes along which it does.

    Attributes:
        axis: the spatial axis along which strips lie.
        tap: the summed axis that moves with it.
        size: points of ``tap``.
        stride: elements from one window to the next along ``axis``.
        dilation: elements from one point of the window to the next.
        column: another sliding axis, of which a thread may have several outputs; empty if none.
        reads: the accesses that slide.
    """

    axis: str
    tap: str
    size: int
    stride: int
    dilation: int
    column: str
    reads: tuple[Access, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """A row of what slides, as a thread keeps it in registers.

    Attributes:
        read: the access.
        dimension: the dimension of the tensor in which row follows row.
        extents: places in each dimension of the tensor; one in ``dimension``.
        scales: elements of the tensor from one place to the next.
        lane: the dimension along which the elements of a vector lie.
        safe: for each dimension, the offset from which on a strip that overhangs the output may
            read behind the tensor's end; ``None`` where no strip does.
        least: for each dimension, the least index that is read: negative where a sum leaves out
            what lies ahead of the tensor.
    """

    read: Access
    dimension: int
    extents: tuple[int, ...]
    scales: tuple[int, ...]
    lane: int
    safe: tuple[int | None, ...]
    least: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WindowTile(Tile):
    """A tile of a sliding window: the outputs of a thread, and the threads of a block.

    Attributes:
        operator: the sum.
        window: the window that slides in it.
        strip: neighbouring outputs of a thread along the window's axis.
        columns: the same along its column.
        block_size: threads of a block.
        vectors: elements of a thread's reads and stores, and the axis that they lie along.
        stores_late: whether a thread stores when all its sums are finished, not each by itself.
    """

    operator: Operator
    window: Window
    strip: int
    columns: int
    block_size: int = field()
    vectors: Vectors = ONE_BY_ONE
    stores_late: bool = False

    def own(self, axis: str) -> int:
        """Outputs of a thread along an axis."""
        if axis == self.window.axis:
            return self.strip
        if axis == self.window.column:
            return self.columns
        return self.vectors.count if axis == self.vectors.axis else 1

    @property
    def outputs_along(self) -> dict[str, int]:
        """Outputs of a thread along each spatial axis, by its name."""
        return {axis.name: self.own(axis.name) for axis in self.operator.spatial_axes}

    @property
    def outputs(self) -> int:
        """Outputs of a thread."""
        return math.prod(self.outputs_along.values())

    @property
    def workers(self) -> int:
        """Threads that have outputs."""
        axes = self.operator.spatial_axes
        return math.prod(-(-axis.extent // self.own(axis.name)) for axis in axes)

    @property
    def grid(self) -> int:
        """Blocks of the kernel."""
        return -(-self.workers // self.block_size)

    @property
    def step(self) -> int:
        """Rows from the first of one window to the first of the next in a strip."""
        return self.window.stride if self.strip > 1 else 1

    @property
    def spacing(self) -> int:
        """Elements of the tensor from one row to the next: unused ones are no rows."""
        return 1 if self.strip > 1 else self.window.dilation

    @property
    def rows(self) -> int:
        """Rows that a strip's windows hold."""
        return (self.strip - 1) * self.step + self.window.size

    def taps(self, row: int) -> tuple[int, ...]:
        """Points of the window that fall on a row, each in another window of the strip."""
        return tuple(
            tap
            for tap in range(self.window.size)
            if (row - tap) % self.step == 0 and 0 <= (row - tap) // self.step < self.strip
        )

    @property
    def lines(self) -> tuple[Line, ...]:
        """The rows that a thread holds at a time, one for each access that slides."""
        return tuple(_line(self, read) for read in self.window.reads)

    def is_local(self, axis: str) -> bool:
        """Whether a thread goes along an axis within one row."""
        if axis in (self.window.axis, self.window.tap):
            return False
        reduce = {summed.name for summed in self.operator.reduce_axes}
        return axis in reduce or axis in (self.window.column, self.vectors.axis)

    @property
    def are_rows_neighbours(self) -> bool:
        """Whether vectors lie along the strip, so that one holds several rows."""
        return self.vectors.axis == self.window.axis

    def place_in_vector(self, row: int) -> int:
        """The place of a row within the vector that holds it."""
        if not self.are_rows_neighbours:
            return 0
        return (row + self.vectors.lead) % self.vectors.count

    def describe(self) -> str:
        """The tile in one line, for people."""
        strip = f"strip {self.strip} x {self.columns}"
        return strip if self.vectors.count == 1 else f"{strip}, vectors of {self.vectors.count}"


def window_of(operator: Operator) -> Window | None:
    """The window of a sum, if one slides and one thread can sum it.

    ``None`` too where windows share nothing: a simpler kernel does as well there.
    """
    reduce = {axis.name for axis in operator.reduce_axes}
    reads = tuple(
        read
        for read in operator.reads
        if any(_moves(index, operator.sliding_axes, reduce) for index in read.indices)
    )
    names = [read.tensor.name for read in operator.reads]
    if operator.depth > _MAX_WINDOW or any(names.count(read.tensor.name) > 1 for read in reads):
        return None
    if not all(read.is_exact and _is_rising(read) for read in reads):
        return None
    lane = operator.write.contiguous_axis
    sliding = [
        axis
        for axis in reversed(operator.spatial_axes)
        if axis.name in operator.sliding_axes and axis.extent > 1
    ]
    if not any(_overlaps(index, operator, sliding) for read in reads for index in read.indices):
        return None
    # The nearest to the contiguous axis that is not it: what a warp reads should lie together.
    for axis in sorted(sliding, key=lambda axis: axis.name == lane):
        column = next((a.name for a in sliding if a is not axis), "")
        found = _along(axis, column, operator, reads)
        if found is not None:
            return found
    return None


def _moves(index: AffineIndex, axes: frozenset[str], reduce: set[str]) -> bool:
    """Whether an index moves along the output and along the window."""
    names = {name for name, _ in index.terms}
    return not names.isdisjoint(axes) and not names.isdisjoint(reduce)


def _is_rising(read: Access) -> bool:
    """Whether a read goes forward along all axes."""
    return all(factor > 0 for index in read.indices for _, factor in index.terms)


def _overlaps(index: AffineIndex, operator: Operator, sliding: list[Axis]) -> bool:
    """Whether neighbouring outputs read elements in common."""
    span = index.span({axis.name: axis.extent for axis in operator.reduce_axes})
    return any(0 < index.coefficient(axis.name) < span for axis in sliding)


def _along(axis: Axis, column: str, operator: Operator, reads: tuple[Access, ...]) -> Window | None:
    """Strips along ``axis``; ``None`` unless one summed axis alone moves with it, in all reads."""
    reduce = {a.name: a.extent for a in operator.reduce_axes}
    forms = set()
    for read in reads:
        found = [index for index in read.indices if index.coefficient(axis.name)]
        taps = {name for index in found for name, _ in index.terms if name in reduce}
        if len(found) != 1 or len(taps) != 1 or found[0].coefficient(column):
            return None
        (tap,) = taps
        if sum(index.coefficient(tap) != 0 for index in read.indices) != 1:
            return None
        forms.add((tap, found[0].coefficient(axis.name), found[0].coefficient(tap)))
    if len(forms) != 1:
        return None
    ((tap, stride, dilation),) = forms
    return Window(axis.name, tap, reduce[tap], stride, dilation, column, reads)


def _line(tile: WindowTile, read: Access) -> Line:
    """The line of a read that a thread keeps, with the bounds within which it may read whole."""
    reach = {axis.name: axis.extent for axis in tile.operator.reduce_axes}
    reach[tile.window.column] = tile.columns
    lane = tile.vectors.axis
    reach[lane] = tile.own(lane)
    last = {
        axis.name: (axis.extent - 1) // tile.own(axis.name) * tile.own(axis.name)
        for axis in tile.operator.spatial_axes
    }
    dimension = next(d for d, i in enumerate(read.indices) if i.coefficient(tile.window.axis))
    extents, scales, safe = [], [], []
    for d, index in enumerate(read.indices):
        local = [
            (factor, reach[name])
            for name, factor in index.terms
            if d != dimension and tile.is_local(name) and reach[name] > 1
        ]
        scale = math.gcd(*(factor for factor, _ in local)) or 1
        extent = 1 + sum(factor // scale * (count - 1) for factor, count in local)
        furthest = (tile.rows - 1) * tile.spacing if d == dimension else (extent - 1) * scale
        start = index.offset + sum(last.get(name, 0) * factor for name, factor in index.terms)
        room = read.tensor.shape[d] - start
        extents.append(extent)
        scales.append(scale)
        safe.append(None if furthest < room else room)
    at = next((d for d, index in enumerate(read.indices) if index.coefficient(lane)), 0)
    axes = (*tile.operator.spatial_axes, *tile.operator.reduce_axes)
    least = (
        index.offset + sum(min(0, index.coefficient(a.name) * (a.extent - 1)) for a in axes)
        for index in read.indices
    )
    return Line(read, dimension, tuple(extents), tuple(scales), at, tuple(safe), tuple(least))
