"""Write the kernels that list the rows of a product by their groups, and tell tiles of them.

What a block of :func:`list_rows` does for its group, each thread with the rows ``thread, thread +
threads, ...``::

    for row of the thread: below += group(row) < own; equal += group(row) == own, and note a bit
    share below and equal; wait for one another
    sums of threads, 32 by 32; share; wait for one another
    first, count = sum of all below, of all equal;  place = first + sum of equal of threads before
    for row of the thread: if its bit is noted: order[place] = row; place += 1
    for slot of the group: slots[slot] = own, place in order of the slot's first row, its rows

Blocks share nothing: each counts the rows of all groups before its own. A thread writes what no
other does, as places of a group's rows are numbered through by thread. (See
:class:`~tvm_tile.graph.positions.Grouped` for why no two groups have a slot in common.) The order
within a group is the same in every run.

Where blocks take several tiles each, one block moves the slots that are not empty to a table's
front, so that all get as many (:func:`pack_slots`): each thread has neighbouring slots, counts
those with rows, and writes these behind the ones of all threads before. It reads one table, writes
another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.device.device import Device
from tvm_tile.graph.expression import Expression, digits
from tvm_tile.graph.positions import Grouped
from tvm_tile.schedule.tensor_cores.found import ProductMatch
from tvm_tile.schedule.tensor_cores.limits import Limits, bound_limits, count_all, zero_register
from tvm_tile.schedule.tensor_cores.parameters import views
from tvm_tile.schedule.tensor_cores.part import RowTable
from tvm_tile.schedule.tensor_cores.place import linear, value_of
from tvm_tile.tile.products.grouping import (
    GATHERING_THREADS,
    GATHERING_TURNS,
    SORTED,
    TURN,
    grouping_threads,
)
from tvm_tile.tile.units.product import Product
from tvm_tile.tile.units.slab import UNIT_BYTES

ON_DEVICE = {"tirx.device_entry": True}  # what is within becomes a kernel
_PARTS = 3  # numbers of a slot
_BITS = 32  # of a word


def list_groups(
    found: ProductMatch, size: int, buffers: Mapping[str, Any], device: Device
) -> RowTable | None:
    """The table of a product's tiles of ``size`` rows, and the kernel that fills it; ``None`` where
    rows are in no groups."""
    groups, group = found.product.groups, found.group
    if groups is None or group is None:
        return None
    table = declare_table(groups, size)
    with ib.attr(ON_DEVICE):
        seen = views(group.tensors, found.shapes, buffers)
        shape = size, grouping_threads(groups.count, device)
        list_rows(groups, group, table, shape, seen, bound_limits(found.limits))
    return table


def declare_table(groups: Grouped, size: int) -> RowTable:
    """Memory for the table of tiles of ``size`` rows, on the host's side of a function."""
    order = _declared("row_order", groups.count)
    return RowTable(order, _declared("row_slots", groups.slots(size), _PARTS))


def _declared(name: str, *shape: int) -> Any:
    """A tensor of int32 between kernels of a function."""
    return IRBuilder.name(name, ib.alloc_buffer(shape, "int32"))


