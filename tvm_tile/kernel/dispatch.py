"""Parts that all persistent kernels share: their numbers, and how a record's body is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.kernel.body import Body, with_numbers
from tvm_tile.plan.calls import Frames
from tvm_tile.plan.records import BLOCK, BODY, RESIDENT_PLACE, UNIT

_WARP = 32
_FRAMES = 2  # of the call that runs, and of one that it calls
_SIGNAL = """
__forceinline__ __device__ void tile_count_up(int* counter) {
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" :: "l"(counter) : "memory");
}
"""
_MEET = """
__forceinline__ __device__ void tile_meet(int which, int threads) {
  asm volatile("barrier.sync %0, %1;" :: "r"(which), "r"(threads) : "memory");
}
"""


@dataclass(frozen=True, slots=True)
class CopiedBody:
    """A body of the kernel, and how many of its blocks a vEU runs side by side.

    Attributes:
        body: its statements.
        copies: blocks that a vEU runs side by side.
    """

    body: Body
    copies: int


@dataclass(frozen=True, slots=True)
class Parameter:
    """A tensor that the kernel is given.

    Attributes:
        name: name of the parameter.
        shape: its extents.
        dtype: type of its elements.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class FlowSizes:
    """The numbers that the text of control flow depends on.

    Attributes:
        regions: regions of the program.
        stops: whether it may go beyond a bound: the kernel's last output but one is then the word
            that says why it ended.
        frames: frames of its calls; None where there are none. Two tensors more than there are then
            are the frame of the call that runs, and of one that it calls.
    """

    regions: int
    stops: bool
    frames: Frames | None = None


@dataclass(frozen=True, slots=True)
class KernelSizes:
    """The numbers that the kernel's text depends on, besides its bodies.

    Attributes:
        num_veus: blocks of the grid.
        block_size: threads of a block.
        veus_per_processor: blocks that must fit on a multiprocessor at once.
        inputs: tensors that it reads, the constants last.
        outputs: tensors that it writes, the workspace last.
        record_words: words of a record.
        records: number of records.
        counters: counters of all persistent kernels, each of which has some of its own.
        shared_bytes: bytes of shared memory of a vEU, without those that the kernel needs for
            itself.
        asks: whether its records ask for constants ahead.
        arguments: word of a record with which its arguments begin.
        flow: its control flow; none for a straight line.
    """

    num_veus: int
    block_size: int
    veus_per_processor: int
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    record_words: int
    records: int
    counters: int
    shared_bytes: int
    asks: bool
    arguments: int
    flow: FlowSizes | None = None


@dataclass(frozen=True, slots=True)
class PersistentKernel:
    """The kernel that is being written.

    Attributes:
        layout: its numbers.
        veu: number of the block.
        thread: number of the thread.
        records: the table of records.
        queues: first record of each vEU's queue.
        counters: counters of all persistent kernels.
    """

    layout: KernelSizes
    veu: Any
    thread: Any
    records: Any
    queues: Any
    counters: Any


@dataclass(frozen=True, slots=True)
class SharedState:
    """State of a block in shared memory.

    Attributes:
        kept: the words of two records: that which runs, and the next.
        places: distance of each tensor, and behind them of two frames, from ``base``.
        base: address of the last tensor.
        pool: scratch memory of whichever body runs, and behind it what stays resident.
        shares: number and first word of a thread's shares of a record, which it fetches.
    """

    kept: Any
    places: Any
    base: Any
    pool: Any
    shares: tuple[tuple[int, int], ...]


def begin(kernel: PersistentKernel, tensors: Sequence[Any], first: Any) -> SharedState:
    """Fetch the record ``first``, and tell where tensors are; the block has not met yet."""
    layout, thread = kernel.layout, kernel.thread
    words = layout.record_words
    kept = ib.alloc_buffer((2 * words,), "int32", scope="shared")
    calls = layout.flow is not None and layout.flow.frames is not None
    count = len(tensors) + (_FRAMES if calls else 0)
    places = ib.alloc_buffer((count,), "int64", scope="shared")
    pool = ib.alloc_buffer((layout.shared_bytes,), "uint8", scope="shared.dyn", align=128)
    # A record may have more words than a block has threads: each fetches its share.
    shares = tuple(enumerate(range(0, words, layout.block_size)))
    for _, start in shares:
        with ib.If(thread + start < words), ib.Then():
            word = thread + start
            ib.buffer_store(kept, kernel.records[first * words + word], [word])
    base = tensors[-1].data
    for number, tensor in enumerate(tensors):
        with ib.If(thread == number % layout.block_size), ib.Then():
            ib.buffer_store(places, _address(tensor.data) - _address(base), [number])
    return SharedState(kept, places, base, pool, shares)


