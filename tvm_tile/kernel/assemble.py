"""Many kernels as one: a persistent kernel whose blocks run rTasks from queues.

Rammer, section 4: a thread block that stays on its multiprocessor is a vEU; it takes rTasks from a
queue that was filled at compile time. What this writes::

    for number in queue of this vEU:
        record = records[number]                     # asked for one rTask ahead
        ask for what the record names of constants   # of plans that do, see tvm_tile.plan.ahead
        wait until the counters that the record names have reached what it says
        if record.body == 0:    kernel 0, its blocks record.block, + 1, ... side by side
        elif record.body == 1:  kernel 1
        ...
        count up the counter that the record names

A body exists once, however many rTasks run it: where its arguments are comes from the record.

Why this is free of races and ends: what a rTask stores is visible to a rTask that has waited for
its counter. Its threads meet, then one adds to the counter with release semantics at the scope of
the device; a thread of the other vEU loads the counter with acquire semantics until it is there,
then meets its own block. Meetings of a block and the pair of release and acquire make a chain of
"happens before" (PTX, memory consistency model, causality order), over which also copies in a
multiprocessor's first-level cache become invalid. All vEUs are resident at once, because the launch
is cooperative, and queues are in one order of steps: the first rTask in that order which has not
run waits for none that is behind it, so that some vEU always goes on. A plan that is not so is
found by :mod:`tvm_tile.plan.check_plan`. Counters are zero whatever an aborted launch left behind:
another kernel, for all persistent ones of a model, sets them at the start of each run.

Shared memory holds the records of this rTask and the next, where the arguments' memory is, and a
pool: the scratch memory of whichever body runs, and behind it what stays resident.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.kernel.body import Body, with_numbers
from tvm_tile.plan.records import (
    ARGUMENTS,
    ASKS,
    BLOCK,
    BODY,
    MOST_ASKS,
    RESIDENT_PLACE,
    SIGNAL,
    UNIT,
    WAIT_COUNT,
    WAITS,
)

_WARP = 32
ZEROING = 256  # threads of a block that sets counters to zero
_WAIT = """
__forceinline__ __device__ void tile_wait_for(int* counter, int target) {
  int seen;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
  } while (seen < target);
}
"""
_SIGNAL = """
__forceinline__ __device__ void tile_count_up(int* counter) {
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" :: "l"(counter) : "memory");
}
"""
_ASK = """
__forceinline__ __device__ void tile_ask_for(const void* constant, int thread, int lines, int by) {
  for (int line = thread; line < lines; line += by)
    asm volatile("prefetch.global.L2 [%0];" :: "l"((const char*)constant + 128ll * line));
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
        name: of the parameter.
        shape: its extents.
        dtype: of its elements.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Layout:
    """The numbers that the kernel's text depends on, besides its bodies.

    Attributes:
        num_veus: blocks of the grid.
        block_size: threads of a block.
        veus_per_processor: blocks that must fit on a multiprocessor at once.
        inputs: tensors that it reads, the constants last.
        outputs: tensors that it writes, the workspace last.
        record_words: of a record.
        records: how many.
        counters: of all persistent kernels, each of which has some of its own.
        shared_bytes: of a vEU, but for what the kernel needs for itself.
        asks: whether its records ask for constants ahead.
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


def assemble(name: str, parts: Sequence[CopiedBody], layout: Layout) -> tirx.PrimFunc:
    """The persistent kernel.

    Its parameters: ``inputs``, ``records`` (int32, one record behind the other), ``queues``
    (int32: first record of a vEU, and how many), ``counters`` (int32, which it counts up), then
    ``outputs``.
    """
    with IRBuilder() as builder, ib.prim_func():
        ib.func_name(name)
        attrs = {"tirx.kernel_launch_params": ["tirx.use_cooperative_launch"]}
        ib.func_attr({**attrs, "tirx.noalias": True, "tirx.is_scheduled": True})
        inputs = [_declare(p) for p in layout.inputs]
        shape = (layout.records * layout.record_words,)
        records = _declare(Parameter("records", shape, "int32"))
        queues = _declare(Parameter("queues", (2 * layout.num_veus,), "int32"))
        counters = _declare(Parameter("counters", (layout.counters,), "int32"))
        outputs = [_declare(p) for p in layout.outputs]
        ib.device_entry()
        veu = ib.cta_id([layout.num_veus])
        thread = ib.thread_id([layout.block_size])
        # So many blocks a multiprocessor: the compiler spills registers rather than take more.
        resident = ib.attr(0, "tirx.launch_bounds_min_blocks_per_sm", layout.veus_per_processor)
        with resident:
            kernel = _PersistentKernel(layout, veu, thread, records, queues, counters)
            _write(kernel, inputs + outputs, parts)
    return builder.get()


def _declare(parameter: Parameter) -> Any:
    buffer = T.buffer(parameter.shape, parameter.dtype)
    return ib.arg(parameter.name, buffer)


@dataclass(frozen=True, slots=True)
class _PersistentKernel:
    layout: Layout
    veu: Any
    thread: Any
    records: Any
    queues: Any
    counters: Any


def _write(kernel: _PersistentKernel, tensors: Sequence[Any], parts: Sequence[CopiedBody]) -> None:
    layout, thread = kernel.layout, kernel.thread
    words = layout.record_words
    kept = ib.alloc_buffer((2 * words,), "int32", scope="shared")
    places = ib.alloc_buffer((len(tensors),), "int64", scope="shared")
    pool = ib.alloc_buffer((layout.shared_bytes,), "uint8", scope="shared.dyn", align=128)
    first = ib.Bind(kernel.queues[kernel.veu * 2])
    count = ib.Bind(kernel.queues[kernel.veu * 2 + 1])
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
    ib.evaluate(T.cuda.cta_sync())
    following = ib.alloc_buffer((len(shares),), "int32", scope="local")
    with ib.serial(count) as turn:
        own = ib.Bind(turn % 2 * words)
        for share, start in shares:
            with ib.If(thread + start < words), ib.Then():
                word = (first + turn + 1) * words + thread + start
                ib.buffer_store(following, kernel.records[word], [share])
        if layout.asks:
            _ask(kernel, kept, own, places, base)
        with ib.If(thread < kept[own + WAIT_COUNT]), ib.Then():
            counter = T.address_of(kernel.counters[kept[own + WAITS + thread * 2]])
            target = kept[own + WAITS + thread * 2 + 1]
            ib.evaluate(T.cuda.func_call("tile_wait_for", counter, target, source_code=_WAIT))
        for share, start in shares:
            with ib.If(thread + start < words), ib.Then():
                ib.buffer_store(kept, following[share], [words - own + thread + start])
        ib.evaluate(T.cuda.cta_sync())
        signal = ib.Bind(kept[own + SIGNAL])
        record = _Record(kept, own, places, base, pool, layout, thread)
        _dispatch(record, parts)
        ib.evaluate(T.cuda.cta_sync())
        with ib.If(tirx.all(thread == 0, signal >= 0)), ib.Then():
            counter = T.address_of(kernel.counters[signal])
            ib.evaluate(T.cuda.func_call("tile_count_up", counter, source_code=_SIGNAL))


def _ask(kernel: _PersistentKernel, kept: Any, own: Any, places: Any, base: Any) -> None:
    """Ask for the constants that a record names; a thread asks for a line of each."""
    for first in range(ASKS, ASKS + 3 * MOST_ASKS, 3):
        which, place, lines = (kept[own + first + n] for n in range(3))
        with ib.If(kernel.thread < lines), ib.Then():
            offset = places[which] + tirx.Cast("int64", place) * UNIT
            constant = _offset(base.ty, base, offset)
            given = (constant, kernel.thread, lines, kernel.layout.block_size)
            ib.evaluate(T.cuda.func_call("tile_ask_for", *given, source_code=_ASK))


def _address(pointer: Any) -> Any:
    return T.reinterpret("int64", pointer)


@dataclass(frozen=True, slots=True)
class _Record:
    """The record of the rTask that runs, and what it refers to."""

    words: Any
    first: Any
    places: Any
    base: Any
    pool: Any
    layout: Layout
    thread: Any

    def word(self, which: int) -> Any:
        return self.words[self.first + which]

    def pointer(self, position: int, kind: Any) -> Any:
        """A pointer to an argument: its tensor's distance from the workspace, and its place."""
        which, place = (self.word(ARGUMENTS + 2 * position + n) for n in range(2))
        offset = self.places[which] + tirx.Cast("int64", place) * UNIT
        return _offset(kind, self.base, offset)

    def shared(self, buffer: Any, offset: Any) -> Any:
        """A pointer into the pool, for a buffer."""
        return _offset(buffer.data.ty, self.pool.data, offset)


def _offset(kind: Any, pointer: Any, count: Any) -> Any:
    """A pointer of some kind, so many bytes behind another."""
    return tirx.call_intrin(kind, "tirx.handle_add_byte_offset", pointer, count)


def _dispatch(record: _Record, parts: Sequence[CopiedBody]) -> None:
    """Run the body that the record names."""
    body = ib.Bind(record.word(BODY))
    for number, part in enumerate(parts):
        with ib.If(body == number), ib.Then():
            _run(record, part)


def _run(record: _Record, part: CopiedBody) -> None:
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


def _places(record: _Record, part: CopiedBody, own: Any) -> Mapping[Any, Any]:
    """The pointers to a body's shared memory."""
    first = own * part.body.scratch_bytes
    places = {b: record.shared(b, first + place) for b, place in part.body.scratch}
    if part.body.resident is not None:
        place = record.word(RESIDENT_PLACE) + own * part.body.resident_bytes
        places[part.body.resident] = record.shared(part.body.resident, place)
    return places


def _meeting(part: CopiedBody, own: Any) -> Any:
    """A barrier of a block's own, in whole warps: its threads wait for one another."""
    warps = -(-part.body.threads // _WARP)
    if warps == 1:
        return tirx.Evaluate(T.cuda.warp_sync())
    call = T.cuda.func_call("tile_meet", own + 1, warps * _WARP, source_code=_MEET)
    return tirx.Evaluate(call)


def counters_at_zero(count: int) -> tirx.PrimFunc:
    """A kernel that sets so many counters to zero."""
    with IRBuilder() as builder, ib.prim_func():
        ib.func_name("zero_counters")
        ib.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
        counters = _declare(Parameter("counters", (count,), "int32"))
        ib.device_entry()
        block = ib.cta_id([-(-count // ZEROING)])
        own = block * ZEROING + ib.thread_id([ZEROING])
        with ib.If(own < count), ib.Then():
            ib.buffer_store(counters, 0, [own])
    return builder.get()
