"""Launch, shared memory and barriers of a kernel that is written thread by thread.

There are two ways to write one. In TVM's thread-level dialect nothing waits but what is told to;
only what has matrix units builds it. Loops bound to threads TVM writes in OpenCL, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from tvm import ir, tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.device.device import Device
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.schedule.s_tir.steps import shared_scope
from tvm_tile.tile.staging import ALIGNED, Room, shared_bytes

_TOGETHER = 16  # steps of a loop

Numbers = tuple[Any, Any, Any]
"""What tells threads of a kernel apart: the numbers of the block, or of its cluster of neighbouring
blocks, of the block in its cluster, and of the thread in the block."""


class Threads(Protocol):
    """The threads of a kernel, while the code of one is written."""

    def function(self) -> AbstractContextManager[Any]:
        """A frame for a function."""
        ...

    def launch(
        self, grid: int, block_size: int, cluster: int = 1
    ) -> AbstractContextManager[Numbers]:
        """A frame for its kernel, with the numbers that tell its threads apart.

        Args:
            grid: blocks.
            block_size: threads of each.
            cluster: neighbouring blocks that read each other's shared memory.
        """
        ...

    def allocate(self, rooms: Sequence[Room], then: Sequence[Room] = ()) -> list[Any]:
        """Flat buffers in shared memory; those of ``then`` may lie where the others were."""
        ...

    def meet(self) -> None:
        """Wait until all threads of the block have come here and see what was written."""
        ...


class ThreadLevel:
    """TVM's thread-level dialect, as :class:`Threads` says.

    Args:
        scope: scope of shared memory, by TVM's name.
    """

    def __init__(self, scope: str = "shared.dyn") -> None:
        self._scope = scope

    def function(self) -> AbstractContextManager[Any]:
        """A frame for a function in the thread-level dialect."""
        return ib.prim_func()

    @contextmanager
    def launch(self, grid: int, block_size: int, cluster: int = 1) -> Iterator[Numbers]:
        """A frame for the kernel; blocks may form clusters."""
        block, rank, thread = begin_kernel(grid, block_size, cluster)
        yield ib.Bind(block // cluster) if cluster > 1 else block, rank, thread

    def allocate(self, rooms: Sequence[Room], then: Sequence[Room] = ()) -> list[Any]:
        """Flat buffers in shared memory, all of them parts of one buffer."""
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
        """Wait for all threads of the block."""
        ib.evaluate(T.cuda.cta_sync())


def begin_kernel(grid: int, block_size: int, cluster: int = 1) -> Numbers:
    """Begin a kernel in the thread-level dialect.

    Args:
        grid: blocks.
        block_size: threads of each.
        cluster: neighbouring blocks that read each other's shared memory.

    Returns:
        The numbers of the block, of it in its cluster, and of the thread.
    """
    ib.device_entry()
    # Its use makes clusters of neighbouring blocks.
    rank = ib.cta_id_in_cluster([cluster]) if cluster > 1 else tirx.const(0)
    return ib.cta_id([grid]), rank, ib.thread_id([block_size])


def memory_of(block: Any, memory: Any, name: str) -> Any:
    """Shared memory of another block of the cluster, as this one can read it and write to it.

    Args:
        block: its number in the cluster.
        memory: this block's.
        name: name of the pointer to it.
    """
    mapped = ib.alloc_buffer((1,), "uint64", scope="local")
    first = memory.ptr_to([0] * len(memory.ty.shape))
    number = T.uint32(block) if isinstance(block, int) else tirx.Cast("uint32", block)
    ib.evaluate(T.ptx.mapa.u64(mapped[0], first, number))
    dtype = str(memory.ty.dtype)
    kind = ir.PointerType(ir.PrimType(dtype), "shared")
    pointer = tirx.Var(name, kind)
    ib.Bind(T.reinterpret(kind, mapped[0]), var=pointer)
    return ib.decl_buffer(memory.ty.shape, dtype, data=pointer, scope="shared")


class ClusterLetters:
    """Numbers that the blocks of a cluster write to each other's shared memory, once.

    A barrier in each block's memory counts the bytes that arrive there: who waits for it sees what
    was written. A meeting of the cluster would order that, too, but before a thread arrives at one
    it waits until all of the GPU sees all that it has ever written, for about a microsecond.

    Why this is free of races: a block's first thread makes the barrier, and says how many bytes it
    is to count, before it says that the block has begun; nobody writes to a block's memory before
    all have begun; and nobody reads there what was written before the barrier has counted all of
    it. No thread writes to a place that another uses. A block ends behind its wait, so that what
    others write to it finds it there.

    Args:
        barrier: a number of 64 bits in shared memory.
        memory: shared memory of float32, at the same place in each block.
    """

    def __init__(self, barrier: Any, memory: Any) -> None:
        self._barrier, self._memory = barrier, memory

    def begin(self, count: Any, thread: Any) -> None:
        """Say that this block has begun, and how many numbers it gets; all threads run this."""
        barrier = self._barrier.ptr_to([0])
        with ib.If(thread == 0), ib.Then():
            ib.evaluate(T.ptx.mbarrier.init.shared.b64(barrier, T.uint32(1)))
            ib.evaluate(T.ptx.fence.mbarrier_init.release.cluster())
            size = tirx.Cast("uint32", count) * T.uint32(element_size("float32"))
            ib.evaluate(T.ptx.mbarrier.arrive.expect_tx.shared.b64(barrier, size))
        ib.evaluate(T.cuda.warp_sync())
        ib.evaluate(T.ptx.barrier.cluster.arrive.relaxed.aligned())

    def wait_for_begin(self) -> None:
        """Wait until all blocks have begun: so long nobody may write; all threads run this."""
        ib.evaluate(T.cuda.warp_sync())
        ib.evaluate(T.ptx.barrier.cluster.wait.aligned())

    def send(self, block: Any, place: Any, value: Any) -> None:
        """Write a number to a place of a block's memory."""
        into, barrier = (
            self._mapped(own, block)
            for own in (self._memory.ptr_to([place]), self._barrier.ptr_to([0]))
        )
        store = T.ptx["st_async.shared::cluster.mbarrier::complete_tx::bytes.f32"]
        ib.evaluate(store(into, value, barrier))

    def _mapped(self, pointer: Any, block: Any) -> Any:
        """The address of this block's memory in another one's."""
        mapped = ib.alloc_buffer((1,), "uint32", scope="local")
        own = T.cuda.cvta_generic_to_shared(pointer)
        number = tirx.Cast("uint32", block)
        ib.evaluate(T.ptx.mapa.shared__cluster.u32(mapped[0], own, number))
        return mapped[0]

    def wait(self) -> None:
        """Wait until all numbers have come."""
        ib.evaluate(T.cuda.mbarrier_wait_acquire_cluster(self._barrier.ptr_to([0]), 0))


