"""Parts that kernels of scans and sorts share: functions, threads, states in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.graph.rowwise import Scan
from tvm_tile.loops.combining import Combining, State
from tvm_tile.loops.rows import number, shape_of
from tvm_tile.loops.scans import Outputs
from tvm_tile.tile.rows.rows import RowTile

Index = Sequence[Any]


class ScanKernel(Protocol):
    """One kernel of a scan, while it is written."""

    def write_totals(self) -> None:
        """Write the kernel as the first of two, which stores the total of each part."""

    def write(self) -> None:
        """Write the kernel as the last one, which stores the results."""


Begin = Callable[[str, Combining, Outputs, "States | None"], ScanKernel]
"""Begins a kernel: its name, how states combine, the parameters, and the totals of all parts."""


def write_scan(scan: Scan, totals: Sequence[int], begin: Begin) -> tirx.PrimFunc:
    """The function of a scan, of one kernel or of two, with the parameters of its definition.

    Args:
        scan: the scan that is computed.
        totals: the shape of the totals of all parts; empty where rows are not in parts.
        begin: begins each kernel.
    """
    combining = Combining(scan)
    with IRBuilder() as builder, ib.prim_func(s_tir=True):
        ib.func_name(scan.name)
        ib.func_attr({"tirx.noalias": True})
        tensors = _declared(scan)
        states = None
        if totals:
            states = States.allocated("totals", totals, combining.dtypes, "global")
            begin("total", combining, tensors, states).write_totals()
        begin("own", combining, tensors, states).write()
    return builder.get().without_attr("global_symbol")


def _declared(scan: Scan) -> Outputs:
    """The function's parameters, which are declared here."""
    shape = shape_of(scan.rows)
    x = ib.arg("x", ib.buffer(shape, scan.source))
    y = ib.arg("y", ib.buffer(shape, scan.result))
    places = ib.arg("places", ib.buffer(shape, "int64")) if scan.has_places else None
    return Outputs(Combining(scan), x, y, places)


@dataclass(frozen=True, slots=True)
class Lane:
    """One of the threads that share a row.

    Attributes:
        row: its number among all.
        part: the number of the thread's block among those that share the row.
        lane_row: the row's number within the block.
        lane: the thread's number among those of its block that share the row.
        is_row: the test of whether there is such a row; empty where there always is.
    """

    row: Any
    part: Any
    lane_row: Any
    lane: Any
    is_row: tuple[Any, ...]


@contextmanager
def lanes(tile: RowTile) -> Iterator[Lane]:
    """Loops over blocks and threads; each part of a row has a block of its own."""
    with (
        bound(-(-tile.rows // tile.rows_per_block), "blockIdx.x") as group,
        bound(tile.parts, "blockIdx.y") as part,
        bound(tile.rows_per_block, "threadIdx.y") as lane_row,
        bound(tile.threads_per_row, "threadIdx.x") as lane,
    ):
        row = ib.Bind(group * number(tile.rows_per_block) + lane_row)
        is_row = (row < number(tile.rows),) if tile.rows % tile.rows_per_block else ()
        yield Lane(row, part, lane_row, lane, is_row)


@dataclass(frozen=True, slots=True)
class States:
    """An array of states, with one buffer for each number of a state."""

    buffers: tuple[Any, ...]

    @classmethod
    def allocated(
        cls, name: str, shape: Sequence[int], dtypes: Sequence[str], scope: str
    ) -> States:
        """An array in memory of a scope, its buffers of these element types."""
        own = (
            ib.sblock_alloc_buffer([number(n) for n in shape], dtype, scope=scope)
            for dtype in dtypes
        )
        return cls(tuple(IRBuilder.name(f"{name}_{i}", buffer) for i, buffer in enumerate(own)))

    def load(self, at: Index) -> State:
        """The state at an index."""
        return tuple(tirx.BufferLoad(buffer, list(at)) for buffer in self.buffers)

    def store(self, state: State, at: Index) -> None:
        """Store a state, all numbers at once: some may be computed from what others overwrite."""
        values = [ib.Bind(value) for value in state] if len(state) > 1 else list(state)
        for buffer, value in zip(self.buffers, values, strict=True):
            ib.buffer_store(buffer, value, list(at))


@contextmanager
def when(tests: Sequence[Any]) -> Iterator[None]:
    """A frame for what is done only where all tests hold."""
    if not tests:
        yield
        return
    with ib.If(tirx.all(*tests) if len(tests) > 1 else tests[0]), ib.Then():
        yield


def otherwise(tests: Sequence[Any], then: Callable[[], None], other: Callable[[], None]) -> None:
    """Do ``then`` where all tests hold, else ``other``."""
    if not tests:
        then()
        return
    with ib.If(tirx.all(*tests) if len(tests) > 1 else tests[0]):
        with ib.Then():
            then()
        with ib.Else():
            other()


def barrier() -> None:
    """Wait until all threads of a block have come here and see what was written."""
    ib.evaluate(ib.tvm_storage_sync("shared"))


def bound(extent: int, tag: str) -> Any:
    """A loop over blocks or threads."""
    return ib.thread_binding(number(extent), thread=tag)
