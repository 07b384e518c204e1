"""Writing at indices in place: only what is written is touched, as a cache's rows of one step.

As in :mod:`tvm_tile.loops.scatter`, the last of several updates of one place wins, and an update
whose index is out of bounds is left out. Yet here each update is written by a thread of its own. So
that the order of threads decides nothing, all updates of a place write the last one's value, and
those out of bounds write what the last one of all that are inside writes, or, if none is, what is
there already::

    for k:    source[k] = max(j if inside(index[j]) and (index[j] == index[k] or
                                                        not inside(index[k])) else -1 for j)
    for k, i: A[index[source[k]], i] = updates[source[k], i]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.frontend.torch.emit import Emit, shape_of
from tvm_tile.frontend.torch.operators.indexing import at_broadcast, broadcast_index, unflattened
from tvm_tile.frontend.torch.places import Places
from tvm_tile.loops.gather import clamped, counted_from_end, is_inside
from tvm_tile.loops.rows import each_element, number


@dataclass(frozen=True, slots=True)
class Updates:
    """Where a view is written to, and by how many updates.

    Attributes:
        extents: of the view.
        axes: those that are indexed, in ascending order.
        broadcast: extents of the indices, broadcast to each other.
    """

    extents: tuple[int, ...]
    axes: tuple[int, ...]
    broadcast: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many updates there are along the indices' dimensions."""
        return math.prod(self.broadcast)

    @property
    def others(self) -> tuple[int, ...]:
        """The axes that are not indexed."""
        return tuple(axis for axis in range(len(self.extents)) if axis not in self.axes)

    @property
    def _indexed(self) -> list[int]:
        return [self.extents[axis] for axis in self.axes]

    @property
    def start(self) -> int:
        """Where the indices' dimensions stand among those of the updates, as in NumPy."""
        axes = self.axes
        return axes[0] if axes and axes[-1] - axes[0] == len(axes) - 1 else 0

    def position(self, update: Any) -> list[Any]:
        """In loops: where an update is, given its number, in the indices' dimensions."""
        return unflattened(update, self.broadcast)

    def places(self, index: Sequence[Any]) -> list[Any]:
        """In loops: the indexed axes' places, counted from the front; maybe outside."""
        return [counted_from_end(i, n) for i, n in zip(index, self._indexed, strict=True)]

    def contain(self, places: Sequence[Any]) -> Any:
        """In loops: whether places are within the tensor."""
        return tirx.all(*(is_inside(p, n) for p, n in zip(places, self._indexed, strict=True)))

    def whole(self, places: Sequence[Any], others: Sequence[Any]) -> list[Any]:
        """In loops: an index of the view, within it whatever the places are."""
        inside = [clamped(p, n) for p, n in zip(places, self._indexed, strict=True)]
        index = dict(zip((*self.others, *self.axes), (*others, *inside), strict=True))
        return [index[axis] for axis in range(len(self.extents))]

    def region(self, others: Sequence[Any]) -> list[Any]:
        """In loops: what of the view may be written, wherever the places are."""
        index: dict[int, Any] = dict(zip(self.others, others, strict=True))
        return [index.get(axis, slice(0, extent)) for axis, extent in enumerate(self.extents)]


def write_rows(
    emit: Emit,
    x: relax.Expr,
    indices: Sequence[relax.Expr],
    values: relax.Expr,
    updates: Updates,
    places: Places,
) -> relax.Expr:
    """Write ``view[indices] = values`` to the memory of ``x``, which is the result.

    Args:
        emit: of the node.
        x: what is written to; nobody reads what it is now any more.
        indices: of integers, one for each of ``updates.axes``; negative ones count from the end.
        values: broadcast to what is written to, of its element type.
        updates: where in the view.
        places: of the view's elements in ``x``.
    """
    source = None if updates.count == 1 else _source(emit, indices, updates)
    loops = _loops(updates, places, x, indices, source, values)
    name = emit.builder.add_func(loops, "write_rows")
    operands = [x, *indices, *([] if source is None else [source]), values]
    return emit(relax.op.call_tir_inplace(name, operands, [0], x.ty))


