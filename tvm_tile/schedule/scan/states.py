"""States of a scan in memory: one buffer for each number of a state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.graph.rowwise import Scan
from tvm_tile.loops.combining import Combining, State
from tvm_tile.loops.rows import number, shape_of
from tvm_tile.loops.scans import Outputs

Index = Sequence[Any]


def declared(scan: Scan) -> Outputs:
    """The function's parameters."""
    shape = shape_of(scan.rows)
    x = ib.arg("x", ib.buffer(shape, scan.source))
    y = ib.arg("y", ib.buffer(shape, scan.result))
    places = ib.arg("places", ib.buffer(shape, "int64")) if scan.has_places else None
    return Outputs(Combining(scan), x, y, places)


@dataclass(frozen=True, slots=True)
class States:
    """An array of states."""

    buffers: tuple[Any, ...]

    @classmethod
    def allocated(
        cls, name: str, shape: Sequence[int], dtypes: Sequence[str], scope: str
    ) -> States:
        """In memory of this scope."""
        own = (
            ib.sblock_alloc_buffer([number(n) for n in shape], dtype, scope=scope)
            for dtype in dtypes
        )
        return cls(tuple(IRBuilder.name(f"{name}_{i}", buffer) for i, buffer in enumerate(own)))

    def load(self, at: Index) -> State:
        """The state there."""
        return tuple(tirx.BufferLoad(buffer, list(at)) for buffer in self.buffers)

    def store(self, state: State, at: Index) -> None:
        """All numbers at once: some may be computed from what others overwrite."""
        values = [ib.Bind(value) for value in state] if len(state) > 1 else list(state)
        for buffer, value in zip(self.buffers, values, strict=True):
            ib.buffer_store(buffer, value, list(at))


@contextmanager
def when(tests: Sequence[Any]) -> Iterator[None]:
    """Only where all tests hold."""
    if not tests:
        yield
        return
    with ib.If(tirx.all(*tests) if len(tests) > 1 else tests[0]), ib.Then():
        yield


def otherwise(tests: Sequence[Any], then: Callable[[], None], other: Callable[[], None]) -> None:
    """``then`` where all tests hold, else ``other``."""
    if not tests:
        then()
        return
    with ib.If(tirx.all(*tests) if len(tests) > 1 else tests[0]):
        with ib.Then():
            then()
        with ib.Else():
            other()


def barrier() -> None:
    """All threads of a block have come here before any goes on, and see what was written."""
    ib.evaluate(ib.tvm_storage_sync("shared"))


def bound(extent: int, tag: str) -> Any:
    """A loop over blocks or threads."""
    return ib.thread_binding(number(extent), thread=tag)
