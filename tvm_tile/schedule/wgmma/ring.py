"""Stages of shared memory that a producer fills and consumers empty, round and round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib


@dataclass(frozen=True, slots=True)
class Ring:
    """The barriers of the stages: a stage's bytes have arrived; all have read them."""

    full: Any
    empty: Any


def make_ring(stages: int, consumers: int, thread: Any) -> Ring:
    """Barriers, initialized and visible to the copy engine behind the block's next barrier.

    Args:
        stages: of the ring.
        consumers: how many say that a stage is empty.
        thread: its number in the block.
    """
    full, empty = (ib.alloc_buffer((stages,), "uint64", scope="shared", align=8) for _ in range(2))
    with ib.If(thread == 0), ib.Then(), ib.unroll(stages) as stage:
        init = T.ptx.mbarrier.init.shared.b64
        ib.evaluate(init(full.ptr_to([stage]), T.uint32(1)))
        ib.evaluate(init(empty.ptr_to([stage]), T.uint32(consumers)))
    ib.evaluate(T.ptx.fence.proxy.async_.shared__cta())
    return Ring(full, empty)


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
        """Of the round, 0 in the first."""
        return self._state[1]

    def advance(self) -> None:
        """On to the next stage."""
        ib.buffer_store(self._state, self.stage + 1, [0])
        with ib.If(self.stage == self._stages), ib.Then():
            ib.buffer_store(self._state, 0, [0])
            ib.buffer_store(self._state, self.parity ^ 1, [1])
