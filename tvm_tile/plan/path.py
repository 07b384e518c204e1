"""Execution order of a rProgram, and a check that conflicting accesses are ordered along it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm_tile.plan.check_plan import require
from tvm_tile.plan.rprogram import (
    WHOLE,
    Branch,
    Footprint,
    Invoke,
    Item,
    Lagged,
    OwnRegion,
    Repeat,
    RProgram,
    Series,
    While,
    program_waits,
)

Says = Callable[[int, int], bool]
"""By the number of a decision and how often it was asked before: what it says."""

_TURNS = 3  # of loops, that paths are checked with: one more than any wait looks back
_TURNS_OF_CALLS = 5  # so that a call may call again twice, and end


@dataclass(frozen=True, slots=True)
class Executed:
    """A rOperator or a decision that is executed.

    Attributes:
        counter: its own.
        entered: for each region, how often it was entered by then.
    """

    counter: int
    entered: tuple[int, ...]


def path(program: RProgram, says: Says) -> Iterator[Executed]:
    """Executions in order, until the program ends or goes beyond its bounds.

    Args:
        program: program that is followed.
        says: answers of the decisions.
    """
    with contextlib.suppress(_BeyondError):
        yield from _Walk(program, says).of(program.items)


class _BeyondError(Exception):
    """A program has gone beyond its bounds."""


class _Walk:
    def __init__(self, program: RProgram, says: Says) -> None:
        self._program, self._says = program, says
        self._entered = [0] * program.count_regions
        self._entered[WHOLE] = 1
        self._asked = [0] * len(program.decisions)
        self._turns = [0] * program.count_regions  # of each loop, by its head
        self._within = 0  # calls

    def of(self, items: Sequence[Item]) -> Iterator[Executed]:
        """Executions of the items, in order."""
        for item in items:
            match item:
                case Series(operators):
                    yield from map(self._executed, operators)
                case Repeat(region, trips, body):
                    for _ in range(trips):
                        yield from self._region(region, body)
                case While(head, region, number, body):
                    while True:
                        self._entered[head] += 1
                        yield self._decided(number)
                        if not self._holds(number, head):
                            break
                        yield from self._region(region, body)
                case Branch(number, then_region, then, else_region, otherwise, loop, head):
                    if head is not None:
                        self._entered[head] += 1
                    yield self._decided(number)
                    sides = (else_region, otherwise), (then_region, then)
                    yield from self._region(*sides[self._holds(number, loop)])
                case OwnRegion(region, body):
                    yield from self._region(region, body)
                case Invoke(function):
                    self._within += 1
                    if self._within > self._program.bounds.depth:
                        raise _BeyondError
                    yield from self.of(self._program.functions[function])
                    self._within -= 1

    def _region(self, region: int, body: Sequence[Item]) -> Iterator[Executed]:
        """Executions of a region, which is entered."""
        self._entered[region] += 1
        yield from self.of(body)

    def _executed(self, counter: int) -> Executed:
        """An execution of a counter, with how often each region was entered so far."""
        return Executed(counter, tuple(self._entered))

    def _decided(self, number: int) -> Executed:
        """An execution of a decision."""
        return self._executed(len(self._program.accesses) + number)

    def _holds(self, number: int, loop: int | None) -> bool:
        """The answer of a decision, counted; raises where a loop goes beyond its bound."""
        self._asked[number] += 1
        goes_on = self._says(number, self._asked[number] - 1)
        if loop is not None:
            self._turns[loop] = self._turns[loop] + 1 if goes_on else 0
            if self._turns[loop] > self._program.bounds.iterations:
                raise _BeyondError
        return goes_on


def ordered(program: RProgram, says: Says) -> Iterator[tuple[Executed, tuple[int, ...]]]:
    """Executions in order, each with the places on the path of those that it must wait for.

    These have last written what it touches, or have read since then what it writes.
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
    access: Footprint,
    counter: int,
    writers: Mapping[int, tuple[int, int]],
    readers: Mapping[int, Sequence[int]],
) -> Iterator[int]:
    """Places on the path of the executions that an access must wait for."""
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
        program: program that is followed.
        says: answers of the decisions.
        waited: waits, if they are others than those of
            :func:`~tvm_tile.plan.rprogram.program_waits`.

    Raises:
        PlanError: something may begin before what it must come after has ended; or it waits for
            what comes behind it.
    """
    waits = program_waits(program) if waited is None else waited
    # Of each counter's first executions, none, one and so on: those that have ended with them, and
    # before them, as bits of their places.
    ended: list[list[int]] = [[0] for _ in range(program.count_counters)]
    for place, (own, needed) in enumerate(ordered(program, says)):
        before = 0
        for wait in waits[own.counter]:
            count = own.entered[wait.region] - wait.lag
            known = ended[wait.counter]
            if count >= len(known):
                require(False, "waits are for what comes before", f"{own}, {wait}")
            before |= known[count]
        for other in needed:
            if not before >> other & 1:
                current = f"number {own.counter} may begin before place {other} of the path ended"
                require(False, "what touches the same memory is in order", current)
        ended[own.counter].append(ended[own.counter][-1] | before | 1 << place)


def check_program(program: RProgram) -> None:
    """Check paths of a program: of few iterations, whatever decisions say.

    Waits look back one execution at most, so that what is right for some iterations is for all, and
    for some calls within each other.

    Args:
        program: program that is to be a kernel.

    Raises:
        PlanError: accesses to the same memory are not ordered by waits.
    """
    waits = program_waits(program)
    functions = tuple(map(_short, program.functions))
    bounds = replace(program.bounds, depth=min(program.bounds.depth, _TURNS))
    short = replace(program, items=_short(program.items), functions=functions, bounds=bounds)
    turns = _TURNS_OF_CALLS if functions else _TURNS
    for pattern in itertools.product((False, True), repeat=turns):
        check_path(short, _repeating((*pattern, False)), waits)


def _repeating(pattern: Sequence[bool]) -> Says:
    """All decisions say the same, again and again."""
    return lambda _, turn: pattern[turn % len(pattern)]


def _short(items: Sequence[Item]) -> tuple[Item, ...]:
    """Items whose loops have few iterations."""

    def short(item: Item) -> Item:
        match item:
            case Series() | Invoke():
                return item
            case Repeat(_, trips, body):
                return replace(item, trips=min(trips, _TURNS), body=_short(body))
            case While(_, _, _, body) | OwnRegion(_, body):
                return replace(item, body=_short(body))
            case Branch(_, _, then, _, otherwise):
                return replace(item, then=_short(then), otherwise=_short(otherwise))

    return tuple(map(short, items))
