"""Which elements of a chunk are compared with which: a sorting network that keeps only so many.

A chunk's elements have positions, whose bits say where an element lies: the lowest ones in which of
a thread's registers, those above in which lane of a warp, then again in which register, and the
highest ones in which warp. Steps between lanes are many where their bits are low ones, and what
neighbouring lanes have at last are no neighbours where they are not.

Runs of ``2 ** run`` neighbours, no fewer than are kept, are sorted as Batcher's bitonic networks do
(AFIPS'68): in turns, each of which merges pairs of runs. A turn's steps compare elements whose
positions differ in one bit, from a high bit to the lowest. Runs beside each other rise and fall::

    for turn < run:  for bit in turn, ..., 1, 0:  the lesser one of p and p ^ 2**bit to the first

Then, of each pair of sorted runs, one of which rises and one of which falls, the lesser ones of
each two elements side by side are the least of both. Only these go on, and are sorted again::

    for bit >= run:  x[p] = min(x[p], x[p ^ 2**bit]);  for b in run - 1, ..., 0:  as above

Bits of registers come first here, for then each thread has half as many elements left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SortTurn:
    """Steps that sort runs of which each is two sorted ones, or less than that.

    Attributes:
        first: highest bit of the steps, of which there is one for each bit down to zero; -1: none.
        side: bit of the positions that says whether a run falls; ``None``: all rise.
        live: registers of a thread that elements are left in.
    """

    first: int
    side: int | None
    live: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Network:
    """The bits of positions; see above.

    Attributes:
        low: the lowest bits, which say in which register of its thread an element lies.
        lanes: bits that say in which lane of a warp; zero where lanes exchange nothing but through
            shared memory.
        high: further bits that say in which register.
        warps: bits that say in which warp, or in which thread where ``lanes`` is zero.
        run: bits of the positions within a run.
    """

    low: int
    lanes: int
    high: int
    warps: int
    run: int

    @property
    def registers(self) -> int:
        """Bits that say in which register an element lies."""
        return self.low + self.high

    @property
    def near(self) -> int:
        """Bits below those whose steps go through shared memory."""
        return self.registers + self.lanes

    @property
    def bits(self) -> int:
        """Bits of a position."""
        return self.near + self.warps

    @property
    def halvings(self) -> tuple[int, ...]:
        """Bits that say in which run an element lies, in the order in which they are halved."""
        own = range(self.run, self.bits)
        near = [bit for bit in own if self.place(bit)[0]]
        return (*near, *(bit for bit in own if bit not in near))

    @property
    def sorting(self) -> tuple[SortTurn, ...]:
        """The turns that sort runs."""
        live = tuple(range(1 << self.registers))
        first = self.halvings[0] if self.halvings else None
        sides = (*range(1, self.run), first) if self.run else ()
        return tuple(SortTurn(turn, side, live) for turn, side in enumerate(sides))

    @property
    def halving(self) -> tuple[tuple[int, SortTurn], ...]:
        """The turns behind these, and the bits ahead of them that only the lesser elements pass."""
        return tuple(self._halving())

    @property
    def left(self) -> tuple[int, ...]:
        """Registers in which elements are left at last."""
        turns = (*self.sorting, *(turn for _, turn in self.halving))
        return turns[-1].live

    def place(self, bit: int) -> tuple[bool, int]:
        """Whether a bit of the position says in which register, and which bit it is of its number;
        or else of the number of the thread."""
        if bit < self.low:
            return True, bit
        if bit < self.low + self.lanes:
            return False, bit - self.low
        return (True, bit - self.lanes) if bit < self.near else (False, bit - self.registers)

    def steps(self, first: int) -> tuple[int, int, int]:
        """Steps from a bit down to the lowest: between warps, between lanes, and in registers."""
        warps = max(0, first + 1 - self.near)
        lanes = min(max(0, first + 1 - self.low), self.lanes)
        return warps, lanes, first + 1 - warps - lanes

    def _halving(self) -> Iterator[tuple[int, SortTurn]]:
        live = tuple(range(1 << self.registers))
        sides = (*self.halvings[1:], None)
        for bit, side in zip(self.halvings, sides, strict=False):
            is_register, own = self.place(bit)
            if is_register:
                live = tuple(e for e in live if not e >> own & 1)
            yield bit, SortTurn(self.run - 1, side, live)
