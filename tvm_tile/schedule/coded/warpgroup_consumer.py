"""A consumer of a kernel for many vectors and codes: it decodes, multiplies and stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.coded.fragments import PAIRS, Held, scale_pair
from tvm_tile.schedule.coded.warpgroup_state import CodedWarpgroups
from tvm_tile.schedule.pipelines.clusters import store_totals
from tvm_tile.schedule.tensor_cores.place import Place
from tvm_tile.schedule.tensor_cores.store import SumStore
from tvm_tile.schedule.units.ring import Turn
from tvm_tile.schedule.units.wgmma import Instruction, group, wait
from tvm_tile.tile.coded.warpgroup import STEP
from tvm_tile.tile.products.warpgroup_tile import WARPGROUP
from tvm_tile.tile.units.sum_layout import CORNER_ROWS

_WARP = 32  # threads
_DEPTH = 16  # of an instruction
_INSTRUCTIONS = STEP // _DEPTH
_FRAGMENT = 4  # registers of an instruction's left operand
_LANES = 4  # of a warp, that share a row


def consume(kernel: CodedWarpgroups, store: SumStore) -> None:
    """Compute and store the block's tiles; all threads of the consumers' warpgroups run this."""
    kernel.block.for_tiles(_DecodingConsumer(kernel, store).compute)


class _DecodingConsumer:
    """One thread of a consumer warpgroup, while its code is written."""

    def __init__(self, kernel: CodedWarpgroups, store: SumStore) -> None:
        self._kernel, self._tile, self._store = kernel, kernel.tile, store
        tile, self._turn = kernel.tile, Turn(kernel.ring)
        self._thread = ib.Bind(kernel.block.thread - WARPGROUP)
        lane = ib.Bind(self._thread % _WARP)
        self._warp_row = ib.Bind(self._thread // _WARP * CORNER_ROWS)  # in the block
        self._row = ib.Bind(self._warp_row + lane // _LANES)  # the first of the thread's two
        constants = _loaded(kernel.constants, len(kernel.fragments.constants))
        self._held = Held(constants, kernel.fragments.chosen(ib.Bind(lane % _LANES)))
        start = ib.Bind(T.cuda.cvta_generic_to_shared(kernel.ring.data.ptr_to([0])))
        self._right = kernel.vectors.descriptor(start, tirx.const(0))
        self._sums = ib.alloc_buffer((tile.width // 2,), "float32", scope="local")
        bits = kernel.fragments.bits
        count = _INSTRUCTIONS * _FRAGMENT
        self._lefts = [ib.alloc_buffer((count,), "uint32", scope="local") for _ in range(2)]
        self._words = ib.alloc_buffer((2 * bits,), "uint32", scope="local")
        self._shared = ib.alloc_buffer((2 * tile.shared_words,), "uint32", scope="local")
        self._codes = kernel.words(tile.codes_start)
        self._boxes = kernel.words(tile.shared_start)

    def compute(self, origin: Place) -> None:
        """Compute and store a tile."""
        steps, turn = self._tile.depth // STEP, self._turn
        _, count = self._kernel.block.own_chunks(origin)
        turn.wait_until_full()
        self._load(0)
        self._decode(0)
        with ib.serial(count) as chunk:
            is_last = chunk + 1 == count
            for step in range(steps):
                self._multiply(step, chunk)
                if step < steps - 1:
                    self._load(step + 1)
                    wait(1)
                    if step == 0:
                        with ib.If(chunk > 0), ib.Then():
                            turn.release(turn.previous, self._kernel.of_warp())
                    self._decode(step + 1)
            turn.advance()
            with ib.If(tirx.Not(is_last)), ib.Then():
                turn.wait_until_full()
                self._load(0)
                wait(1)
                self._decode(0)
        wait(0, self._sums)
        turn.release(turn.previous, self._kernel.of_warp())
        self._put(origin)

    def _load(self, step: int) -> None:
        """Load a step's codes of both rows, and what they share, where that is another's."""
        tile, bits = self._tile, self._kernel.fragments.bits
        stage = self._turn.stage * (tile.stage_bytes // 4)
        each = min(4, bits)  # words of a load
        stage_loads, row_loads = (size // 4 // each for size in (tile.stage_bytes, tile.row_bytes))
        for half in range(2):
            row = self._row + half * (CORNER_ROWS // 2)
            # In loads, so that TVM sees that they begin where they may.
            begin = ib.Bind(self._turn.stage * stage_loads + row * row_loads)
            for word in range(0, bits, each):
                with ib.vectorized(each) as v:
                    found = self._codes[(begin + (step * bits + word) // each) * each + v]
                    ib.buffer_store(self._words, found, [half * bits + word + v])
            if step * STEP % tile.unit:
                continue
            for which in range(tile.shared_words):
                place = (which * tile.units + step * STEP // tile.unit) * tile.block_rows + row
                found = self._boxes[stage + place]
                ib.buffer_store(self._shared, found, [which * 2 + half])

    def _decode(self, step: int) -> None:
        """Make the step's left operand of the codes that were loaded."""
        kernel, bits = self._kernel, self._kernel.fragments.bits
        left, each = self._lefts[step % 2], self._kernel.fragments.bits // _INSTRUCTIONS
        for half in range(2):
            zero = self._shared[2 + half] if self._tile.shared_words > 1 else None
            for number in range(_INSTRUCTIONS):
                first = half * bits + number * each
                words = [self._words[first + word] for word in range(each)]
                # Of a fragment: both rows' first pairs, and both rows' second ones.
                places = [number * _FRAGMENT + half + 2 * pair for pair in range(PAIRS)]
                results = [left[place] for place in places]
                kernel.fragments.decode(words, self._held, results, zero)
                for result in results:
                    scale_pair(kernel.dtype, kernel.step_dtype, result, self._shared[half])

    def _multiply(self, step: int, chunk: Any) -> None:
        """Begin the products of a step, as a group."""
        kernel, tile, left = self._kernel, self._tile, self._lefts[step % 2]
        instruction = Instruction(tile.width, (kernel.dtype, kernel.dtype), (False,))
        right = ib.Bind(self._right + self._turn.moved)
        with group(self._sums, left):
            for number in range(_INSTRUCTIONS):
                begin = kernel.vectors.depth_units(step * _INSTRUCTIONS + number)
                own = [left[number * _FRAGMENT + i] for i in range(_FRAGMENT)]
                # The first product of a tile does not add to what the registers hold.
                adds = chunk > 0 if step == 0 and number == 0 else True
                instruction.add(self._sums, 0, own, right + T.uint64(begin), adds)

    def _put(self, origin: Place) -> None:
        """Store the sums, by vectors: rows of the matrix are neighbours in the output."""
        tile, store = self._tile, self._store
        lane = ib.Bind(self._thread % _WARP) if tile.splits > 1 else None
        for first in range(0, tile.width, tile.together):

            def at(row: Any, column: Any, first: int = first) -> list[Any]:
                return [first + row, self._warp_row + column]

            if lane is not None:
                store.lay_down(self._sums, first // 2, CORNER_ROWS, lane, at)
                continue
            columns = (self._warp_row, CORNER_ROWS)
            store.write(self._sums, first // 2, first, columns, self._thread, origin)
        if tile.splits > 1:
            store_totals(store, self._kernel.block, tile.block_rows, self._thread, origin)


def _loaded(constants: Any, count: int) -> Sequence[Any]:
    """Registers with words of shared memory, whatever the compiler knows of what was stored."""
    registers = ib.alloc_buffer((count,), "uint32", scope="local")
    for i in range(count):
        ib.evaluate(T.ptx["ld.shared.u32"](registers[i], constants.ptr_to([i])))
    return [registers[i] for i in range(count)]
