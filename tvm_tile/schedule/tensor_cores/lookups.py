"""Matrices that rows look up need not be copied: rows of the same one are computed side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.s_tir import SBlock

from tvm_tile.graph.expression import Expression
from tvm_tile.graph.extract import extract_operator, loads_in
from tvm_tile.graph.positions import Grouped
from tvm_tile.graph.tile_graph import Access, AffineIndex, Axis, Operator

_GROUP = "group"  # name of the axis; blocks' own axes are named as TVM does, ``v_i``


@dataclass(frozen=True, slots=True)
class LookedUp:
    """Matrices of which each row of a product reads one.

    Attributes:
        read: a read of all of them, with an axis for their number.
        groups: this axis, and the rows.
        group: number of a row's matrix.
    """

    read: Access
    groups: Grouped
    group: Expression


def looked_up(read: Access, operator: Operator, producer: SBlock) -> LookedUp | None:
    """A read of what a gather makes as one of its table.

    before: ``own[s, n, k] = w[ids[s], n, k]``, read at ``own[8 * t + j, n, k]``
    after:  ``w[group, n, k]``, with the rows ``(t, j)`` and their number ``ids[8 * t + j]``

    Args:
        read: the read.
        operator: the product that has it.
        producer: block of the gather.

    Returns:
        ``None`` where other than the first dimension is looked up, or more than the rows tell.
    """
    source = extract_operator(producer)
    load: Any = producer.body.value
    if source is None or not read.is_exact or any(map(loads_in, load.indices[1:])):
        return None
    if any(len(index.terms) != 1 for index in source.write.indices):
        return None
    table = next(own for own in source.reads if own.tensor.name == str(load.source.name))
    place = {
        index.terms[0][0]: outer
        for index, outer in zip(source.write.indices, read.indices, strict=True)
    }
    extent = table.tensor.shape[0]
    own = [_placed(index, place) for index in table.indices[1:]]
    known = tuple(index for index in own if index is not None)
    if len(known) < len(own):
        return None
    variables = {v.var: axis.name for v, axis in zip(producer.iter_vars, source.axes, strict=True)}
    axes = {var: place[name] for var, name in variables.items()}
    group = Expression(load.indices[0], axes)
    rows = tuple(axis for axis in operator.spatial_axes if axis.name in group.names)
    if {axis.name for axis in rows} != set(group.names):
        return None
    # What tells rows apart beside these is for :func:`find_product` to know.
    first = AffineIndex(((_GROUP, 1),))
    groups = Grouped(Axis(_GROUP, extent), rows)
    return LookedUp(Access(table.tensor, (first, *known)), groups, group)


def _placed(index: AffineIndex, place: dict[str, AffineIndex]) -> AffineIndex | None:
    """An index of a gather's axes as one of the axes by which what it makes is read."""
    if not index.is_exact or len(index.terms) > 1 or any(c != 1 for _, c in index.terms):
        return None
    outer = place[index.terms[0][0]] if index.terms else AffineIndex(())
    return AffineIndex(outer.terms, outer.offset + index.offset)
