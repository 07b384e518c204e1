"""A persistent kernel with control flow: its blocks follow records that say which one is next.

What this writes, around the bodies that :mod:`tvm_tile.kernel.assemble` dispatches to::

    record = first record of this vEU
    while it is not the end:
        ask for the next record
        wait until each counter that the record names is at count * (executions[region] - lag)
        if it decides:   next = the condition holds ? next : otherwise; count what is entered;
                         next = the end, if a loop goes on for longer than it may
        if it enters:    iterations left = trips; count that
        if it goes on:   next = iterations are left ? next : otherwise; count that
        if it calls:     push otherwise; next = the end, if that is one too many; count that
        if it returns:   next = what it pops; count what is entered behind the call
        else:            run the body
        count up the counter that the record names
    one vEU: leave a word that says whether this was the end, or a bound

Why waits are right is in :mod:`tvm_tile.plan.rprogram`. What is added here: each vEU reads each
condition itself, behind a wait for those who have written it, and nobody writes it again before all
vEUs have counted that they have read it. So they all see one value and follow one path, along which
each counts for itself how often regions were entered. These numbers lie in shared memory; one
thread changes them between two meetings of the block, all others read them behind the second one.
Counters, executions and what is waited for are counted modulo 2**32: they differ by a few
executions at most, so that their difference says which is ahead however long a loop runs.
Where the frame lies of the call that runs, and of one that it would call, is in the table of where
tensors are: arguments may be in there as in any other.
One thread counts a loop's iterations, while others do what they must: that takes no time of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.kernel.dispatch import (
    CopiedBody,
    FlowSizes,
    PersistentKernel,
    RecordView,
    SharedState,
    begin,
    count_up,
    dispatch,
)
from tvm_tile.plan.calls import Frames
from tvm_tile.plan.program_records import (
    ARGUMENTS,
    DECIDE,
    END,
    ENTER,
    LOOP,
    NEXT,
    OTHERWISE,
    POP,
    PUSH,
    REGIONS,
    TRIPS,
    WAIT_COUNT,
    WAIT_WORDS,
    WAITS,
)
from tvm_tile.plan.records import BODY, SIGNAL
from tvm_tile.plan.rprogram import WHOLE, Stop

_WAIT = """
__forceinline__ __device__ void tile_wait_until(int* counter, int count, uint executions) {
  int seen;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
  } while ((int)((uint)seen - (uint)count * executions) < 0);
}
"""
_HOLDS = """
__forceinline__ __device__ int tile_holds(const void* condition) {
  int seen;
  asm volatile("ld.relaxed.gpu.global.u8 %0, [%1];" : "=r"(seen) : "l"(condition) : "memory");
  return seen != 0;
}
"""


@dataclass(frozen=True, slots=True)
class _Counted:
    """Numbers that a block counts, and those that it keeps of calls.

    Attributes:
        executions: for each region, how often it was entered.
        left: for each loop, by its region, iterations that are left; by its head, those gone.
        stopped: reason, in a thread's own memory, why the block goes home; None where no bound is.
        within: number of calls that have begun and not ended; None where there are none.
        returns: for each of these calls, the record that is behind it, and the region.
    """

    executions: Any
    left: Any
    stopped: Any = None
    within: Any = None
    returns: Any = None


def write_looping(
    kernel: PersistentKernel, flow: FlowSizes, tensors: Sequence[Any], parts: Sequence[CopiedBody]
) -> None:
    """Write the kernel's statements.

    Args:
        kernel: the kernel that is being written.
        flow: its control flow.
        tensors: its inputs, then its outputs.
        parts: its bodies.
    """
    layout, thread = kernel.layout, kernel.thread
    words = layout.record_words
    shared = begin(kernel, tensors, kernel.queues[kernel.veu])
    counted = _begin_counting(kernel, flow, shared)
    ib.evaluate(T.cuda.cta_sync())
    following = ib.alloc_buffer((len(shared.shares),), "int32", scope="local")
    own = ib.alloc_buffer((1,), "int32", scope="local")
    ib.buffer_store(own, 0, [0])
    with ib.While(shared.kept[own[0] + BODY] != END):
        record = RecordView(shared, own[0], layout, thread)
        behind = ib.Bind(words - own[0])
        for share, start in shared.shares:
            with ib.If(thread + start < words), ib.Then():
                word = record.word(NEXT) * words + thread + start
                ib.buffer_store(following, kernel.records[word], [share])
        _wait(kernel, record, counted.executions)
        for share, start in shared.shares:
            with ib.If(thread + start < words), ib.Then():
                ib.buffer_store(shared.kept, following[share], [behind + thread + start])
        ib.evaluate(T.cuda.cta_sync())
        signal = ib.Bind(record.word(SIGNAL))
        dispatch(record, parts)
        _decide(kernel, record, behind, counted)
        _count(kernel, record, behind, counted)
        if flow.frames is not None:
            _push(record, behind, counted, flow.frames)
            _pop(kernel, record, behind, counted, flow.frames)
        ib.evaluate(T.cuda.cta_sync())
        count_up(kernel, signal)
        ib.buffer_store(own, behind, [0])
    if flow.stops:
        with ib.If(tirx.all(kernel.veu == 0, thread == 0)), ib.Then():
            ib.buffer_store(tensors[-2], counted.stopped[0], [0])


def _begin_counting(kernel: PersistentKernel, flow: FlowSizes, shared: SharedState) -> _Counted:
    """Declare a block's counts of executions and iterations, and set them to zero."""
    thread = kernel.thread
    executions = ib.alloc_buffer((flow.regions,), "uint32", scope="shared")
    left = ib.alloc_buffer((flow.regions,), "int32", scope="shared")
    for first in range(0, flow.regions, kernel.layout.block_size):
        with ib.If(thread + first < flow.regions), ib.Then():
            entered = tirx.Cast("uint32", thread + first == WHOLE)
            ib.buffer_store(executions, entered, [thread + first])
            ib.buffer_store(left, 0, [thread + first])
    if not flow.stops:
        return _Counted(executions, left)
    stopped = ib.alloc_buffer((1,), "int32", scope="local")
    ib.buffer_store(stopped, Stop.ENDED.value, [0])
    frames = flow.frames
    if frames is None:
        return _Counted(executions, left, stopped)
    within = ib.alloc_buffer((1,), "int32", scope="shared")
    returns = ib.alloc_buffer((2 * frames.count,), "int32", scope="shared")
    with ib.If(thread == 0), ib.Then():
        ib.buffer_store(within, 0, [0])
        own, deeper = _frames(shared)
        ib.buffer_store(shared.places, tirx.const(frames.start - frames.size, "int64"), [own])
        ib.buffer_store(shared.places, tirx.const(frames.start, "int64"), [deeper])
    return _Counted(executions, left, stopped, within, returns)


