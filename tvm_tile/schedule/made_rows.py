"""Rows that a kernel makes itself, perhaps of sums over a row: queries, keys, vectors with a norm.

Of a fused function's blocks, ``s`` a sum along a row and ``f``, ``g`` element by element, ::

    s[b, h] += g(x[b, h, k])
    q[b, h, d] = f(x[b, h, d], s[b, h])

some threads, a worker's or a block's, add up ``s`` together, and keep it in registers while they
make ``q``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.s_tir import SBlock
from tvm.tirx.script import builder as ib

from tvm_tile.graph.expression import (
    Expression,
    Place,
    are_same,
    is_at,
    loads_of,
    substituted,
    summand,
    uses,
)
from tvm_tile.graph.extract import is_choice, loads_in, nodes_in
from tvm_tile.graph.tile_graph import AffineIndex
from tvm_tile.schedule.tensor_cores.store import when
from tvm_tile.schedule.threads import steps

_MOST_HELD = 16  # elements of a row that a thread loads ahead of the sums, and keeps


class Reduces(Protocol):
    """Threads that add up what each of them has."""

    def reduce(self, values: Any, op: str, lane: Any) -> None:
        """Combine each of some registers over all of the threads: ``max`` or ``sum``."""
        ...


def dimension(number: int) -> str:
    """Name of the axis that is a tensor's dimension."""
    return f"dimension{number}"


@dataclass(frozen=True, slots=True)
class RowSum:
    """A sum along a row.

    Attributes:
        summand: an element, of the row's axes and ``axis``; the sums before it are given.
        axis: name of the axis that it is added up along.
        extent: values of the axis.
    """

    summand: Expression
    axis: str
    extent: int


@dataclass(frozen=True, slots=True)
class MadeRow:
    """Elements of a row.

    Attributes:
        element: an element, of the row's axes and one along it; all sums are given.
        sums: sums along the row, each made of those before it.
    """

    element: Expression
    sums: tuple[RowSum, ...] = ()

    @property
    def tensors(self) -> frozenset[str]:
        """Names of the parameters that it is made of."""
        own = (self.element, *(each.summand for each in self.sums))
        return frozenset().union(*(each.tensors for each in own))

    def write(
        self,
        threads: Reduces,
        lanes: tuple[int, Any],
        place: Place,
        along: tuple[str, int],
        buffers: Mapping[str, Any],
        store: Callable[[Any, Any], None],
    ) -> None:
        """Write the code of a thread that makes a row together with the others.

        Args:
            threads: the threads.
            lanes: how many threads there are, and the number of this one.
            place: values of the row's axes.
            along: name of the axis along the row, and its extent.
            buffers: name of a parameter -> the buffer that stands for it.
            store: function that stores an element, given its place along the row, and it.
        """
        name, extent = along
        count, lane = lanes
        # What else an element is made of is loaded with what is added up, not behind the sums.
        is_early = bool(self.sums) and extent % count == 0 and extent <= _MOST_HELD * count
        turns = range(extent // count if is_early else 0)
        places = [{**place, name: ib.Bind(turn * count + lane)} for turn in turns]
        early = [(at, self._loaded(at, buffers)) for at in places]
        known: list[Any] = []
        for own in self.sums:
            total = ib.alloc_buffer((1,), "float32", scope="local")
            ib.buffer_store(total, tirx.const(0.0, "float32"), [0])

            def add(at: Any, own: RowSum = own, total: Any = total) -> None:
                value = own.summand.at({**place, own.axis: at}, known, buffers)
                ib.buffer_store(total, total[0] + tirx.Cast("float32", value), [0])

            _each(lanes, own.extent, add)
            threads.reduce(total, "sum", lanes[1])
            known.append(total[0])
        for at, element in early:
            store(at[name], element.at(at, known, buffers))
        if not is_early:
            _each(
                lanes,
                extent,
                lambda at: store(at, self.element.at({**place, name: at}, known, buffers)),
            )

    def _loaded(self, place: Place, buffers: Mapping[str, Any]) -> Expression:
        """The element, with what it loads at a place in registers, but for loads of a choice."""
        choices = [c for c in nodes_in(self.element.value, ir.Call) if is_choice(c)]
        choices += nodes_in(self.element.value, tirx.Select)
        chosen = [load for choice in choices for load in loads_in(choice)]
        own = [load for load in self.element.loads if not any(map(load.same_as, chosen))]
        held = [
            (load, ib.Bind(replace(self.element, value=load).at(place, (), buffers)))
            for load in own
            if len(loads_in(load)) == 1
        ]

        def register(node: Any) -> Any:
            return next((kept for load, kept in held if node.same_as(load)), node)

        mapped = tvm_ffi.structural_map(
            self.element.value, [(ir.TensorLoad, register)], order="post"
        )
        return replace(self.element, value=mapped)


def _each(lanes: tuple[int, Any], extent: int, write: Callable[[Any], None]) -> None:
    """Deal the places along a row to the threads."""
    count, lane = lanes
    turns = -(-extent // count)
    with steps(turns) if turns > _MOST_HELD else ib.unroll(turns) as turn:
        at = ib.Bind(turn * count + lane)
        with when([at < extent] if extent % count else []):
            write(at)


def made_row(element: Expression, blocks: Sequence[SBlock], along: str) -> MadeRow | None:
    """A row's elements with the sums that they are made of; ``None`` where these are no row's.

    Args:
        element: an element.
        blocks: sums, in the order of the program.
        along: name of the axis along the row.
    """
    values, axes = [element.value], dict(element.axes)
    moving = [var for var, index in axes.items() if index.coefficient(along)]
    found: list[tuple[SBlock, Any, int]] = []
    for block in reversed(blocks):
        loads = [load for value in values for load in loads_of(value, block.body.buffer)]
        if not loads:
            continue
        known = _in_row(block, loads, moving)
        if known is None:
            return None
        value, var, extent = known
        axes[var] = AffineIndex(((f"{along}.{len(found)}", 1),))
        moving.append(var)
        values.append(value)
        found.insert(0, (block, var, extent))
    given = tuple(block.body.buffer for block, _, _ in found)
    sums = [
        RowSum(Expression(value, axes, given), axes[var].terms[0][0], extent)
        for value, (_, var, extent) in zip(reversed(values[1:]), found, strict=True)
    ]
    return MadeRow(replace(element, given=given), tuple(sums))


def _in_row(
    block: SBlock, loads: Sequence[Any], moving: Sequence[Any]
) -> tuple[Any, Any, int] | None:
    """What a sum adds up, in the variables of those who load it, the variable of what it adds
    up along, and its extent; ``None`` if it is not one number a row."""
    added, ranges = summand(block), sym.Analyzer()
    places = [[ranges.simplify(index) for index in load.indices] for load in loads]
    summed = [v for v in block.iter_vars if v.iter_type == tirx.IterVar.CommReduce]
    spatial = [v.var for v in block.iter_vars if v.iter_type != tirx.IterVar.CommReduce]
    long = [v for v in summed if int(v.dom.extent) > 1]
    is_one = all(are_same(places[0], other) for other in places)
    is_one = is_one and not any(uses(index, moving) for index in places[0])
    if added is None or len(long) != 1 or not is_one or not is_at(block.body.indices, spatial):
        return None
    own = {v.var: tirx.const(0, str(v.var.ty.dtype)) for v in summed}
    own |= dict(zip(spatial, places[0], strict=True))
    del own[long[0].var]
    return substituted(added, own), long[0].var, int(long[0].dom.extent)
