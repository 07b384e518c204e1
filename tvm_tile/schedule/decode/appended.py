"""Rows of keys and values that a function writes in place before its attention reads them.

Such a function begins with what makes the rows, and ends with attention::

    K[b, h, at[i], d] = k(b, h, i, d) if inside(at[i]) else K[b, h, at[i], d]
    V[b, h, at[i], n] = v(b, h, i, n) if inside(at[i]) else V[b, h, at[i], n]
    ...

Where several rows are written to one place, all have the last one's value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from tvm_tile.graph.expression import Expression, are_same, block_ranges, is_load_of
from tvm_tile.graph.extract import blocks_in, loads_in
from tvm_tile.graph.tile_graph import AffineIndex
from tvm_tile.schedule.made_rows import MadeRow, dimension, made_row
from tvm_tile.schedule.s_tir.normalize import inlined
from tvm_tile.schedule.s_tir.steps import blocks_named

NEW = "new"
"""Name of the axis of new rows."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Rows that are written to a tensor.

    Attributes:
        row: an element of a row, of the axes ``NEW`` and those of the tensor's dimensions, which
            are named by :func:`dimension`.
        place: where the row is along the tensor's dimension ``along``, within it.
        is_written: whether the row is written at all.
        along: number of a dimension.
        count: rows.
        extents: the extents of the tensor, one a dimension.
    """

    row: MadeRow
    place: Expression
    is_written: Expression
    along: int
    count: int
    extents: tuple[int, ...]

    @property
    def tensors(self) -> frozenset[str]:
        """Names of the parameters that the rows and their places are made of."""
        return self.row.tensors | self.place.tensors | self.is_written.tensors


def split(func: tirx.PrimFunc) -> tuple[tirx.PrimFunc | None, tirx.PrimFunc]:
    """What a function writes in place before it reads it, if anything, and all behind that; what
    both take is in both."""
    root = func.body.block if isinstance(func.body, SBlockRealize) else None
    statements = list(root.body.seq) if root and isinstance(root.body, tirx.SeqStmt) else []
    read: list[Any] = []
    for number, statement in reversed(list(enumerate(statements))):
        stores = [block.body for block in blocks_in(statement)]
        written = [store.buffer for store in stores if _is_among(store.buffer, read)]
        if any(_is_among(buffer, func.params) for buffer in written):
            before, behind = statements[: number + 1], statements[number + 1 :]
            shared = _needed(before, read, func.params)
            first = _needed(before, func.params, ())
            return _with_statements(func, first), _with_statements(func, [*shared, *behind])
        read += [load.source for store in stores for load in loads_in(store)]
    return None, func


def _needed(statements: Sequence[Any], read: Sequence[Any], but: Sequence[Any]) -> list[Any]:
    """Statements of several that write what is read behind them, but for some buffers."""
    found, wanted = list[Any](), list(read)
    for statement in reversed(statements):
        stores = [block.body for block in blocks_in(statement)]
        if any(_is_among(s.buffer, wanted) and not _is_among(s.buffer, but) for s in stores):
            found.insert(0, statement)
            wanted += [load.source for store in stores for load in loads_in(store)]
    return found


def _is_among(buffer: Any, others: Sequence[Any]) -> bool:
    """Whether a buffer is one of several, by identity."""
    return any(buffer.same_as(other) for other in others)


def _with_statements(func: tirx.PrimFunc, statements: Sequence[Any]) -> tirx.PrimFunc:
    """A function of some of a function's statements, with the same parameters."""
    body = statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))
    used = [store.buffer for store in (block.body for block in blocks_in(body))]
    allocated = [buffer for buffer in func.body.block.alloc_buffers if _is_among(buffer, used)]
    root = SBlockRealize([], True, SBlock([], [], [], "root", body, None, allocated))
    return tirx.PrimFunc(func.params, root, func.ret_type, func.attrs)


def read_appended(func: tirx.PrimFunc | None) -> Mapping[str, Appended] | None:
    """The rows that a function writes, by the tensor; ``None`` if it does anything else."""
    if func is None:
        return {}
    sch, form = inlined(func, keep_producers=False)
    if form is None or form.producers:
        return None
    sums = blocks_named(sch, form.reductions)
    found = {
        str(block.body.buffer.name): _appended(block, sums)
        for block in blocks_named(sch, form.outputs)
    }
    known = {name: own for name, own in found.items() if own is not None}
    return known if len(known) == len(form.outputs) else None


def _appended(block: SBlock, sums: Sequence[SBlock]) -> Appended | None:
    """The rows that a block writes; each of their elements, at a place that others tell."""
    store = block.body
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tirx.Select):
        return None
    choice, extents = store.value, tuple(int(extent) for extent in store.buffer.ty.shape)
    loops = {v.var: int(v.dom.extent) for v in block.iter_vars}
    names: dict[Any, str] = {}
    moved = []
    for number, (index, extent) in enumerate(zip(store.indices, extents, strict=True)):
        if isinstance(index, tirx.Var) and loops.get(index) == extent:
            names[index] = dimension(number)
        elif not (isinstance(index, tirx.IntImm) and extent == 1):
            moved.append(number)
    left = [var for var in loops if var not in names]
    long = [var for var in left if loops[var] > 1]
    if len(moved) != 1 or len(long) > 1 or not is_load_of(choice.false_value, store.buffer):
        return None
    ranges, places = block_ranges(block), (store.indices, choice.false_value.indices)
    if not are_same(*([ranges.simplify(index) for index in own] for own in places)):
        return None
    axes = {var: AffineIndex(()) for var in left}
    axes |= {var: AffineIndex(((name, 1),)) for var, name in names.items()}
    axes |= {var: AffineIndex(((NEW, 1),)) for var in long}
    place, is_written = (
        Expression(value, axes) for value in (store.indices[moved[0]], choice.condition)
    )
    # A row is where it is, wherever else its elements are.
    if not (place.names | is_written.names) <= {NEW} or moved[0] == len(extents) - 1:
        return None
    row = made_row(Expression(choice.true_value, axes), sums, dimension(len(extents) - 1))
    if row is None:
        return None
    count = loops[long[0]] if long else 1
    return Appended(row, place, is_written, moved[0], count, extents)
