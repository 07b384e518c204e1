"""Write a chain of two products as one persistent kernel, warp-specialised like a single product.

The loops that :func:`write_chain` writes, for each of a block's items (rows of one batch)::

    producer (one thread of its warpgroup)     consumers (a warpgroup for every 64 rows)
    copy the rows' left operand                wait for it
    for tile of keys:                          scores = left @ keys[0];  weights = f(scores)
        copy keys to their ring                for tile of keys but the first:
        copy values to theirs                      scores = left @ keys[tile]             (async)
                                                   sums += weights @ values[tile - 1]     (async)
                                                   when scores are there: f(scores), a row's maximum
                                                   when sums are there: scale them, new weights
                                               sums += weights @ values[last]
                                               store epilogue(sums / a row's sum of weights)

The tiles of keys are those with an element in the mask's band for any of the item's rows: all of
them, where nothing is masked; or those that a table lists. Under a causal mask later rows have
more; the longest items come first (:class:`tvm_tile.tile.attention.rounds.Rounds`), and only tiles
at the band's edge compare indices, or those in which a table says that the mask hides something.

While tensor cores add up one tile's values, other lanes weigh the next tile's scores. The weights'
registers are written behind the wait for the product that reads them.

Why this is free of races: each ring is the one of ``pipelines/specialised.py``, with the same
argument; the left operand is a ring of one stage. A consumer gives back keys when it has waited for
the scores, values when it has waited for the sums, and the left operand behind the last scores of
an item. The producer asks for a tile of keys before the values of the one before it are given back
only if the ring has another stage: there are at least two, so neither side waits for the other in a
circle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.device.device import STATIC_SHARED_LIMIT
from tvm_tile.graph.expression import Place, digits
from tvm_tile.schedule.attention.find import AttentionMatch
from tvm_tile.schedule.attention.rows import begin_weighing
from tvm_tile.schedule.attention.walk import KeyWalk, Steps
from tvm_tile.schedule.attention.warp_rows import WarpRows
from tvm_tile.schedule.pipelines.specialised import specialise
from tvm_tile.schedule.tensor_cores.parameters import function
from tvm_tile.schedule.tensor_cores.place import Boxed
from tvm_tile.schedule.tensor_cores.store import SumStore, when
from tvm_tile.schedule.threads import begin_kernel
from tvm_tile.schedule.units.bulk_copies import TmaChunks
from tvm_tile.schedule.units.ring import Ring, Turn, make_ring
from tvm_tile.schedule.units.wgmma import Instruction, group, wait
from tvm_tile.tile.attention.chain import Chain
from tvm_tile.tile.attention.warpgroups import ChainTile
from tvm_tile.tile.products.warpgroup_tile import LINE, WARPGROUP
from tvm_tile.tile.units.sum_layout import CORNER_PITCH, CORNER_ROWS

_DEPTH = 16  # of an instruction
_LEFT, _KEYS, _VALUES = range(3)  # the operands, each with a ring


@dataclass(frozen=True, slots=True)
class _ChainKernel:
    """State that the producer and the consumers of a chain share while their code is written."""

    found: AttentionMatch
    tile: ChainTile
    sides: Sequence[TmaChunks]
    maps: Sequence[Any]
    rings: Sequence[Ring]
    walk: KeyWalk
    block: Any
    thread: Any

    @property
    def chain(self) -> Chain:
        """The chain that is computed."""
        return self.found.chain

    def for_items(self, body: Callable[[Place, Steps], None]) -> None:
        """Run ``body`` for each of the block's items.

        It is given the place of the item's first row, and the tiles of keys for its rows. Producer
        and consumers count items by the block's number alone, and ask for an item's tiles, each for
        itself, and find the same numbers: so whatever is copied is waited for and given back. Items
        behind the rows of a call are left out by both.
        """
        rounds = self.tile.rounds
        with ib.serial(rounds.turns(self.block)) as turn:
            number, own = rounds.place(ib.Bind(rounds.item(turn, self.block)))
            place = first_row(self.chain, self.tile, number, self.walk.rows(own))
            with when(self.found.needs(place)):
                columns = {axis.name: tirx.const(0) for axis in self.chain.second.right.free}
                body({**place, **columns}, self.walk.steps(place, turn, own))


def first_row(chain: Chain, tile: ChainTile, number: Any, own: Any) -> Place:
    """The place of the first row of a tile of rows, given the number of its batch and its own:
    values of the rows' and the batch's axes."""
    (rows,), batch = chain.first.left.free, chain.first.batch
    place = dict(digits(ib.Bind(number), batch, [axis.extent for axis in batch]))
    place = {name: ib.Bind(value) for name, value in place.items()}
    return place | {rows.name: ib.Bind(own * tile.rows)}


def write_chain(found: AttentionMatch, tile: ChainTile) -> tirx.PrimFunc:
    """The function of a chain of two products, perhaps with a softmax in between."""
    chain = found.chain
    first, second = chain.first, chain.second
    line = LINE // first.left.tensor.element_size
    lines, width = tile.depth // line, -(-tile.columns // line) * line
    keys_start = lines * tile.rows * LINE
    values_start = keys_start + lines * tile.keys * LINE
    # With the keys contiguous a chunk is a line deep.
    deep = line if second.right.is_depth_major else tile.keys
    parts = -(-tile.keys // deep)
    values = TmaChunks(second.right, (width,), values_start, chain.keys, deep, parts)
    sides = (
        TmaChunks(first.left, (tile.rows,), 0, first.depth, line, lines),
        TmaChunks(first.right, (tile.keys,), keys_start, first.depth, line, lines),
        values,
    )
    with function(found.params) as (builder, buffers):
        # Zeros are copied from behind the last value: 0 times what lies there may not be 0.
        limits = {} if found.keys is None else {chain.keys.name: found.keys}
        maps = [side.tensor_map(buffers, limits if side is values else {}) for side in sides]
        block, _, thread = begin_kernel(tile.grid, tile.block_size)
        found = found.in_registers()
        # Launches ask for more than the static limit only where this buffer exceeds it alone.
        size = max(tile.ring_bytes, STATIC_SHARED_LIMIT + 1)
        data = ib.alloc_buffer((size,), "uint8", scope="shared.dyn", align=1024)
        stage_bytes = values_start - keys_start + tile.keys // deep * values.size
        stages = (1, 0), (tile.stages, stage_bytes), (tile.stages, stage_bytes)
        rings = [make_ring(data, *own, tile.consumers, thread) for own in stages]
        rounds = tile.rounds

        def origin(turn: Any) -> Place:
            """The place of the first row of a turn's item; of the last one, if there is none."""
            item = ib.Bind(ib.min(rounds.item(turn, block), rounds.items - 1))
            return first_row(chain, tile, *rounds.place(item))

        walk = KeyWalk(found, tile, thread, buffers, origin, lambda: ib.evaluate(T.cuda.cta_sync()))
        ib.evaluate(T.cuda.cta_sync())
        kernel = _ChainKernel(found, tile, sides, maps, rings, walk, block, thread)
        corners = (4 * tile.consumers, CORNER_ROWS, CORNER_PITCH)
        memory = ib.alloc_buffer(corners, "float32", scope="shared")
        rows = Boxed(second.left, (tile.rows,), tile.rows)
        (column,) = second.right.free
        columns = Boxed(second.right, (min(tile.columns, column.extent),), tile.columns)
        store = SumStore(rows, columns, found.epilogue, buffers, memory)
        roles = partial(_produce, kernel), partial(_consume, kernel, store, buffers)
        specialise(thread, tile.division, *roles)
    return builder.get()


