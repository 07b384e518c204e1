"""The path through a rProgram, and that on it everything is in order."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm_tile.plan.check_plan import require
from tvm_tile.plan.rprogram import (
    WHOLE,
    Access,
    Branch,
    Item,
    Lagged,
    Repeat,
    RProgram,
    Run,
    While,
    program_waits,
)

Says = Callable[[int, int], bool]
"""By the number of a decision and how often it was asked before: what it says."""

_TURNS = 3  # of loops, that paths are checked with: one more than any wait looks back


@dataclass(frozen=True, slots=True)
class Executed:
    """A rOperator or a decision that is executed.

    Attributes:
        counter: its own.
        entered: of each region, how often it was entered by then.
    """

    counter: int
    entered: tuple[int, ...]


def path(program: RProgram, says: Says) -> Iterator[Executed]:
    """What is executed, one after the other, until the program ends or goes beyond its bounds.

    Args:
        program: that is followed.
        says: what decisions say.
    """
    with contextlib.suppress(_BeyondError):
        yield from _path(program, says)


class _BeyondError(Exception):
    """A program has gone beyond its bounds."""


def _path(program: RProgram, says: Says) -> Iterator[Executed]:
    entered = [0] * program.count_regions
    entered[WHOLE] = 1
    asked = [0] * len(program.decisions)
    turns = [0] * program.count_regions  # of each loop, by its head

    def executed(counter: int) -> Executed:
        return Executed(counter, tuple(entered))

    def decision(number: int) -> Executed:
        return executed(len(program.accesses) + number)

    def holds(number: int, loop: int | None) -> bool:
        asked[number] += 1
        goes_on = says(number, asked[number] - 1)
        if loop is not None:
            turns[loop] = turns[loop] + 1 if goes_on else 0
            if turns[loop] > program.bounds.iterations:
                raise _BeyondError
        return goes_on

    def walk(items: Sequence[Item]) -> Iterator[Executed]:
        for item in items:
            match item:
                case Run(operators):
                    yield from map(executed, operators)
                case Repeat(region, trips, body):
                    for _ in range(trips):
                        entered[region] += 1
                        yield from walk(body)
                case While(head, region, number, body):
                    while True:
                        entered[head] += 1
                        yield decision(number)
                        if not holds(number, head):
                            break
                        entered[region] += 1
                        yield from walk(body)
                case Branch(number, then_region, then, else_region, otherwise, loop):
                    yield decision(number)
                    is_first = holds(number, loop)
                    entered[then_region if is_first else else_region] += 1
                    yield from walk(then if is_first else otherwise)

    yield from walk(program.items)


def ordered(program: RProgram, says: Says) -> Iterator[tuple[Executed, tuple[int, ...]]]:
    """What is executed, each with the places on the path of what must have ended before it begins.

    These are who has last written what it touches, and who has read since then what it writes.
    """
    writers: dict[int, tuple[int, int]] = {}  # by memory: place and counter
    readers: dict[int, list[int]] = {}
    for place, own in enumerate(path(program, says)):
        access = program.access(own.counter)
        yield own, tuple(_needed(access, own.counter, writers, readers))
        for memory in access.reads:
            readers.setdefault(memory, []).append(place)
        for memory in access.writes:
            writers[memory], readers[memory] = (place, own.counter), []


def _needed(
    access: Access,
    counter: int,
    writers: Mapping[int, tuple[int, int]],
    readers: Mapping[int, Sequence[int]],
) -> Iterator[int]:
    for memory in access.reads | access.writes:
        place, writer = writers.get(memory, (-1, counter))
        # A rTask that writes again where it has written is run by the same vEU.
        if place >= 0 and (memory in access.reads or writer != counter):
            yield place
    for memory in access.writes:
        yield from readers.get(memory, ())


def check_path(
    program: RProgram, says: Says, waited: Sequence[Sequence[Lagged]] | None = None
) -> None:
    """Check that whatever touches the same memory on a path is ordered by waits.

    This asks for no order in which a vEU runs its rTasks, but that those of one rOperator write
    apart from one another.

    Args:
        program: that is followed.
        says: what decisions say.
        waited: where it is not :func:`~tvm_tile.plan.rprogram.program_waits`.

    Raises:
        PlanError: something may begin before what it must come after has ended; or it waits for
            what comes behind it.
    """
    waits = program_waits(program) if waited is None else waited
    places: list[list[int]] = [[] for _ in range(program.count_counters)]
    ended: list[int] = []  # of each execution, those that have ended when it begins, as bits
    for place, (own, needed) in enumerate(ordered(program, says)):
        before = 0
        for wait in waits[own.counter]:
            count = own.entered[wait.region] - wait.lag
            known = places[wait.counter]
            require(count <= len(known), "waits are for what comes before", f"{own}, {wait}")
            for other in known[:count]:
                before |= ended[other] | 1 << other
        for other in needed:
            current = f"number {own.counter} may begin before place {other} of the path has ended"
            require(bool(before >> other & 1), "what touches the same memory is in order", current)
        ended.append(before)
        places[own.counter].append(place)


def check_program(program: RProgram, waited: Sequence[Sequence[Lagged]] | None = None) -> None:
    """Check paths of a program: of few iterations, whatever decisions say.

    Waits look back one execution at most, so that what is right for some iterations is for all.

    Args:
        program: that is to be a kernel.
        waited: where it is not :func:`~tvm_tile.plan.rprogram.program_waits`.

    Raises:
        PlanError: as of :func:`check_path`.
    """
    waits = program_waits(program) if waited is None else waited
    short = replace(program, items=_short(program.items))
    for pattern in itertools.product((False, True), repeat=_TURNS):
        check_path(short, _repeating((*pattern, False)), waits)


def _repeating(pattern: Sequence[bool]) -> Says:
    """All decisions say the same, again and again."""
    return lambda _, turn: pattern[turn % len(pattern)]


def _short(items: Sequence[Item]) -> tuple[Item, ...]:
    """Items whose loops have few iterations."""

    def short(item: Item) -> Item:
        match item:
            case Run():
                return item
            case Repeat(_, trips, body):
                return replace(item, trips=min(trips, _TURNS), body=_short(body))
            case While(_, _, _, body):
                return replace(item, body=_short(body))
            case Branch(_, _, then, _, otherwise, _):
                return replace(item, then=_short(then), otherwise=_short(otherwise))

    return tuple(map(short, items))