def _frames(shared: SharedState) -> tuple[int, int]:
    """Places of the two frames among those of the tensors."""
    count = int(shared.places.shape[0])
    return count - 2, count - 1


def _wait(kernel: PersistentKernel, record: RecordView, executions: Any) -> None:
    """Wait for the counters that a record names, a thread for each."""
    with ib.If(kernel.thread < record.word(WAIT_COUNT)), ib.Then():
        first = WAITS + kernel.thread * WAIT_WORDS
        which, count, region, lag = (record.word(first + n) for n in range(WAIT_WORDS))
        counter = T.address_of(kernel.counters[which])
        given = counter, count, executions[region] - tirx.Cast("uint32", lag)
        ib.evaluate(T.cuda.func_call("tile_wait_until", *given, source_code=_WAIT))


def _decide(kernel: PersistentKernel, record: RecordView, behind: Any, counted: _Counted) -> None:
    """Read the condition of a record that decides; where it does not hold, go on otherwise."""
    with ib.If(record.word(BODY) == DECIDE), ib.Then():
        which, place = (record.word(ARGUMENTS + n) for n in range(2))
        condition = record.place(which, place, record.shared.base.ty)
        kind = "int32"
        holds = ib.Bind(
            T.cuda.func_call("tile_holds", condition, source_code=_HOLDS, return_type=kind)
        )
        with ib.If(holds == 0), ib.Then():
            _fetch(kernel, record, behind, record.word(OTHERWISE))
        with ib.If(kernel.thread == 0), ib.Then():
            side = tirx.Select(holds != 0, record.word(REGIONS + 1), record.word(REGIONS + 2))
            for region in (record.word(REGIONS), side):
                _enter(counted.executions, region)
            if counted.stopped is not None:
                _turn(record, behind, counted, holds)


