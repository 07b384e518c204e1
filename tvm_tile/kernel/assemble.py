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

Around each rTask are marks (:mod:`tvm_tile.build.marks`), of which nothing is left but in copies
that take the time. A body exists once, however many rTasks run it: where its arguments are comes
from the record.

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

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.build.early.ask_constants import ask_for
from tvm_tile.build.marks import BEGIN, END
from tvm_tile.build.program import COOPERATIVE_TAG
from tvm_tile.kernel.dispatch import (
    CopiedBody,
    KernelSizes,
    Parameter,
    PersistentKernel,
    RecordView,
    begin,
    count_up,
    dispatch,
)
from tvm_tile.kernel.looping import write_looping
from tvm_tile.plan.records import ASKS, MOST_ASKS, SIGNAL, WAIT_COUNT, WAITS

ZEROING = 256  # threads of a block that sets counters to zero
_WAIT = """
__forceinline__ __device__ void tile_wait_for(int* counter, int target) {
  int seen;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
  } while (seen < target);
}
"""


def assemble(name: str, parts: Sequence[CopiedBody], layout: KernelSizes) -> tirx.PrimFunc:
    """The persistent kernel.

    Its parameters: ``inputs``, ``records`` (int32, one record behind the other), ``queues``
    (int32: first record of a vEU, and, without control flow, how many), ``counters`` (int32, which
    it counts up), then ``outputs``.
    """
    with IRBuilder() as builder, ib.prim_func():
        ib.func_name(name)
        attrs = {"tirx.kernel_launch_params": [COOPERATIVE_TAG]}
        ib.func_attr({**attrs, "tirx.noalias": True, "tirx.is_scheduled": True})
        inputs = [_declare(p) for p in layout.inputs]
        shape = (layout.records * layout.record_words,)
        records = _declare(Parameter("records", shape, "int32"))
        starts = layout.num_veus if layout.flow else 2 * layout.num_veus
        queues = _declare(Parameter("queues", (starts,), "int32"))
        counters = _declare(Parameter("counters", (layout.counters,), "int32"))
        outputs = [_declare(p) for p in layout.outputs]
        ib.device_entry()
        veu = ib.cta_id([layout.num_veus])
        thread = ib.thread_id([layout.block_size])
        # So many blocks a multiprocessor: the compiler spills registers rather than take more.
        resident = ib.attr(0, "tirx.launch_bounds_min_blocks_per_sm", layout.veus_per_processor)
        with resident:
            kernel = PersistentKernel(layout, veu, thread, records, queues, counters)
            tensors = inputs + outputs
            if layout.flow is None:
                _write(kernel, tensors, parts)
            else:
                write_looping(kernel, layout.flow, tensors, parts)
    return builder.get()


def _declare(parameter: Parameter) -> Any:
    """Declare a parameter of the kernel."""
    buffer = T.buffer(parameter.shape, parameter.dtype)
    return ib.arg(parameter.name, buffer)


def _write(kernel: PersistentKernel, tensors: Sequence[Any], parts: Sequence[CopiedBody]) -> None:
    """Write the loop of a vEU over its queue of records."""
    layout, thread = kernel.layout, kernel.thread
    words = layout.record_words
    first = ib.Bind(kernel.queues[kernel.veu * 2])
    count = ib.Bind(kernel.queues[kernel.veu * 2 + 1])
    shared = begin(kernel, tensors, first)
    kept, shares = shared.kept, shared.shares
    ib.evaluate(T.cuda.cta_sync())
    following = ib.alloc_buffer((len(shares),), "int32", scope="local")
    with ib.serial(count) as turn:
        own = ib.Bind(turn % 2 * words)
        record = RecordView(shared, own, layout, thread)
        for share, start in shares:
            with ib.If(thread + start < words), ib.Then():
                word = (first + turn + 1) * words + thread + start
                ib.buffer_store(following, kernel.records[word], [share])
        if layout.asks:
            _ask(record)
        with ib.If(thread < record.word(WAIT_COUNT)), ib.Then():
            counter = T.address_of(kernel.counters[record.word(WAITS + thread * 2)])
            target = record.word(WAITS + thread * 2 + 1)
            ib.evaluate(T.cuda.func_call("tile_wait_for", counter, target, source_code=_WAIT))
        for share, start in shares:
            with ib.If(thread + start < words), ib.Then():
                ib.buffer_store(kept, following[share], [words - own + thread + start])
        ib.evaluate(T.cuda.cta_sync())
        signal = ib.Bind(record.word(SIGNAL))
        ib.evaluate(T.cuda.func_call("tile_begin", first + turn, source_code=BEGIN))
        dispatch(record, parts)
        ib.evaluate(T.cuda.cta_sync())
        ib.evaluate(T.cuda.func_call("tile_end", first + turn, source_code=END))
        count_up(kernel, signal)


def _ask(record: RecordView) -> None:
    """Ask for the constants that a record names; a thread asks for a line of each."""
    for first in range(ASKS, ASKS + 3 * MOST_ASKS, 3):
        which, place, lines = (record.word(first + n) for n in range(3))
        with ib.If(record.thread < lines), ib.Then():
            constant = record.place(which, place, record.shared.base.ty)
            ib.evaluate(ask_for(constant, record.thread, lines, record.layout.block_size))


def counters_at_zero(count: int) -> tirx.PrimFunc:
    """A kernel that sets ``count`` counters to zero."""
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