def count_up(kernel: PersistentKernel, signal: Any) -> None:
    """Add one to the counter ``signal``, if it is one, behind a meeting of the block."""
    with ib.If(tirx.all(kernel.thread == 0, signal >= 0)), ib.Then():
        counter = T.address_of(kernel.counters[signal])
        ib.evaluate(T.cuda.func_call("tile_count_up", counter, source_code=_SIGNAL))


def _address(pointer: Any) -> Any:
    """A pointer as an integer."""
    return T.reinterpret("int64", pointer)


@dataclass(frozen=True, slots=True)
class RecordView:
    """The record of what runs.

    Attributes:
        shared: state of the block.
        first: its first word among those that are kept.
        layout: the kernel's numbers.
        thread: number of the thread.
    """

    shared: SharedState
    first: Any
    layout: KernelSizes
    thread: Any

    def word(self, which: Any) -> Any:
        """A word of the record."""
        return self.shared.kept[self.first + which]

    def pointer(self, position: int, kind: Any) -> Any:
        """A pointer to an argument: its tensor's distance from the workspace, and its place."""
        which, place = (self.word(self.layout.arguments + 2 * position + n) for n in range(2))
        return self.place(which, place, kind)

    def place(self, tensor: Any, units: Any, kind: Any) -> Any:
        """A pointer of some kind, ``units`` units behind the start of a tensor."""
        offset = self.shared.places[tensor] + tirx.Cast("int64", units) * UNIT
        return _offset(kind, self.shared.base, offset)

    def scratch(self, buffer: Any, offset: Any) -> Any:
        """A pointer into the pool, for a buffer."""
        return _offset(buffer.data.ty, self.shared.pool.data, offset)


def _offset(kind: Any, pointer: Any, count: Any) -> Any:
    """A pointer of some kind, ``count`` bytes behind another."""
    return tirx.call_intrin(kind, "tirx.handle_add_byte_offset", pointer, count)


def dispatch(record: RecordView, parts: Sequence[CopiedBody]) -> None:
    """Run the body that the record names."""
    body = ib.Bind(record.word(BODY))
    for number, part in enumerate(parts):
        with ib.If(body == number), ib.Then():
            _run(record, part)


def _run(record: RecordView, part: CopiedBody) -> None:
    """Run a body for the blocks that the record names, each on whole warps; others do nothing.

    Where threads wait for one another, all of a warp must: the lanes beyond a block's last thread
    do what that one does, once more. They then store the same values at the same places.
    """
    body = part.body
    stride = -(-body.threads // _WARP) * _WARP
    own = ib.Bind(record.thread // stride) if part.copies > 1 else tirx.const(0)
    block = ib.Bind(record.word(BLOCK) + own)
    thread = ib.Bind(record.thread % stride)
    inside = []
    if part.copies * stride < record.layout.block_size:
        inside.append(record.thread < part.copies * stride)
    if part.copies > 1:
        inside.append(block < body.blocks)
    if stride > body.threads and not body.waits:
        inside.append(thread < body.threads)
    with ib.If(tirx.all(*inside) if inside else tirx.const(True, "bool")), ib.Then():
        if stride > body.threads and body.waits:
            thread = ib.Bind(tirx.min(thread, body.threads - 1))
        pointers = {n: record.pointer(n, param.ty) for n, param in body.params.items()}
        numbers = _numbers(body, block, thread)
        shared = _places(record, part, own)
        for stmt in with_numbers(body, numbers, pointers, shared, _meeting(part, own)):
            ib.add_to_parent(stmt)


def _numbers(body: Body, block: Any, thread: Any) -> Mapping[str, Any]:
    """The number of block and thread along each axis, of which x is the fastest."""
    numbers = {}
    for kind, rest in (("blockIdx", block), ("threadIdx", thread)):
        tags = [tag for tag in (f"{kind}.{a}" for a in "xyz") if tag in body.indices]
        for place, tag in enumerate(tags):
            extent = body.indices[tag][1]
            is_last = place == len(tags) - 1
            numbers[tag] = ib.Bind(rest if is_last else rest % extent)
            rest = rest // extent
    return numbers


def _places(record: RecordView, part: CopiedBody, own: Any) -> Mapping[Any, Any]:
    """The pointers to a body's shared memory."""
    first = own * part.body.scratch_bytes
    places = {b: record.scratch(b, first + place) for b, place in part.body.scratch}
    if part.body.resident is not None:
        place = record.word(RESIDENT_PLACE) + own * part.body.resident_bytes
        places[part.body.resident] = record.scratch(part.body.resident, place)
    return places


def _meeting(part: CopiedBody, own: Any) -> Any:
    """A barrier of a block's own, in whole warps: its threads wait for one another."""
    warps = -(-part.body.threads // _WARP)
    if warps == 1:
        return tirx.Evaluate(T.cuda.warp_sync())
    call = T.cuda.func_call("tile_meet", own + 1, warps * _WARP, source_code=_MEET)
    return tirx.Evaluate(call)
