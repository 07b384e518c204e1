"""Rows of keys or values of one tile, from global memory to a worker's stage in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as ib

from tvm_tile.graph.tile_graph import element_size
from tvm_tile.schedule.tensor_cores.store import when
from tvm_tile.schedule.units.asynchronous_copies import ask
from tvm_tile.tile.attention.decode_tile import Cached


@dataclass(frozen=True, slots=True)
class RowCopies:
    """Copies by the threads of a worker; neighbours copy neighbouring vectors.

    Keys behind the last one become zeros.

    Attributes:
        rows: rows of the tile.
        source: the parameter as a flat buffer.
        first: elements from its start to the group's first row.
        stages: shared memory, a flat buffer of all workers' stages.
        lanes: threads of the worker, and rows of a tile.
        key_count: rows of the group.
        stride: elements from a row to the next.
        lane: the thread's number in the worker.
        waits: whether copies are done when they were asked for.
    """

    rows: Cached
    source: Any
    first: Any
    stages: Any
    lanes: int
    key_count: int
    stride: int
    lane: Any
    waits: bool

    def ask(self, into: Any, key: Any) -> None:
        """Begin to copy the tile from a key on to a stage that begins with element ``into``."""
        rows = self.rows
        with ib.unroll(rows.vectors) as turn:
            number = ib.Bind(turn * self.lanes + self.lane)
            row, column = number // rows.vectors, number % rows.vectors * rows.vector
            there = into + row * rows.pitch + column
            inside = [key + row < self.key_count] if self.key_count % self.lanes else []
            at = self.first + (key + row) * self.stride + column
            if self.waits:
                self._copy(there, at, inside)
            else:
                self._copy_asynchronously(there, at, inside)

    def _copy(self, into: Any, at: Any, inside: list[Any]) -> None:
        """Copy a vector of a row through registers, zeros outside of the keys."""
        rows = self.rows
        with when(inside), ib.vectorized(rows.vector) as v:
            ib.buffer_store(self.stages, self.source[at + v], [into + v])
        for own in inside:
            with when([tirx.Not(own)]), ib.vectorized(rows.vector) as v:
                ib.buffer_store(self.stages, tirx.const(0.0, rows.dtype), [into + v])

    def _copy_asynchronously(self, into: Any, at: Any, inside: list[Any]) -> None:
        """Ask for a vector of a row by cp.async, zeros outside of the keys."""
        size = self.rows.vector * element_size(self.rows.dtype)
        at = tirx.Select(inside[0], at, self.first) if inside else at
        ask(self.stages.ptr_to([into]), self.source.ptr_to([at]), size, inside)
