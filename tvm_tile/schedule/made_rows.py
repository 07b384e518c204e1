"""Rows that a kernel makes itself, perhaps of sums over a row: queries, keys, vectors with a norm.

Of a fused function's blocks, ``s`` a sum along a row and ``f``, ``g`` element by element, ::

    s[b, h] += g(x[b, h, k])
    q[b, h, d] = f(x[b, h, d], s[b, h])

some threads, a worker's or a block's, add up ``s`` together, and keep it in registers while they
make ``q``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from tvm_tile.tile.few_rows.few_vectors import MADE_AHEAD


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


@dataclass(frozen=True, slots=True)
class WantedRow:
    """A row that a kernel makes, some threads together.

    Attributes:
        row: its elements.
        place: values of the row's axes.
        along: name of the axis along the row, and its extent.
        store: function that stores an element, given its place along the row, and it.
        guard: conditions under which the row is made, which the threads share.
    """

    row: MadeRow
    place: Place
    along: tuple[str, int]
    store: Callable[[Any, Any], None]
    guard: tuple[Any, ...] = ()

    def held(self, count: int) -> int:
        """Elements that each of ``count`` threads can load ahead; none, if these are too many."""
        turns = -(-self.along[1] // count)
        return turns if self.along[1] % count == 0 and turns <= MADE_AHEAD else 0


def make_rows(
    rows: Sequence[WantedRow],
    threads: Reduces,
    lanes: tuple[int, Any],
    buffers: Mapping[str, Any],
) -> None:
    """Write the code of a thread that makes rows together with others.

    What is loaded for several rows is asked for at once, ahead of the first one's sums: a store to
    shared memory, behind which a compiler asks for nothing that stands behind it, waits for loads.

    Args:
        rows: the rows, in order.
        threads: the threads.
        lanes: how many threads there are, and the number of this one.
        buffers: name of a parameter -> the buffer that stands for it.
    """
    batch: list[WantedRow] = []
    for row in rows:
        held = sum(other.held(lanes[0]) for other in (*batch, row))
        if batch and (held > MADE_AHEAD or not row.held(lanes[0])):
            _make(batch, threads, lanes, buffers)
            batch = []
        batch.append(row)
    _make(batch, threads, lanes, buffers)


def _make(
    rows: Sequence[WantedRow],
    threads: Reduces,
    lanes: tuple[int, Any],
    buffers: Mapping[str, Any],
) -> None:
    """Load what rows are made of, then make each."""
    bound = [replace(row, guard=tuple(map(ib.Bind, row.guard))) for row in rows]
    for making in [_Making.begin(row, lanes, buffers) for row in bound]:
        with when(making.wanted.guard):
            making.finish(threads)


@dataclass(frozen=True, slots=True)
class _Making:
    """A row that a thread has loaded its part of.

    Attributes:
        wanted: the row.
        lanes: how many threads make it, and the number of this one.
        buffers: name of a parameter -> the buffer that stands for it.
        elements: the elements that the thread makes; none where these are too many to be held.
        summands: for each sum what the thread adds up to it; likewise.
    """

    wanted: WantedRow
    lanes: tuple[int, Any]
    buffers: Mapping[str, Any]
    elements: Sequence[_Loaded]
    summands: Sequence[Sequence[_Loaded]]

    @classmethod
    def begin(
        cls, wanted: WantedRow, lanes: tuple[int, Any], buffers: Mapping[str, Any]
    ) -> _Making:
        """Write the loads."""
        (name, extent), (count, lane), row = wanted.along, lanes, wanted.row
        turns = [ib.Bind(turn * count + lane) for turn in range(wanted.held(count))]

        def loaded(expression: Expression, axis: str) -> list[_Loaded]:
            places = [{**wanted.place, axis: at} for at in turns]
            return [_Loaded.of(expression, at, buffers, wanted.guard) for at in places]

        summands = [loaded(s.summand, s.axis) if s.extent == extent else [] for s in row.sums]
        return cls(wanted, lanes, buffers, loaded(row.element, name), summands)

    def finish(self, threads: Reduces) -> None:
        """Write the sums and the stores."""
        (name, extent), row, place = self.wanted.along, self.wanted.row, self.wanted.place
        known: list[Any] = []
        for own, loaded in zip(row.sums, self.summands, strict=True):
            total = ib.alloc_buffer((1,), "float32", scope="local")
            ib.buffer_store(total, tirx.const(0.0, "float32"), [0])

            def add(value: Any, total: Any = total) -> None:
                ib.buffer_store(total, total[0] + tirx.Cast("float32", value), [0])

            def add_at(at: Any, own: RowSum = own, add: Callable[[Any], None] = add) -> None:
                add(own.summand.at({**place, own.axis: at}, known, self.buffers))

            for each in loaded:
                add(each.written(known, self.buffers))
            if not loaded:
                _each(self.lanes, own.extent, add_at)
            threads.reduce(total, "sum", self.lanes[1])
            known.append(total[0])
        for element in self.elements:
            self.wanted.store(element.place[name], element.written(known, self.buffers))

        def store(at: Any) -> None:
            value = row.element.at({**place, name: at}, known, self.buffers)
            self.wanted.store(at, value)

        if not self.elements:
            _each(self.lanes, extent, store)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """An expression at a place, with what it loads there in registers.

    Attributes:
        expression: the expression; registers are given ahead of what is given otherwise.
        place: the place.
        registers: elements of buffers; what tells where to load is loaded when it is written.
    """

    expression: Expression
    place: Place
    registers: tuple[Any, ...]

    @classmethod
    def of(
        cls,
        expression: Expression,
        place: Place,
        buffers: Mapping[str, Any],
        guard: Sequence[Any],
    ) -> _Loaded:
        """Write the loads, as far as conditions allow them."""
        held = []
        for load, met in _loads_ahead(expression):
            value = replace(expression, value=_if(met, load)).at(place, (), buffers)
            # Not a variable: TVM knows none of bfloat16 where a device has no such type.
            register = ib.alloc_buffer((1,), str(load.ty.dtype), scope="local")
            ib.buffer_store(register, _if(guard, value), [0])
            held.append((load, register))

        def kept(node: Any) -> Any:
            return next((own[0] for load, own in held if node.same_as(load)), node)

        value = tvm_ffi.structural_map(expression.value, [(ir.TensorLoad, kept)], order="post")
        given = (*(own for _, own in held), *expression.given)
        made = replace(expression, value=value, given=given)
        return cls(made, place, tuple(own[0] for _, own in held))

    def written(self, known: Sequence[Any], buffers: Mapping[str, Any]) -> Any:
        """The value, of the sums that are known."""
        return self.expression.at(self.place, [*self.registers, *known], buffers)


def _if(conditions: Sequence[Any], value: Any) -> Any:
    """A value that is loaded where all conditions hold; else a zero."""
    if not conditions:
        return value
    zero = tirx.const(0, str(value.ty.dtype))
    return tirx.if_then_else(functools.reduce(tirx.And, conditions), value, zero)


def _loads_ahead(expression: Expression) -> Iterator[tuple[Any, list[Any]]]:
    """Loads at places that no load tells, each once, with the conditions under which there are such
    places; none whose conditions are loaded themselves, or are others elsewhere."""
    choices = [c.args for c in nodes_in(expression.value, ir.Call) if is_choice(c)]
    selects = nodes_in(expression.value, tirx.Select)
    choices += [(c.condition, c.true_value, c.false_value) for c in selects]
    branches = [
        (own, loads_in(branch))
        for condition, first, second in choices
        for own, branch in ((condition, first), (tirx.Not(condition), second))
    ]
    loads: list[Any] = []
    for load in expression.loads:
        if len(loads_in(load)) == 1 and not any(map(load.same_as, loads)):
            loads.append(load)
    for load in loads:
        met = [condition for condition, inside in branches if any(map(load.same_as, inside))]
        is_one = sum(map(load.same_as, expression.loads)) == 1
        if not met or (is_one and not any(map(loads_in, met))):
            yield load, met


def _each(lanes: tuple[int, Any], extent: int, write: Callable[[Any], None]) -> None:
    """Deal the places along a row to the threads."""
    count, lane = lanes
    turns = -(-extent // count)
    with steps(turns) if turns > MADE_AHEAD else ib.unroll(turns) as turn:
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