def _source(emit: Emit, indices: Sequence[relax.Expr], updates: Updates) -> relax.Expr:
    """For each update the number of the one that is written in its place; -1 if none is inside.

    Layers of a model write at the same positions: equal tables are made once.
    """

    def loops(*tables: te.Tensor) -> te.Tensor:
        other = te.reduce_axis((0, number(updates.count)), "j")

        def body(update: Any) -> Any:
            own, found = (
                updates.places([at_broadcast(table, updates.position(k)) for table in tables])
                for k in (update, other.var)
            )
            is_same = tirx.all(*(a == b for a, b in zip(own, found, strict=True)))
            stands_in = tirx.Or(is_same, tirx.Not(updates.contain(own)))
            is_written = tirx.all(updates.contain(found), stands_in)
            none = tirx.const(-1, "int64")
            return te.max(tirx.Select(is_written, tirx.Cast("int64", other.var), none), axis=other)

        return te.compute((number(updates.count),), body, name="source")

    key = ("source of rows", updates, *indices[1:]), indices[0]
    if key not in emit.made:
        emit.made[key] = emit.te(loops, *indices, name="source_of_rows")
    return emit.made[key]


def _loops(
    updates: Updates,
    places: Places,
    x: relax.Expr,
    indices: Sequence[relax.Expr],
    source: relax.Expr | None,
    values: relax.Expr,
) -> tirx.PrimFunc:
    """The function that writes; without ``source`` there is one update of each place."""
    with IRBuilder() as builder, ib.prim_func(s_tir=True):
        ib.func_name("write_rows")
        ib.func_attr({"tirx.noalias": True})
        data = argument("data", x)
        tables = [argument(f"index{i}", index) for i, index in enumerate(indices)]
        sources = None if source is None else argument("source", source)
        given = argument("values", values)
        counts = [updates.extents[axis] for axis in updates.others]
        counts.insert(updates.start, updates.count)
        with each_element("write_rows", counts) as at:
            own = at[updates.start]
            chosen = own if sources is None else tirx.BufferLoad(sources, [own])
            position = updates.position(tirx.max(chosen, number(0)))
            found = updates.places([load(table, position) for table in tables])
            before, behind = at[: updates.start], at[updates.start + 1 :]
            value = load(given, [*before, *position, *behind])
            is_written = updates.contain(found) if sources is None else chosen >= number(0)
            others = [*before, *behind]
            whole = places.at(updates.whole(found, others))
            read = [b[_everywhere(b)] for b in (*tables, sources, given) if b is not None]
            # What is read of ``data`` is the element that the same thread writes: schedules, which
            # take a block that reads what it writes for a sum, need not know.
            ib.reads(*read)
            ib.writes(data[_region(places, updates.region(others))])
            old = tirx.BufferLoad(data, whole)
            ib.buffer_store(data, tirx.Select(is_written, value, old), whole)
    return builder.get().without_attr("global_symbol")


def _region(places: Places, region: Sequence[Any]) -> tuple[Any, ...]:
    """What of a tensor may be written, given what of a view of it."""
    ends = [places.at([_end(part, is_last) for part in region]) for is_last in (False, True)]
    return tuple(slice(first, last + 1) for first, last in zip(*ends, strict=True))


def _end(part: Any, is_last: bool) -> Any:
    """The first or the last place of a slice; a place itself."""
    return part if not isinstance(part, slice) else part.stop - 1 if is_last else part.start


def argument(name: str, value: relax.Expr) -> Any:
    """A parameter of the function that is being written, for a value."""
    return ib.arg(name, ib.buffer([*map(number, shape_of(value))], str(value.ty.dtype)))


def _everywhere(buffer: Any) -> Any:
    """The index of a whole buffer."""
    return tuple(slice(0, int(extent)) for extent in buffer.shape)


def load(buffer: Any, at: Sequence[Any]) -> Any:
    """The element of a buffer that is broadcast to the rank of a position."""
    return tirx.BufferLoad(buffer, broadcast_index(buffer.shape, at))
