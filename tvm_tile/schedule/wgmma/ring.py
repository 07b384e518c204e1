"""Stages of shared memory that a producer fills and consumers empty, round and round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.tile.warpgroup_tile import WARPGROUP

_WARP = 32  # threads


@dataclass(frozen=True, slots=True)
class Ring:
    """The barriers of the stages: a stage's bytes have arrived; all have read them."""

    full: Any
    empty: Any


def make_ring(stages: int, consumers: int, thread: Any, fillers: int = 1) -> Ring:
    """Barriers, initialized and visible to the copy engine behind the block's next barrier.

    Args:
        stages: of the ring.
        consumers: how many say that a stage is empty.
        thread: its number in the block.
        fillers: how many say that what they bring is on its way, or there.
    """
    full, empty = (ib.alloc_buffer((stages,), "uint64", scope="shared", align=8) for _ in range(2))
    with ib.If(thread == 0), ib.Then(), ib.unroll(stages) as stage:
        init = T.ptx.mbarrier.init.shared.b64
        ib.evaluate(init(full.ptr_to([stage]), T.uint32(fillers)))
        ib.evaluate(init(empty.ptr_to([stage]), T.uint32(consumers)))
    ib.evaluate(T.ptx.fence.proxy.async_.shared__cta())
    return Ring(full, empty)


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
        self._round = Turn(1)

    def wait(self) -> None:
        """Wait until it is this group's turn: at once for the first one's first."""
        own = self._barriers.ptr_to([self._group])
        ib.evaluate(T.cuda.mbarrier_wait(own, self._round.parity ^ 1 ^ self._group))
        self._round.advance()

    def pass_on(self, thread: Any) -> None:
        """Let the other one multiply; all threads of the group run this."""
        with ib.If(thread % _WARP == 0), ib.Then():
            other = self._barriers.ptr_to([1 - self._group])
            ib.evaluate(T.ptx.mbarrier.arrive.shared.b64(other, T.uint32(1)))


def make_alternation_barriers(thread: Any) -> Any:
    """Two barriers for :class:`Alternation`, visible behind the block's next barrier."""
    barriers = ib.alloc_buffer((2,), "uint64", scope="shared", align=8)
    with ib.If(thread == 0), ib.Then(), ib.unroll(2) as group:
        warps = T.uint32(WARPGROUP // _WARP)
        ib.evaluate(T.ptx.mbarrier.init.shared.b64(barriers.ptr_to([group]), warps))
    return barriers


class Turn:
    """Where one role stands in the ring: the stage, and the parity of its round."""

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
        """Go on by so many stages."""
        passed = ib.Bind(self.stage + count)
        ib.buffer_store(self._state, passed % self._stages, [0])
        ib.buffer_store(self._state, self.parity ^ (passed // self._stages % 2), [1])

    def advance(self) -> None:
        """Go on to the next stage."""
        ib.buffer_store(self._state, self.stage + 1, [0])
        with ib.If(self.stage == self._stages), ib.Then():
            ib.buffer_store(self._state, 0, [0])
            ib.buffer_store(self._state, self.parity ^ 1, [1])