def _turn(record: RecordView, behind: Any, counted: _Counted, holds: Any) -> None:
    """Count an iteration of a loop that data end, or its end; one too many is the kernel's."""
    loop, left = record.word(LOOP), counted.left
    with ib.If(loop >= 0), ib.Then():
        turns = ib.Bind(tirx.Select(holds != 0, left[loop] + 1, 0))
        ib.buffer_store(left, turns, [loop])
        with ib.If(turns > record.word(TRIPS)), ib.Then():
            _stop(record, behind, counted, Stop.ITERATIONS)


def _stop(record: RecordView, behind: Any, counted: _Counted, why: Stop) -> None:
    """Have the block go home, in place of the record that was expected."""
    ib.buffer_store(counted.stopped, why.value, [0])
    ib.buffer_store(record.shared.kept, END, [behind + BODY])


def _count(kernel: PersistentKernel, record: RecordView, behind: Any, counted: _Counted) -> None:
    """Begin the first or the next iteration of a loop, or go on behind its last."""
    region, executions, left = record.word(REGIONS), counted.executions, counted.left
    with ib.If(tirx.all(record.word(BODY) == ENTER, kernel.thread == 0)), ib.Then():
        ib.buffer_store(left, record.word(TRIPS), [region])
        _enter(executions, region)
    loop = record.word(LOOP)
    with ib.If(tirx.all(loop >= 0, record.word(BODY) != DECIDE)), ib.Then():
        is_last = ib.Bind(left[loop] == 1)
        with ib.If(is_last), ib.Then():
            _fetch(kernel, record, behind, record.word(OTHERWISE))
        # Nobody changes what others have yet to read.
        ib.evaluate(T.cuda.cta_sync())
        with ib.If(tirx.all(kernel.thread == 0, tirx.Not(is_last))), ib.Then():
            ib.buffer_store(left, left[loop] - 1, [loop])
            _enter(executions, loop)


def _push(record: RecordView, behind: Any, counted: _Counted, frames: Frames) -> None:
    """Begin a call, which has the next frame; one too many within another is the kernel's end."""
    within = counted.within
    with ib.If(tirx.all(record.word(BODY) == PUSH, record.thread == 0)), ib.Then():
        depth = ib.Bind(within[0])
        with ib.If(depth >= record.word(TRIPS)), ib.Then():
            _stop(record, behind, counted, Stop.DEPTH)
        with ib.If(depth < record.word(TRIPS)), ib.Then():
            ib.buffer_store(counted.returns, record.word(OTHERWISE), [2 * depth])
            ib.buffer_store(counted.returns, record.word(REGIONS + 1), [2 * depth + 1])
            _enter(counted.executions, record.word(REGIONS))
            _move(record.shared, counted, depth + 1, frames.size)


def _pop(
    kernel: PersistentKernel, record: RecordView, behind: Any, counted: _Counted, frames: Frames
) -> None:
    """End a call: go on behind it, in the frame before."""
    with ib.If(record.word(BODY) == POP), ib.Then():
        depth = ib.Bind(counted.within[0] - 1)
        _fetch(kernel, record, behind, counted.returns[2 * depth])
        # Nobody changes what others have yet to read.
        ib.evaluate(T.cuda.cta_sync())
        with ib.If(record.thread == 0), ib.Then():
            _enter(counted.executions, counted.returns[2 * depth + 1])
            _move(record.shared, counted, depth, -frames.size)


def _move(shared: SharedState, counted: _Counted, depth: Any, distance: int) -> None:
    """Have the frames of another depth, which lie ``distance`` bytes from those of this one."""
    ib.buffer_store(counted.within, depth, [0])
    for place in _frames(shared):
        moved = shared.places[place] + tirx.const(distance, "int64")
        ib.buffer_store(shared.places, moved, [place])


def _enter(executions: Any, region: Any) -> None:
    """Count that a region is entered, if it is one."""
    with ib.If(region >= 0), ib.Then():
        ib.buffer_store(executions, executions[region] + tirx.const(1, "uint32"), [region])


def _fetch(kernel: PersistentKernel, record: RecordView, behind: Any, following: Any) -> None:
    """Fetch the record ``following``, in the place of that which was expected."""
    words = kernel.layout.record_words
    for _, start in record.shared.shares:
        with ib.If(kernel.thread + start < words), ib.Then():
            word = kernel.thread + start
            found = kernel.records[following * words + word]
            ib.buffer_store(record.shared.kept, found, [behind + word])
