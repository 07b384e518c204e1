"""Write attention as one kernel, for any unit that multiplies.

The loops that :func:`write_attention` writes, for the rows of a block::

    queries to where the unit wants them; ask for the first keys
    for tile of keys:
        wait for its keys;    ask for its values
        scores = queries @ keys
        weights, what a row's maximum grew by = f(scores)
        sums *= what the maximum grew by
        wait for its values;  ask for the next tile's keys
        sums += weights @ values
    store epilogue(sums / a row's sum of weights)

The tiles of keys are those with an element in the mask's band for any of the block's rows: all of
them, where nothing is masked. Under a causal mask later rows have more; the longest blocks come
first.

To wait means: what this thread has asked for is there, and all threads of the block have met. So
whatever was asked for by any of them is there, and whatever was read before may be overwritten
behind it: keys by those that are asked for behind the wait for the values, values, and weights
that go through shared memory, behind the next wait for keys. A unit may have all threads meet more
often; it must not write what is read here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tvm import tirx
from tvm.tirx.script import builder as ib

from tvm_tile.build.leaving import leaving
from tvm_tile.graph.expression import Place, digits
from tvm_tile.schedule.attention.find import AttentionMatch
from tvm_tile.schedule.attention.rows import HeldScores, begin_weighing
from tvm_tile.schedule.attention.walk import KeyWalk
from tvm_tile.schedule.tensor_cores.parameters import function
from tvm_tile.schedule.threads import Threads
from tvm_tile.tile.attention.rounds import WalkingTile

QUERIES, KEYS, VALUES = range(3)  # the operands


class AttentionUnit(Protocol):
    """The unit that multiplies, while the code of one thread is written."""

    @property
    def held(self) -> HeldScores:
        """The scores and the sums of the thread."""

    @property
    def has_small_scores(self) -> bool:
        """Whether scores stay finite when a constant of half precision multiplies them."""

    def ask(self, which: int, place: Place, conditions: Sequence[Any] = ()) -> None:
        """Begin to bring an operand's tile, if all conditions hold: if there is one.

        Queries are there behind the next wait, whatever that is for.
        """
        ...

    def wait(self, which: int, place: Place) -> None:
        """Wait until all threads may read an operand's tile, and weights that were handed over."""
        ...

    def score(self) -> None:
        """``held.scores = queries @ keys``."""
        ...

    def hand_over(self) -> None:
        """Have the weights, which are in ``held.scores``, where the second product finds them."""
        ...

    def add(self) -> None:
        """``held.sums += weights @ values``."""
        ...

    def store(self) -> None:
        """Store what the epilogue makes of ``held.sums``."""
        ...


Begin = Callable[[AttentionMatch, Any, Any, Place, Mapping[str, Any]], AttentionUnit]
"""Unit of what is computed, a block and thread, the place of the block's first row and the
parameters."""


def write_attention(
    found: AttentionMatch,
    tile: WalkingTile,
    threads: Threads,
    begin: Begin,
) -> tirx.PrimFunc:
    """The function of a chain of two products.

    Args:
        found: the two products, whose operands are named as the function's parameters.
        tile: how to compute it.
        threads: threads that the unit is written for.
        begin: function that makes the unit.
    """
    with (
        function(found.params, threads.function) as (builder, buffers),
        threads.launch(tile.grid, tile.block_size) as (block, _, thread),
    ):
        found = found.in_registers()
        origin = _origin(found, tile, block)
        for needed in found.needs(origin):
            ib.evaluate(leaving(needed))
        unit = begin(found, block, thread, origin, buffers)
        walk = KeyWalk(found, tile, thread, buffers, lambda _: origin, threads.meet)
        _walk(found, unit, walk, origin, buffers)
    return builder.get().without_attr("global_symbol")


def _origin(found: AttentionMatch, tile: WalkingTile, block: Any) -> Place:
    """Values of all axes at a block's first row, but of those that are summed."""
    first, values = found.chain.first, found.chain.second.right
    (rows,) = first.left.free
    number, place = tile.rounds.place(block)
    extents = [axis.extent for axis in first.batch]
    batch = digits(ib.Bind(number), first.batch, extents) if first.batch else []
    origin = {name: ib.Bind(value) for name, value in batch}
    origin[rows.name] = ib.Bind(place * tile.rows)
    return origin | {axis.name: tirx.const(0) for axis in values.free}


def _walk(
    found: AttentionMatch,
    unit: AttentionUnit,
    walk: KeyWalk,
    origin: Place,
    buffers: Mapping[str, Any],
) -> None:
    """The loop over tiles of keys, and what is around it."""
    chain = found.chain
    first, count = walk.tiles(origin, 0)
    slope = found.weights.slope if unit.has_small_scores else None
    rows = begin_weighing(found, unit.held, buffers, slope)

    def keys(number: Any) -> Place:
        return {**origin, chain.keys.name: number * unit.held.keys}

    with ib.unroll(int(unit.held.sums.ty.shape[0])) as i:
        ib.buffer_store(unit.held.sums, tirx.const(0.0, "float32"), [i])
    rows.start(origin)
    unit.ask(QUERIES, origin)
    unit.ask(KEYS, keys(tirx.const(0) + first))
    with ib.serial(count) as step:
        tile_number = ib.Bind(step + first)
        here = keys(tile_number)
        unit.wait(KEYS, here)
        unit.ask(VALUES, here)
        unit.score()
        rows.weigh(origin, here[chain.keys.name])
        unit.hand_over()
        rows.scale()
        unit.wait(VALUES, here)
        unit.ask(KEYS, keys(tile_number + 1), [step + 1 < count])
        unit.add()
    rows.finish(origin)
    unit.store()