def wait_for_cluster() -> None:
    """Wait for all threads of all blocks of the cluster; each warp's come together again."""
    ib.evaluate(T.cuda.warp_sync())
    ib.evaluate(T.cuda.cluster_sync())


class BoundLoops:
    """Loops bound to threads, as :class:`Threads` says; their blocks are in no clusters.

    There is a buffer for each part of shared memory: within one, TVM would have threads wait
    wherever it cannot tell that they read and write different parts.

    Args:
        device: the device that the kernel is made for.
        shared: bytes of a block's shared memory.
    """

    def __init__(self, device: Device, shared: int) -> None:
        self._scope = shared_scope(device, shared)

    def function(self) -> AbstractContextManager[Any]:
        """A frame for a function of TensorIR's blocks and loops."""
        return ib.prim_func(s_tir=True)

    @contextmanager
    def launch(self, grid: int, block_size: int, cluster: int = 1) -> Iterator[Numbers]:
        """A frame for the kernel: a loop over blocks, and one over threads in it."""
        assert cluster == 1, "what tiles are made for"
        blocks = ib.thread_binding(grid, thread="blockIdx.x")
        threads = ib.thread_binding(block_size, thread="threadIdx.x")
        with blocks as block, threads as thread:
            yield block, tirx.const(0), thread

    def allocate(self, rooms: Sequence[Room], then: Sequence[Room] = ()) -> list[Any]:
        """Flat buffers in shared memory, each by itself."""
        both = (*rooms, *then)
        return [ib.alloc_buffer((own.elements,), own.dtype, scope=self._scope) for own in both]

    def meet(self) -> None:
        """Wait for all threads of the block."""
        ib.evaluate(ib.tvm_storage_sync(self._scope))


@contextmanager
def steps(count: int) -> Iterator[Any]:
    """A loop whose steps a compiler puts side by side, so that loads of several are on their way.

    A worker has the scheduler for itself in most kernels: nothing else hides what it waits for.
    """
    together = max(n for n in range(1, _TOGETHER + 1) if count % n == 0)
    with ib.serial(count // together) as outer, ib.unroll(together) as inner:
        yield ib.Bind(outer * together + inner)