@dataclass(frozen=True, slots=True)
class _ThreadRows:
    """Rows of one thread, while its code is written.

    Attributes:
        groups: the groups.
        group: number of a row's group.
        buffers: tensors that ``group`` reads, by name.
        thread: its number, and how many threads there are.
        end: rows that a call has.
    """

    groups: Grouped
    group: Expression
    buffers: Mapping[str, Any]
    thread: tuple[Any, int]
    end: Any

    @property
    def count(self) -> int:
        """How many there are, at most."""
        return -(-self.groups.count // self.thread[1])

    def row(self, turn: Any) -> Any:
        """Number of the row that is the thread's at a turn."""
        return ib.Bind(turn * self.thread[1] + self.thread[0])

    def each(self, body: Callable[[Any, Any], None]) -> None:
        """Write the loop over the rows; ``body`` gets a turn, and the number of its row's group."""
        axes = self.groups.rows
        with ib.serial(self.count) as turn:
            row = self.row(turn)
            with ib.If(row < self.end), ib.Then():
                place = dict(digits(row, axes, [axis.extent for axis in axes]))
                found = self.group.at(place, (), self.buffers)
                body(turn, ib.Bind(tirx.Cast("int32", found)))


def list_rows(
    groups: Grouped,
    group: Expression,
    table: RowTable,
    shape: tuple[int, int],
    buffers: Mapping[str, Any],
    limits: Limits,
) -> None:
    """The kernel.

    Args:
        groups: the groups.
        group: number of a row's group.
        table: memory for the result.
        shape: rows of a tile, and threads of a block.
        buffers: tensors that ``group`` reads, by name.
        limits: how far the axes of the rows go in a call; rows behind it are in no group.
    """
    size, threads = shape
    own, thread = ib.cta_id([groups.axis.extent]), ib.thread_id([threads])
    end = count_all(groups.rows, limits)
    rows = _ThreadRows(groups, group, buffers, (thread, threads), end)
    below, equal = zero_register(), zero_register()
    noted = ib.alloc_buffer((-(-rows.count // _BITS),), "uint32", scope="local")
    with ib.serial(noted.ty.shape[0]) as word:
        ib.buffer_store(noted, tirx.const(0, "uint32"), [word])

    def count(turn: Any, found: Any) -> None:
        _add(below, found < own)
        _add(equal, found == own)
        bit = tirx.Cast("uint32", found == own) << tirx.Cast("uint32", turn % _BITS)
        ib.buffer_store(noted, noted[turn // _BITS] | bit, [turn // _BITS])

    rows.each(count)
    first, before, count_of_group = _totals(below, equal, thread, threads)
    with ib.serial(rows.count) as turn:
        bits = noted[turn // _BITS] >> tirx.Cast("uint32", turn % _BITS)
        with ib.If((bits & tirx.const(1, "uint32")) != 0), ib.Then():
            ib.buffer_store(table.order, rows.row(turn), [first[0] + before[0]])
            _add(before, tirx.const(1))
    _tell_slots(own, (first[0], count_of_group[0]), table, size, (thread, threads))


def _totals(below: Any, equal: Any, thread: Any, threads: int) -> tuple[Any, Any, Any]:
    """Sum of all threads' ``below``, of ``equal`` of the threads before, and of all ``equal``."""
    shared = [ib.alloc_buffer((threads,), "int32", scope="shared") for _ in range(2)]
    turns = [ib.alloc_buffer((threads // TURN,), "int32", scope="shared") for _ in range(2)]
    before, lower, first, total = (zero_register() for _ in range(4))
    for memory, register in zip(shared, (below, equal), strict=True):
        ib.buffer_store(memory, register[0], [thread])
    ib.evaluate(T.cuda.cta_sync())
    turn, lane = ib.Bind(thread // TURN), ib.Bind(thread % TURN)
    with ib.serial(TURN) as other:
        _add(lower, shared[0][turn * TURN + other])
        _add(before, tirx.Select(other < lane, shared[1][turn * TURN + other], tirx.const(0)))
    with ib.If(lane == TURN - 1), ib.Then():
        ib.buffer_store(turns[0], lower[0], [turn])
        ib.buffer_store(turns[1], before[0] + equal[0], [turn])
    ib.evaluate(T.cuda.cta_sync())
    with ib.serial(threads // TURN) as other:
        _add(first, turns[0][other])
        _add(total, turns[1][other])
        _add(before, tirx.Select(other < turn, turns[1][other], tirx.const(0)))
    return first, before, total


def _add(register: Any, value: Any) -> None:
    """Add a number, or one where a condition holds."""
    ib.buffer_store(register, register[0] + tirx.Cast("int32", value), [0])


def _tell_slots(
    own: Any, rows: tuple[Any, Any], table: RowTable, size: int, thread: tuple[Any, int]
) -> None:
    """Write the slots of a group, of which ``rows`` says the first row's place and their number."""
    first, count = (ib.Bind(value) for value in rows)
    begin = ib.Bind(own + first // size)
    slots = ib.Bind(own + 1 + (first + count) // size - begin)
    with ib.serial((slots - thread[0] + thread[1] - 1) // thread[1]) as turn:
        number = ib.Bind(turn * thread[1] + thread[0])
        left = ib.max(ib.min(count - number * size, size), 0)
        for part, value in enumerate((own, first + number * size, left)):
            ib.buffer_store(table.slots, value, [begin + number, part])


def pack_slots(table: RowTable, slots: int, device: Device) -> RowTable:
    """Write the kernel that leaves out the empty ones of ``slots`` slots, and find its result."""
    packed = RowTable(table.order, _declared("row_tiles", slots, _PARTS), _declared("row_count", 1))
    threads = grouping_threads(slots, device)
    each = -(-slots // threads)
    with ib.attr(ON_DEVICE):
        _, thread = ib.cta_id([1]), ib.thread_id([threads])
        own = zero_register()

        def for_filled(body: Callable[[Any], None]) -> None:
            with ib.serial(each) as turn:
                slot = ib.Bind(ib.min(thread * each + turn, slots - 1))
                is_own = tirx.all(thread * each + turn < slots, table.slots[slot, _PARTS - 1] > 0)
                with ib.If(is_own), ib.Then():
                    body(slot)

        for_filled(lambda _: _add(own, tirx.const(1)))
        _, before, total = _totals(zero_register(), own, thread, threads)

        def move(slot: Any) -> None:
            for part in range(_PARTS):
                ib.buffer_store(packed.slots, table.slots[slot, part], [before[0], part])
            _add(before, tirx.const(1))

        for_filled(move)
        with ib.If(thread == 0), ib.Then():
            ib.buffer_store(packed.tiles, total[0], [0])
    return packed


def sort_groups(
    found: ProductMatch, size: int, buffers: dict[str, Any], device: Device
) -> tuple[RowTable | None, dict[str, Any]]:
    """The packed table of a product's tiles of ``size`` rows, and the kernels ahead of it that fill
    this and copy the rows of a group side by side.

    Returns:
        The table, and the buffers with the copy by the name :data:`SORTED`; no table, and the
        buffers as they are, where rows are in no groups.
    """
    product, table = found.product, list_groups(found, size, buffers, device)
    if table is None or product.groups is None:
        return None, buffers
    packed = pack_slots(table, product.groups.slots(size), device)
    shape = product.groups.count, product.depth.extent
    copy = IRBuilder.name(SORTED, ib.alloc_buffer(shape, product.left.tensor.dtype))
    buffers = {**buffers, SORTED: copy}
    with ib.attr(ON_DEVICE):
        gather_rows(product, packed, buffers, bound_limits(found.limits))
    return packed, buffers


def gather_rows(
    product: Product, table: RowTable, buffers: Mapping[str, Any], limits: Limits
) -> None:
    """The kernel that copies rows to where those of a group lie side by side: a thread loads a
    few times 16 bytes, and then stores them.

    Args:
        product: the product, with its left operand as it lies.
        table: result of :func:`list_rows`.
        buffers: the function's parameters by name, and the copy by that of :data:`SORTED`.
        limits: how far the axes of the rows go in a call.
    """
    groups, left, depth = product.groups, product.left, product.depth
    assert groups is not None, "whose rows these are"
    unit = UNIT_BYTES // left.tensor.element_size
    units, dtype = depth.extent // unit, left.tensor.dtype
    source = ib.decl_buffer(
        (left.size // left.tensor.element_size,), dtype, data=buffers[left.tensor.name].data
    )
    into = buffers[SORTED]
    size = GATHERING_THREADS * GATHERING_TURNS
    block = ib.cta_id([-(-groups.count * units // size)])
    own = ib.Bind(block * size + ib.thread_id([GATHERING_THREADS]))
    extents = [axis.extent for axis in groups.rows]
    held = ib.alloc_buffer((GATHERING_TURNS * unit,), dtype, scope="local")

    def each(body: Callable[[Any, Any, Any], None]) -> None:
        for turn in range(GATHERING_TURNS):
            number = ib.Bind(own + turn * GATHERING_THREADS)
            with ib.If(number < count_all(groups.rows, limits) * units), ib.Then():
                body(turn, ib.Bind(number // units), ib.Bind(number % units * unit))

    def load(turn: int, row: Any, at: Any) -> None:
        place = dict(digits(ib.Bind(table.order[row]), groups.rows, extents)) | {depth.name: at}
        indices = [value_of(index, place) + index.offset for index in left.indices]
        first = ib.Bind(linear(left, indices))
        with ib.vectorized(unit) as v:
            ib.buffer_store(held, source[first + v], [turn * unit + v])

    def store(turn: int, row: Any, at: Any) -> None:
        with ib.vectorized(unit) as v:
            ib.buffer_store(into, held[turn * unit + v], [row, at + v])

    each(load)
    each(store)