def _produce(kernel: _ChainKernel) -> None:
    """The thread that asks for copies."""
    chain = kernel.chain

    def fill(which: int, place: Place) -> None:
        """Fill a stage with the chunk at a place: of the first product its whole depth."""
        side, turn = kernel.sides[which], turns[which]
        turn.wait_until_empty()
        turn.expect(side.size)
        side.copy(kernel.maps[which], turn, {chain.first.depth.name: tirx.const(0), **place})
        turn.advance()

    def item(origin: Place, steps: Steps) -> None:
        """Copy everything that an item needs."""
        fill(_LEFT, origin)
        with ib.serial(steps.count) as step:
            first, _ = steps.at(step)
            place = {**origin, chain.keys.name: first}
            fill(_KEYS, place)
            fill(_VALUES, place)

    with ib.If(kernel.thread == 0), ib.Then():
        turns = [Turn(ring) for ring in kernel.rings]
        kernel.for_items(item)


class _ChainConsumer:
    """One thread of a consumer warpgroup, while its code is written."""

    def __init__(self, kernel: _ChainKernel, buffers: Mapping[str, Any]) -> None:
        tile, found = kernel.tile, kernel.found
        self.kernel, self.tile = kernel, tile
        self.thread = ib.Bind(kernel.thread - WARPGROUP)
        self.held = WarpRows(self.thread, tile.rows, tile.keys, tile.columns)
        # With scores of half precision the exponent is one multiplication and one addition.
        self.rows = begin_weighing(found, self.held, buffers, found.weights.slope)
        self.turns = [Turn(ring) for ring in kernel.rings]
        dtypes = (found.chain.first.left.tensor.dtype,) * 2
        _, keys, values = kernel.sides
        self.scoring = Instruction(tile.keys, dtypes, (False, keys.is_transposed))
        self.adding = Instruction(tile.columns, dtypes, (values.is_transposed,))
        start = ib.Bind(T.cuda.cvta_generic_to_shared(kernel.rings[_LEFT].data.ptr_to([0])))
        first_rows = self.thread // WARPGROUP * 64, tirx.const(0), tirx.const(0)
        self.left, self.keys, self.values = (
            side.descriptor(start, row) for side, row in zip(kernel.sides, first_rows, strict=True)
        )

    def wait(self, which: int) -> None:
        """Wait until what a ring's turn brings is there."""
        self.turns[which].wait_until_full()

    def release(self, which: int) -> None:
        """Say that a ring's turn is over, and go on."""
        turn = self.turns[which]
        turn.release(turn.stage, self.thread % WARPGROUP == 0)
        turn.advance()

    def score(self) -> None:
        """Begin the scores of the tile of keys whose turn it is, as a group."""
        kernel = self.kernel
        keys = ib.Bind(self.keys + self.turns[_KEYS].moved)
        with group(self.held.scores):
            for step in range(-(-kernel.chain.first.depth.extent // _DEPTH)):
                own, others = (side.depth_units(step) for side in kernel.sides[:_VALUES])
                left = [self.left + T.uint64(own)]
                self.scoring.add(self.held.scores, 0, left, keys + T.uint64(others), step > 0)

    def add(self, is_first: Any) -> None:
        """Begin to add weights times values of the tile whose turn it is, as a group."""
        tile, side = self.tile, self.kernel.sides[_VALUES]
        values = ib.Bind(self.values + self.turns[_VALUES].moved)
        with group(self.held.sums, self.held.packed):
            for step in range(tile.keys // _DEPTH):
                own = [self.held.packed[step * 4 + i] for i in range(4)]
                others = values + T.uint64(side.depth_units(step))
                adds = tirx.Not(is_first) if step == 0 else True
                self.adding.add(self.held.sums, 0, own, others, adds)


def _consume(kernel: _ChainKernel, store: SumStore, buffers: Mapping[str, Any]) -> None:
    """Write the consumers' code: scores, weights and sums, tile by tile of keys."""
    tile = kernel.tile
    own = _ChainConsumer(kernel, buffers)
    rows = own.rows

    def item(origin: Place, steps: Steps) -> None:
        count = steps.count
        rows.start(origin)
        here = steps.at(tirx.const(0))
        own.wait(_LEFT)
        own.wait(_KEYS)
        own.score()
        wait(0, own.held.scores)
        own.release(_KEYS)
        rows.weigh(origin, *here)
        own.held.pack(kernel.chain.second.right.tensor.dtype)
        with ib.serial(count - 1) as step:
            here = steps.at(step + 1)
            own.wait(_KEYS)
            own.score()
            own.wait(_VALUES)
            own.add(step == 0)
            wait(1, own.held.scores)
            own.release(_KEYS)
            rows.weigh(origin, *here)
            wait(0, own.held.sums)
            own.release(_VALUES)
            rows.scale()
            own.held.pack(kernel.chain.second.right.tensor.dtype)
        own.release(_LEFT)
        own.wait(_VALUES)
        own.add(tirx.const(1) == count)
        wait(0, own.held.sums)
        own.release(_VALUES)
        rows.finish(origin)
        first = ib.Bind(own.thread // 32 * CORNER_ROWS)
        store.write(own.held.sums, 0, first, (0, tile.columns), own.thread, origin)

    kernel.for_items(item)
