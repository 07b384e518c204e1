"""Workers of a decode kernel: a warp, or a block of threads.

A worker's threads exchange what they know; whatever one of them has stored all may read behind
``sync``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.device.device import Device
from tvm_tile.schedule.threads import BoundLoops, Numbers, ThreadLevel, Threads
from tvm_tile.tile.attention.decode_tile import DecodeTile, rooms_of

_ALL_LANES = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Buffers:
    """Shared memory of a block, flat buffers.

    Attributes:
        appended: rows that are appended to keys, and to values, if any are.
        queries: by rows, float32, or of the keys' type where tensor cores multiply.
        keys: stages of all workers.
        values: likewise.
        weights: weights of each worker, by keys and float32; or by rows and of the values' type,
            where tensor cores multiply.
        sums: float32, of each worker's parts those of all rows and columns.
        marks: float32, of each worker's rows the maximum, and the sum of weights.
        scores: scores of each worker by keys, float32, where tensor cores multiply.
        handed: a barrier, and float32, what the cluster's blocks hand to this one: sums, then
            maxima and sums of weights; nothing where there is no cluster.
    """

    appended: Sequence[Any]
    queries: Any
    keys: Any
    values: Any
    weights: Any
    sums: Any
    marks: Any
    scores: Any = None
    handed: Sequence[Any] = ()

    @classmethod
    def of(cls, tile: DecodeTile, rooms: Sequence[Any]) -> Buffers:
        """What lies in the rooms of :func:`~tvm_tile.tile.attention.decode.rooms_of`."""
        walk, _ = rooms_of(tile)
        handed = rooms[: 2 if tile.splits > 1 else 0]
        stay = len(handed) + (2 if tile.decode.appended else 0)
        queries, keys, values, weights, *scores = rooms[stay : len(walk)]
        appended, behind = rooms[len(handed) : stay], rooms[-2:]
        own: Any = {"scores": scores[0] if scores else None, "handed": handed}
        return cls(appended, queries, keys, values, weights, *behind, **own)


class Workers(Threads, Protocol):
    """Threads in workers that know of each other."""

    def sync(self) -> None:
        """Wait until all threads of a worker have come here and see what was written."""
        ...

    def any(self, condition: Any) -> Any:
        """Whether a condition holds for any thread of a worker."""
        ...

    def reduce(self, values: Any, op: str, lane: Any) -> None:
        """Combine each of some registers over all threads of a worker: ``max`` or ``sum``."""
        ...


class WarpWorkers(ThreadLevel):
    """Workers that are warps of NVIDIA's GPUs."""

    def sync(self) -> None:
        """Wait for all lanes of the warp."""
        ib.evaluate(T.cuda.warp_sync())

    def any(self, condition: Any) -> Any:
        """Whether a condition holds for any lane, by a vote of the warp."""
        asked = tirx.Cast("int32", condition)
        return ib.Bind(T.cuda.any_sync(T.uint32(_ALL_LANES), asked)) != 0

    def reduce(self, values: Any, op: str, lane: Any) -> None:
        """Combine each of some registers over the lanes, by shuffles."""
        for number in range(int(values.ty.shape[0])):
            ib.buffer_store(values, T.cuda.warp_reduce(values[number], op), [number])


class BlockWorkers(BoundLoops):
    """Workers that are blocks, in loops that TVM writes in OpenCL, too."""

    def __init__(self, device: Device, tile: DecodeTile) -> None:
        super().__init__(device, tile.shared_bytes)
        self._lanes, self._rows = tile.lanes, tile.decode.rows

    @contextmanager
    def launch(self, grid: int, block_size: int, cluster: int = 1) -> Iterator[Numbers]:
        """A frame for the kernel, in which blocks also have memory for what workers exchange."""
        with super().launch(grid, block_size, cluster) as numbers:
            size = self._lanes * self._rows
            self._known = ib.alloc_buffer((size,), "float32", scope=self._scope)
            self._flags = ib.alloc_buffer((self._lanes,), "int32", scope=self._scope)
            self._found = ib.alloc_buffer((1,), "int32", scope="local")
            self._thread = numbers[-1]
            yield numbers

    def sync(self) -> None:
        """Wait for all threads of the block, which is the worker."""
        self.meet()

    def any(self, condition: Any) -> Any:
        """Whether a condition holds for any thread, through shared memory."""
        found = self._found
        ib.buffer_store(self._flags, tirx.Cast("int32", condition), [self._thread])
        self.meet()
        ib.buffer_store(found, tirx.const(0), [0])
        with ib.serial(self._lanes) as other:
            ib.buffer_store(found, found[0] | self._flags[other], [0])
        self.meet()
        return found[0] != 0

    def reduce(self, values: Any, op: str, lane: Any) -> None:
        """Combine each of some registers over the threads, through shared memory."""
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
    """Allocate a buffer in registers of a thread."""
    return ib.alloc_buffer((size,), dtype, scope="local")
