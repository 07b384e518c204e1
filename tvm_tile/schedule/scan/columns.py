"""A scan whose rows are neighbours in memory: each thread has a row, or a part of one.

Before → after::

    for o, i:  for p:  y[o, p, i] = state = state ∘ x[o, p, i]

    for row in threads, part in blocks:                    only where rows are in parts
        totals[part, row] = x[row, first of part] ∘ ... ∘ x[row, last of part]

    for row in threads, part in blocks:
        state = totals[0, row] ∘ ... ∘ totals[part - 1, row]
        for step:
            for u unrolled: own[u] = x[row, step * unroll + u]
            for u unrolled: state = state ∘ own[u];  y[row, step * unroll + u] = state

No thread reads what another of its kernel writes, so that there is nothing to wait for; kernels of
a function run one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.graph.rowwise import Scan
from tvm_tile.loops.combining import Combining
from tvm_tile.loops.rows import index_of, number
from tvm_tile.loops.scans import Outputs
from tvm_tile.schedule.scan.states import States, bound, when
from tvm_tile.tile.rows.scan import ScanTile


@dataclass(frozen=True)
class ColumnKernel:
    """Writes one kernel of a scan, whose fields are what :data:`Begin` gives it."""

    scan: Scan
    tile: ScanTile
    name: str
    combining: Combining
    tensors: Outputs
    totals: States | None

    def write_totals(self) -> None:
        """Write the first kernel, which stores the total of each part."""
        self._with_threads(self._total)

    def write(self) -> None:
        """Write the last kernel, which stores the results."""
        self._with_threads(self._scanned)

    def _with_threads(self, body: Callable[[Any, Any, States], None]) -> None:
        """Write a kernel with a thread for each row and part, whose body this is."""
        tile = self.tile
        state = States.allocated(f"{self.name}_state", (1,), self.combining.dtypes, "local")
        with (
            bound(-(-tile.rows // tile.block_size), "blockIdx.x") as group,
            bound(tile.parts, "blockIdx.y") as part,
            bound(tile.block_size, "threadIdx.x") as thread,
        ):
            row = ib.Bind(group * number(tile.block_size) + thread)
            with when([row < number(tile.rows)] if tile.rows % tile.block_size else []):
                state.store(self.combining.identity(), [0])
                body(row, part, state)

    def _total(self, row: Any, part: Any, state: States) -> None:
        """Store the total of a part."""
        assert self.totals is not None
        self._each(row, part, state, lambda *_: None)
        self.totals.store(state.load([0]), [part, row])

    def _scanned(self, row: Any, part: Any, state: States) -> None:
        """Store the scan of a part, begun with the totals of the parts before it."""
        if self.totals is not None:
            with ib.serial(part) as before:
                found = self.totals.load([before, row])
                state.store(self.combining.combined(state.load([0]), found), [0])

        def store(place: Any) -> None:
            self.tensors.store(state.load([0]), row, place)

        self._each(row, part, state, store)

    def _each(self, row: Any, part: Any, state: States, store: Callable[[Any], None]) -> None:
        """Write the loop over a part's elements, each combined with the state.

        Args:
            row: the row that is scanned.
            part: number of the part of the row.
            state: the state so far, which the loop changes.
            store: called with an element's place where the state is that element's result.
        """
        scan, tile = self.scan, self.tile
        own = ib.sblock_alloc_buffer((number(tile.turns),), scan.source, scope="local")
        IRBuilder.name(f"{self.name}_elements", own)
        is_whole = scan.rows.length == tile.parts * tile.chunks * tile.turns
        with ib.serial(number(tile.chunks)) as step:
            first = ib.Bind((part * number(tile.chunks) + step) * number(tile.turns))
            for fetches in (True, False):
                with ib.unroll(number(tile.turns)) as turn:
                    element = first + turn
                    last = number(scan.rows.length - 1)
                    place = last - element if scan.is_reversed else element
                    with when([] if is_whole else [element < number(scan.rows.length)]):
                        if fetches:
                            at = index_of(scan.rows, row, place)
                            ib.buffer_store(own, tirx.BufferLoad(self.tensors.x, at), [turn])
                            continue
                        given = self.combining.of(tirx.BufferLoad(own, [turn]), place)
                        if scan.is_exclusive:
                            store(place)
                        state.store(self.combining.combined(state.load([0]), given), [0])
                        if not scan.is_exclusive:
                            store(place)
