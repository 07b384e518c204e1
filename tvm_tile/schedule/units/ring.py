"""Stages of shared memory that a producer fills and consumers empty, round and round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.tile.products.warpgroup_tile import WARPGROUP

_WARP = 32  # threads


@dataclass(frozen=True, slots=True)
class Ring:
    """Stages in shared memory, and barriers: a stage's bytes have arrived; all have read them.

    Attributes:
        data: shared memory, bytes.
        stages: number of stages.
        stage_bytes: bytes from the start of one stage to that of the next.
        full: a barrier of each.
        empty: likewise.
    """

    data: Any
    stages: int
    stage_bytes: int
    full: Any
    empty: Any


def make_ring(
    data: Any, stages: int, stage_bytes: int, consumers: int, thread: Any, fillers: int = 1
) -> Ring:
    """A ring, its barriers visible to the copy engine behind the block's next barrier.

    Args:
        data: shared memory, bytes.
        stages: number of stages.
        stage_bytes: bytes of each stage.
        consumers: number of arrivals that say a stage is empty.
        thread: its number in the block.
        fillers: number of arrivals that say that a stage's data are on their way, or there.
    """
    full, empty = _barriers(stages, thread, fillers, consumers)
    ib.evaluate(T.ptx.fence.proxy.async_.shared__cta())
    return Ring(data, stages, stage_bytes, full, empty)


def _barriers(count: int, thread: Any, *arriving: int) -> list[Any]:
    """Have the first thread make ``count`` barriers for each number of arriving threads."""
    found = [ib.alloc_buffer((count,), "uint64", scope="shared", align=8) for _ in arriving]
    with ib.If(thread == 0), ib.Then(), ib.unroll(count) as place:
        for own, number in zip(found, arriving, strict=True):
            barrier = own.ptr_to([place])
            ib.evaluate(T.ptx.mbarrier.init.shared.b64(barrier, T.uint32(number)))
    return found


def arrive(barrier: Any, speaks: Any) -> None:
    """Say at a barrier that all that a thread speaks for are so far; the other threads say nothing.

    Args:
        barrier: pointer to it.
        speaks: whether this thread does.
    """
    with ib.If(speaks), ib.Then():
        ib.evaluate(T.ptx.mbarrier.arrive.shared.b64(barrier, T.uint32(1)))


class Alternation:
    """Lets two warpgroups multiply by turns, by a barrier of each.

    A group waits at its own barrier before it multiplies, and its warps arrive at the other's when
    they have seen all chunks of its tile. Two facts keep parities unambiguous: a barrier's phase
    ends only when all four warps of the group that passes on have arrived, so none of them still
    waits for an earlier phase; and neither group can pass on twice before the other has once.

    Args:
        group: 0 or 1, of the thread that runs this.
        barriers: two, as :func:`make_alternation_barriers` leaves them.
    """

    def __init__(self, group: Any, barriers: Any) -> None:
        self._group = group
        self._barriers = barriers
        self._round = Round(1)

    def wait(self) -> None:
        """Wait until it is this group's turn: at once for the first one's first."""
        own = self._barriers.ptr_to([self._group])
        ib.evaluate(T.cuda.mbarrier_wait(own, self._round.parity ^ 1 ^ self._group))
        self._round.advance()

    def pass_on(self, thread: Any) -> None:
        """Let the other one multiply; all threads of the group run this."""
        arrive(self._barriers.ptr_to([1 - self._group]), thread % _WARP == 0)


def make_alternation_barriers(thread: Any) -> Any:
    """Two barriers for :class:`Alternation`, visible behind the block's next barrier."""
    (barriers,) = _barriers(2, thread, WARPGROUP // _WARP)
    return barriers


class Count:
    """How often something was done, in a register."""

    def __init__(self) -> None:
        self._state = ib.alloc_buffer((1,), "int32", scope="local")
        ib.buffer_store(self._state, 0, [0])

    @property
    def value(self) -> Any:
        """The number."""
        return self._state[0]

    def advance(self) -> None:
        """Count once more."""
        ib.buffer_store(self._state, self.value + 1, [0])


class Round:
    """Position of one role in a ring: its stage, and the parity of its round."""

    def __init__(self, stages: int) -> None:
        self._stages = stages
        self._state = ib.alloc_buffer((2,), "int32", scope="local")
        ib.buffer_store(self._state, 0, [0])
        ib.buffer_store(self._state, 0, [1])

    @property
    def stage(self) -> Any:
        """The stage whose turn it is."""
        return self._state[0]

    @property
    def previous(self) -> Any:
        """The stage before it."""
        return tirx.Select(self.stage == 0, tirx.const(self._stages - 1, "int32"), self.stage - 1)

    @property
    def parity(self) -> Any:
        """Parity of the round, 0 in the first."""
        return self._state[1]

    def skip(self, count: int) -> None:
        """Go on by ``count`` stages."""
        passed = ib.Bind(self.stage + count)
        ib.buffer_store(self._state, passed % self._stages, [0])
        ib.buffer_store(self._state, self.parity ^ (passed // self._stages % 2), [1])

    def advance(self) -> None:
        """Go on to the next stage."""
        ib.buffer_store(self._state, self.stage + 1, [0])
        with ib.If(self.stage == self._stages), ib.Then():
            ib.buffer_store(self._state, 0, [0])
            ib.buffer_store(self._state, self.parity ^ 1, [1])


class Turn(Round):
    """Turn of one role at a stage of a ring: its waits and arrivals."""

    def __init__(self, ring: Ring) -> None:
        super().__init__(ring.stages)
        self._ring = ring

    @property
    def full(self) -> Any:
        """The barrier that says that the stage is full."""
        return self._ring.full.ptr_to([self.stage])

    @property
    def moved(self) -> Any:
        """Units of 16 bytes from the first stage to this one, as matrix descriptors count them."""
        return tirx.Cast("uint64", self.stage * (self._ring.stage_bytes // 16))

    def pointer(self, offset: int) -> Any:
        """Pointer to a byte of the stage."""
        return self._ring.data.ptr_to([self.stage * self._ring.stage_bytes + offset])

    def wait_until_full(self) -> None:
        """Wait for what the producer brings."""
        ib.evaluate(T.cuda.mbarrier_wait(self.full, self.parity))

    def wait_until_empty(self) -> None:
        """Wait until the consumers have read the stage's last round: at once in the first."""
        empty = self._ring.empty.ptr_to([self.stage])
        ib.evaluate(T.cuda.mbarrier_wait(empty, self.parity ^ 1))

    def expect(self, size: int) -> None:
        """Have the stage be full only when ``size`` bytes were copied, for one who fills it."""
        ib.evaluate(T.ptx.mbarrier.arrive.expect_tx.shared.b64(self.full, T.uint32(size)))

    def release(self, stage: Any, speaks: Any) -> None:
        """Say that a stage is empty, for all whom a thread ``speaks`` for."""
        arrive(self._ring.empty.ptr_to([stage]), speaks)
