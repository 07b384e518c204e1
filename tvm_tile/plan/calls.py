"""Programs with calls, whose regions are cut there: none owns anything behind a call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, takewhile

from tvm_tile.plan.rprogram import Branch, Invoke, Item, OwnRegion, Repeat, RProgram, While, inner


@dataclass(frozen=True, slots=True)
class Frames:
    """Places of the memory that calls have of their own, one behind the other.

    Attributes:
        start: start of the first call's memory, in bytes from the workspace's start.
        size: bytes of each.
        count: the most calls within each other.
    """

    start: int
    size: int
    count: int


def has_call(item: Item) -> bool:
    """Whether an item is a call, or holds one."""
    held = (one for body in inner(item) for one in body)
    return isinstance(item, Invoke) or any(map(has_call, held))


def cut_at_calls(program: RProgram) -> RProgram:
    """A program whose regions own of what has counters only what comes before their first call.

    before: ``a; f(); b; if c: d; f(); e``
    after:  ``a; f(); {b}; if {c}: d; f(); {e}``, each ``{}`` a region
    """
    if not program.functions:
        return program
    cutter = _Cutter(program.count_regions)
    functions = tuple(cutter.cut(own) for own in program.functions)
    return replace(program, items=cutter.inner(program.items), functions=functions)


class _Cutter:
    def __init__(self, first: int) -> None:
        self._regions = first

    def cut(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """Items that are in no region of their own, such as a function's."""
        return tuple(self._pieces(items))

    def inner(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """The items of a region, which owns those before the first call."""
        own = tuple(takewhile(lambda item: not has_call(item), items))
        return (*own, *self.cut(items[len(own) :]))

    def _pieces(self, items: Sequence[Item]) -> Iterator[Item]:
        """The items with each run of items without calls as a region of its own."""
        for calls, own in groupby(items, has_call):
            if calls:
                yield from map(self._cut, own)
            else:
                yield OwnRegion(self._region(), tuple(own))

    def _cut(self, item: Item) -> Item:
        """An item that holds a call, with its bodies cut likewise."""
        match item:
            case Repeat() | While():
                return replace(item, body=self.inner(item.body))
            case Branch():
                sides = self.inner(item.then), self.inner(item.otherwise)
                return replace(item, then=sides[0], otherwise=sides[1], head=self._region())
            case _:
                return item

    def _region(self) -> int:
        """The number of a new region."""
        self._regions += 1
        return self._regions - 1
