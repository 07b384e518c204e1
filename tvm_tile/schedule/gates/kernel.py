"""Write several products of few rows, and the arithmetic on their sums, as one kernel.

The loops that :func:`write_gates` writes, for the units of a block::

    read what a unit's arithmetic takes besides its sums        unit and row a thread
    for each product, some warps each:
        sums of all its gates, for all units and rows           to shared memory
    wait for all threads
    outputs[row, unit] = arithmetic on sums[:, unit, row]       unit and row a thread

With ``resident``, the weights of the block's units are in shared memory, where
:func:`write_load` has put them: row by row, as :mod:`~tvm_tile.schedule.gates.sums` numbers them.
Lanes read them as they lie, one vector behind the other, so that no bank is asked twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.graph.expression import substituted
from tvm_tile.schedule.gates.find import GatesMatch
from tvm_tile.schedule.gates.sums import Summing, WeightRows
from tvm_tile.schedule.tensor_cores.parameters import function
from tvm_tile.schedule.tensor_cores.store import when
from tvm_tile.schedule.threads import begin_kernel
from tvm_tile.tile.few_rows.gates import GatesTile, resident_offsets

_RESIDENT = "resident"


def write_gates(found: GatesMatch, tile: GatesTile, *, resident: bool = False) -> tirx.PrimFunc:
    """The function of what was found, as ``tile`` says.

    With ``resident``, it has no parameters for the weights, but finds them in shared memory.
    """
    params = [p for p in found.params if not (resident and str(p.name) in found.weights)]
    with function(params) as (builder, buffers):
        block = _begin(found, tile, buffers)
        memory = _resident(block) if resident else None
        vectors, units = found.gates.vectors, tile.units
        sums = ib.alloc_buffer((tile.shared_bytes // 4,), "float32", scope="shared")
        unit, row = ib.Bind(block.thread % units), ib.Bind(block.thread // units)
        values = _read(block, unit, row)
        first, start = 0, 0
        for number, product in enumerate(tile.products):
            threads = product.threads
            summing = _summing(block, number, memory, (sums, start))
            own = [block.thread >= first, block.thread < first + threads]
            with when(own if threads < tile.block_size else []):
                summing.write(ib.Bind(block.thread - first))
            first += threads
            start += summing.rows.count * vectors
        ib.evaluate(T.cuda.cta_sync())
        with when(_holds(block, unit, row)):
            _store(block, values, sums, unit, row)
    return builder.get()


def write_load(found: GatesMatch, tile: GatesTile) -> tirx.PrimFunc:
    """Write the copy of a block's weights to shared memory."""
    params = [param for param in found.params if str(param.name) in found.weights]
    with function(params) as (builder, buffers):
        block = _begin(found, tile, buffers)
        memory = _resident(block)
        for number, product in enumerate(found.gates.products):
            rows, place = block.rows(number), block.place(number)
            source = block.flat(found.products[number].weights)
            start = block.starts[number]
            vector = product.vector
            each = product.depth // vector
            with ib.serial(-(-rows.count * each // tile.block_size)) as round_:
                item = ib.Bind(block.thread + round_ * tile.block_size)
                is_ragged = rows.count * each % tile.block_size != 0
                with when([item < rows.count * each] if is_ragged else []):
                    k = ib.Bind(item % each * vector)
                    at = ib.Bind(place(item // each) + k)
                    with ib.vectorized(vector) as v:
                        into = start + item * vector + v
                        ib.buffer_store(memory, source[at + v], [into])
    return builder.get()


@dataclass(frozen=True, slots=True)
class _Block:
    """State of one thread of a block, while its code is written.

    Attributes:
        found: the function that is computed.
        tile: how.
        buffers: the function's parameters by name.
        thread: its number.
        first: the block's first unit.
        starts: first element of each product's weights where they are resident.
    """

    found: GatesMatch
    tile: GatesTile
    buffers: Mapping[str, Any]
    thread: Any
    first: Any
    starts: tuple[int, ...]

    def rows(self, number: int) -> WeightRows:
        """The rows of a product's weights that the block sums up."""
        gates = self.found.gates
        offsets = tuple(own.offset for own in self.found.cell.sums if own.product == number)
        return WeightRows(
            gates.products[number], offsets, self.tile.units, gates.units - 1, self.first
        )

    def place(self, number: int) -> Any:
        """Row's number in the block -> its first element in a product's weights."""
        rows = self.rows(number)
        return lambda row: rows.row(row) * rows.product.depth

    def flat(self, name: str) -> Any:
        """A parameter's elements, one behind the other."""
        buffer = self.buffers[name]
        size = math.prod(int(extent) for extent in buffer.ty.shape)
        return ib.decl_buffer((size,), str(buffer.ty.dtype), data=buffer.data)


def _begin(found: GatesMatch, tile: GatesTile, buffers: Mapping[str, Any]) -> _Block:
    """Begin the kernel: the block's number, its thread's, and its units."""
    number, _, thread = begin_kernel(tile.grid, tile.block_size)
    element = found.gates.products[0].element
    starts = tuple(byte // element for byte in resident_offsets(found.gates, tile.units))
    return _Block(found, tile, buffers, thread, ib.Bind(number * tile.units), starts)


def _resident(block: _Block) -> Any:
    """The weights that stay; who joins kernels knows them by this name."""
    dtype = block.found.products[0].dtype
    memory = ib.alloc_buffer((block.starts[-1],), dtype, scope="shared.dyn", align=16)
    IRBuilder.name(_RESIDENT, memory)
    return memory


def _summing(block: _Block, number: int, memory: Any, sums: tuple[Any, int]) -> Summing:
    """A product of the block."""
    factors, rows = block.found.products[number], block.rows(number)
    depth = rows.product.depth
    if memory is None:
        source, place = block.flat(factors.weights), block.place(number)
    else:
        start = block.starts[number]
        source, place = memory, lambda row: start + row * depth
    return Summing(
        rows,
        block.tile.products[number],
        block.found.gates.vectors,
        factors.dtype,
        block.buffers[factors.short],
        lambda at: source[at],
        place,
        *sums,
    )


def _holds(block: _Block, unit: Any, row: Any) -> list[Any]:
    """Condition under which a thread has a unit and a row."""
    tile, gates = block.tile, block.found.gates
    holds = [row < gates.vectors] if tile.units * gates.vectors < tile.block_size else []
    if gates.units % tile.units:
        holds.append(block.first + unit < gates.units)
    return holds


def _read(block: _Block, unit: Any, row: Any) -> dict[Any, Any]:
    """Read the other operands of the arithmetic, ahead of all waits.

    Threads without a unit or a row of their own read that of the last.
    """
    gates, cell = block.found.gates, block.found.cell
    known = {
        cell.unit: ib.Bind(ib.min(block.first + unit, gates.units - 1)),
        cell.row: ib.Bind(ib.min(row, gates.vectors - 1)),
    }
    for load in cell.loads:
        indices = [substituted(index, known) for index in load.indices]
        known[load.value] = ib.Bind(tirx.BufferLoad(block.buffers[load.source], indices))
    return known


def _store(block: _Block, known: dict[Any, Any], sums: Any, unit: Any, row: Any) -> None:
    """Store the outputs of one unit in one row."""
    cell, units, vectors = block.found.cell, block.tile.units, block.found.gates.vectors
    for number, own in enumerate(cell.sums):
        known[own.value] = ib.Bind(sums[(number * units + unit) * vectors + row])
    for variable, value in cell.steps:
        # Not a name for the value, which TVM would write out wherever it is used.
        held = ib.alloc_buffer((1,), str(variable.ty.dtype), scope="local")
        ib.buffer_store(held, substituted(value, known), [0])
        known[variable] = held[0]
    for name, variable in cell.outputs:
        ib.buffer_store(block.buffers[name], known[variable], [row, block.first + unit])
