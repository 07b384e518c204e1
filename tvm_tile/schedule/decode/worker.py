"""What a worker of a decode kernel is made of: a warp, or a block of threads.

A worker's threads exchange what they know; whatever one of them has stored all may read behind
``sync``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.schedule.steps import shared_scope
from tvm_tile.tile.decode import ALIGNED, DecodeTile, Room, shared_bytes

_ALL_LANES = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Memory:
    """Shared memory of a block, flat buffers.

    Attributes:
        queries: float32, by rows.
        keys: stages of all workers.
        values: likewise.
        weights: float32, of each worker's keys those of all rows.
        sums: float32, of each worker's parts those of all rows and columns.
        marks: float32, of each worker's rows the maximum, and the sum of weights.
        own: float32, what the block has added up, then maxima and sums of weights.
    """

    queries: Any
    keys: Any
    values: Any
    weights: Any
    sums: Any
    marks: Any
    own: Any = None


class Threads(Protocol):
    """How threads of a kernel know of each other."""

    def function(self) -> AbstractContextManager[Any]:
        """A frame for a function."""
        ...

    def launch(self, tile: DecodeTile) -> AbstractContextManager[tuple[Any, Any, Any]]:
        """A frame for its kernel: the numbers of the group, of the block in it, of the thread."""
        ...

    def allocate(self, rooms: Sequence[Room], then: Sequence[Room]) -> list[Any]:
        """Flat buffers in shared memory; those of ``then`` may lie where the others were."""
        ...

    def meet(self) -> None:
        """Wait until all threads of the block have come here and see what was written."""
        ...

    def sync(self) -> None:
        """The same for all threads of a worker."""
        ...

    def any(self, condition: Any) -> Any:
        """Whether a condition holds for any thread of a worker."""
        ...

    def reduce(self, values: Any, op: str, lane: Any) -> None:
        """Combine each of some registers over all threads of a worker: ``max`` or ``sum``."""
        ...


class Warps:
    """Warps of NVIDIA's: as ``Threads`` says."""

    def __init__(self, device: Device) -> None:
        self._scope = device.memory(MemoryLevel.SHARED).scope

    def function(self) -> AbstractContextManager[Any]:
        """As ``Threads`` says."""
        return ib.prim_func()

    @contextmanager
    def launch(self, tile: DecodeTile) -> Iterator[tuple[Any, Any, Any]]:
        """As ``Threads`` says."""
        ib.device_entry()
        # Its use makes clusters of neighbouring blocks.
        rank = ib.cta_id_in_cluster([tile.splits]) if tile.splits > 1 else tirx.const(0)
        block = ib.cta_id([tile.grid])
        thread = ib.thread_id([tile.block_size])
        yield ib.Bind(block // tile.splits) if tile.splits > 1 else block, rank, thread

    def allocate(self, rooms: Sequence[Room], then: Sequence[Room]) -> list[Any]:
        """As ``Threads`` says: all are parts of one buffer."""
        size = max(map(shared_bytes, (rooms, then)))
        data = ib.alloc_buffer((size,), "uint8", scope=self._scope, align=ALIGNED)
        found = []
        for phase in (rooms, then):
            for number, own in enumerate(phase):
                start = shared_bytes(phase[:number])
                view = ib.decl_buffer(
                    (own.elements,),
                    own.dtype,
                    data=data.data,
                    elem_offset=start // element_size(own.dtype),
                    scope=self._scope,
                )
                found.append(view)
        return found

    def meet(self) -> None:
        """As ``Threads`` says."""
        ib.evaluate(T.cuda.cta_sync())

    def sync(self) -> None:
        """As ``Threads`` says."""
        ib.evaluate(T.cuda.warp_sync())

    def any(self, condition: Any) -> Any:
        """As ``Threads`` says."""
        asked = tirx.Cast("int32", condition)
        return ib.Bind(T.cuda.any_sync(T.uint32(_ALL_LANES), asked)) != 0

    def reduce(self, values: Any, op: str, lane: Any) -> None:
        """As ``Threads`` says."""
        for number in range(int(values.ty.shape[0])):
            ib.buffer_store(values, T.cuda.warp_reduce(values[number], op), [number])


class Blocks:
    """Blocks of one worker each, in what TVM writes in OpenCL, too: as ``Threads`` says.

    There is a buffer for each part of shared memory: within one, TVM would have threads wait
    wherever it cannot tell that they read and write different parts.
    """

    def __init__(self, device: Device, tile: DecodeTile) -> None:
        self._scope = shared_scope(device, tile.shared_bytes)
        self._lanes = tile.lanes

    def function(self) -> AbstractContextManager[Any]:
        """As ``Threads`` says."""
        return ib.prim_func(s_tir=True)

    @contextmanager
    def launch(self, tile: DecodeTile) -> Iterator[tuple[Any, Any, Any]]:
        """As ``Threads`` says."""
        blocks = ib.thread_binding(tile.grid, thread="blockIdx.x")
        threads = ib.thread_binding(tile.block_size, thread="threadIdx.x")
        with blocks as block, threads as thread:
            size = self._lanes * tile.decode.rows
            self._known = ib.alloc_buffer((size,), "float32", scope=self._scope)
            self._flags = ib.alloc_buffer((self._lanes,), "int32", scope=self._scope)
            self._found = ib.alloc_buffer((1,), "int32", scope="local")
            self._thread = thread
            yield block, tirx.const(0), thread

    def allocate(self, rooms: Sequence[Room], then: Sequence[Room]) -> list[Any]:
        """As ``Threads`` says."""
        return [
            ib.alloc_buffer((own.elements,), own.dtype, scope=self._scope)
            for own in (*rooms, *then)
        ]

    def meet(self) -> None:
        """As ``Threads`` says."""
        ib.evaluate(ib.tvm_storage_sync(self._scope))

    def sync(self) -> None:
        """As ``Threads`` says."""
        self.meet()

    def any(self, condition: Any) -> Any:
        """As ``Threads`` says."""
        found = self._found
        ib.buffer_store(self._flags, tirx.Cast("int32", condition), [self._thread])
        self.meet()
        ib.buffer_store(found, tirx.const(0), [0])
        with ib.serial(self._lanes) as other:
            ib.buffer_store(found, found[0] | self._flags[other], [0])
        self.meet()
        return found[0] != 0

    def reduce(self, values: Any, op: str, lane: Any) -> None:
        """As ``Threads`` says."""
        lanes, rows = self._lanes, int(values.ty.shape[0])
        with ib.unroll(rows) as number:
            ib.buffer_store(self._known, values[number], [number * lanes + lane])
        self.meet()
        with ib.unroll(rows) as number:
            ib.buffer_store(values, self._known[number * lanes], [number])
            with ib.serial(lanes - 1) as other:
                own = self._known[number * lanes + other + 1]
                both = ib.max(values[number], own) if op == "max" else values[number] + own
                ib.buffer_store(values, both, [number])
        self.meet()


def registers(size: int, dtype: str = "float32") -> Any:
    """So many of a thread's."""
    return ib.alloc_buffer((size,), dtype, scope="local")
