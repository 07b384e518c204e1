"""Control flow inside a persistent kernel: rOperators in straight lines, loops, branches, calls.

Rammer's rProgram (OSDI 2020, section 3) is a straight line. Cocktailer (OSDI 2023) puts loops and
branches beside the data flow; here all vEUs follow one path through them, each by itself, as every
vEU reads each condition.

**What rTasks wait for.** A rOperator has one counter, to which each of its rTasks adds one, and
which is never reset. It lies in a region: the whole program, or the body of a loop, or a side of a
branch. Each vEU knows how often it has entered each region. Of two rOperators that touch the same
memory, and not both only to read it, the one that comes later on the path waits until the counter
of the other one is at its number of rTasks times ``executions - lag``, where ``executions`` says
how often the other one's region was entered, and ``lag`` is one if that region is still gone
through and the other one is yet to come in it. That is one rule for what iterations hand on, for
memory that is written again, and for sides of branches that were not taken: their counts stand
still, as do their executions.

**Why that is right.** The path is a sequence of executions of rOperators, the same for all vEUs.
Whatever a rOperator waits for comes before it on that path, so that the first one which has not
ended waits for none that has not: some vEU goes on, and the kernel ends if the path does. Any two
that touch the same memory, one of which writes, are ordered by a wait or by a chain of them, so
that each reads what it would read if one ran after the other. The rTasks of one rOperator write
apart from one another, and a rTask is run by the same vEU each time; where a rOperator changes
memory in place, it waits for its own last execution, too.

**Calls.** Functions that call themselves are written once, and gone through at each call. Regions
are cut where they hold a call (:mod:`tvm_tile.plan.calls`): what has a counter comes before the
first call in its region. So when something begins, all that a region has was executed as often as
it was entered, by whichever call that was, but for a region that it lies in itself and in which no
call has begun yet; and of these the rule above speaks. That a function may have been gone through
before is all that is known of it: its rOperators wait for all others', in whatever order they are
written. Memory of a call's own counts as one memory for all calls: there are waits too many, each
for what comes before.

**Where it ends in any case.** Each vEU counts the iterations of a loop since it came to it, and the
calls that it is within; when there is one more than :class:`Bounds` allow, it goes home. All do at
the same place of the path, before which each has done what others wait for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from tvm_tile.errors.arguments import check_bound

Control = Literal["host", "kernel", "auto"]
"""Where loops run: see :class:`tvm_tile.stages.forced.Forced`."""

WHOLE = 0
"""The region that is the whole program, which is entered once."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a kernel with a loop or a recursion inside goes before it gives up.

    Attributes:
        iterations: the most iterations, at least 1, of a loop that only its data end, each time
            that it is entered.
        depth: the most calls, at least 1, of functions that call themselves within one another,
            for which the kernel has memory.

    Raises:
        OptionError: a number is no whole number, or none that a kernel can count to.
    """

    iterations: int = 4_000_000
    depth: int = 256

    def __post_init__(self) -> None:
        check_bound("iterations", self.iterations)
        check_bound("depth", self.depth)


class Stop(IntEnum):
    """Why a kernel ended, as the word that it leaves."""

    ENDED = 0
    ITERATIONS = 1
    DEPTH = 2


@dataclass(frozen=True, slots=True)
class Series:
    """rOperators that run one after the other, as far as they depend on one another."""

    operators: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A loop of ``trips`` iterations, at least one; ``region`` is entered in each."""

    region: int
    trips: int
    body: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class While:
    """A loop that goes on as long as a decision says.

    Attributes:
        head: the region that is entered whenever it is decided, once more than there are
            iterations.
        region: region that is entered in each iteration.
        decision: number of the decision.
        body: an iteration.
        most: iterations that it has at most, if that is known.
    """

    head: int
    region: int
    decision: int
    body: tuple[Item, ...]
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """One of two sides, as a decision says; each side is a region.

    Attributes:
        decision: its number.
        then_region: region that is entered where the decision holds.
        then: items that are run then.
        else_region: region that is entered where it does not hold.
        otherwise: items that are run then.
        turn_of: the head of the loop, if any, of which ``then`` is one more iteration.
        head: region of the decision alone; None where it is of the region around.
    """

    decision: int
    then_region: int
    then: tuple[Item, ...]
    else_region: int
    otherwise: tuple[Item, ...]
    turn_of: int | None = None
    head: int | None = None


@dataclass(frozen=True, slots=True)
class OwnRegion:
    """A region of its own, without calls."""

    region: int
    body: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Invoke:
    """Go through the items of a function, then on."""

    function: int


Item = Series | Repeat | While | Branch | OwnRegion | Invoke


def inner(item: Item) -> tuple[tuple[Item, ...], ...]:
    """The items that another one holds, in the order of the text: a branch has two sides."""
    match item:
        case Repeat() | While() | OwnRegion():
            return (item.body,)
        case Branch():
            return item.then, item.otherwise
        case Series() | Invoke():
            return ()


@dataclass(frozen=True, slots=True)
class Footprint:
    """Numbers of the memories that a rOperator reads, and that it writes; what it changes in place
    is in both."""

    reads: frozenset[int]
    writes: frozenset[int]

    def conflicts(self, other: Footprint) -> bool:
        """Whether the order of both matters."""
        return bool(self.writes & (other.reads | other.writes) or self.reads & other.writes)


@dataclass(frozen=True, slots=True)
class RProgram:
    """Program of a persistent kernel: rOperators, loops, branches and calls.

    Attributes:
        items: items in their order; each rOperator and each decision is in one of them, once.
        accesses: memory that each rOperator touches.
        decisions: memory that each decision reads: a bool.
        bounds: bounds beyond which it gives up.
        functions: the items of each function that is called.
    """

    items: tuple[Item, ...]
    accesses: tuple[Footprint, ...]
    decisions: tuple[int, ...] = ()
    bounds: Bounds = Bounds()
    functions: tuple[tuple[Item, ...], ...] = ()

    @property
    def bodies(self) -> tuple[tuple[Item, ...], ...]:
        """The program's own items, then those of each function."""
        return (self.items, *self.functions)

    @property
    def count_counters(self) -> int:
        """The number of counters that the program takes: one a rOperator, then one a decision."""
        return len(self.accesses) + len(self.decisions)

    @property
    def count_regions(self) -> int:
        """The number of the program's regions, the whole one among them."""
        return 1 + max((one for own in self.bodies for one in _regions(own)), default=WHOLE)

    @property
    def may_stop(self) -> bool:
        """Whether only data end it, so that it has bounds."""
        most = self.bounds.iterations
        return bool(self.functions) or any(_may_go_on(item, most) for item in self.items)

    def access(self, counter: int) -> Footprint:
        """Memory that a rOperator touches; numbers behind those of the rOperators are decisions."""
        if counter < len(self.accesses):
            return self.accesses[counter]
        memory = self.decisions[counter - len(self.accesses)]
        return Footprint(frozenset((memory,)), frozenset())


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a rOperator or a decision in a program.

    Attributes:
        counter: its own.
        regions: regions that it lies in, the innermost one last.
        body: number of the function that has it, from one on; zero where none has.
    """

    counter: int
    regions: tuple[int, ...]
    body: int = 0


def places(program: RProgram) -> tuple[Place, ...]:
    """All rOperators and decisions, in the order of the text."""
    first_decision = len(program.accesses)

    def walk(items: Sequence[Item], regions: tuple[int, ...], own: int) -> Iterator[Place]:
        for item in items:
            match item:
                case Series(operators):
                    yield from (Place(number, regions, own) for number in operators)
                case Repeat(region, _, body) | OwnRegion(region, body):
                    yield from walk(body, (*regions, region), own)
                case While(head, region, decision, body):
                    yield Place(first_decision + decision, (*regions, head), own)
                    yield from walk(body, (*regions, head, region), own)
                case Branch(decision, then_region, then, else_region, otherwise, _, head):
                    around = regions if head is None else (*regions, head)
                    yield Place(first_decision + decision, around, own)
                    yield from walk(then, (*regions, then_region), own)
                    yield from walk(otherwise, (*regions, else_region), own)

    bodies = enumerate(program.bodies)
    return tuple(
        place for own, items in bodies for place in walk(items, () if own else (WHOLE,), own)
    )


def _regions(items: Sequence[Item]) -> Iterator[int]:
    """Numbers of the regions in the items, at any depth."""
    for item in items:
        match item:
            case Repeat() | OwnRegion():
                yield item.region
            case While():
                yield from (item.head, item.region)
            case Branch():
                yield from (item.then_region, item.else_region)
                yield from () if item.head is None else (item.head,)
        for body in inner(item):
            yield from _regions(body)


def _may_go_on(item: Item, most: int) -> bool:
    """Whether an item holds a loop that is not known to end within ``most`` iterations."""
    if isinstance(item, While) and (item.most is None or item.most > most):
        return True
    return any(_may_go_on(one, most) for body in inner(item) for one in body)


def repeated_regions(items: Sequence[Item]) -> frozenset[int]:
    """The regions that may be entered again while what is around them is not left."""
    found: set[int] = set()
    for item in items:
        if isinstance(item, Repeat):
            found.add(item.region)
        elif isinstance(item, While):
            found.add(item.head)
        for body in inner(item):
            found |= repeated_regions(body)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Lagged:
    """A wait until a counter is at ``count * (executions of region - lag)``.

    Attributes:
        counter: counter that is waited for.
        region: region in which those lie that add to it.
        lag: zero, or one where that is yet to come in an execution that has begun.
    """

    counter: int
    region: int
    lag: int


def program_waits(program: RProgram) -> tuple[tuple[Lagged, ...], ...]:
    """For each counter, waits of those who add to it, without waits that others imply."""
    ordered = places(program)
    loops = repeated_regions(program.items)
    found: list[tuple[Lagged, ...]] = [()] * program.count_counters
    for position, place in enumerate(ordered):
        waited = (
            _wait(program, loops, place, other, is_behind=number >= position)
            for number, other in enumerate(ordered)
        )
        found[place.counter] = tuple(wait for wait in waited if wait is not None)
    return _without_implied(ordered, found)


def _wait(
    program: RProgram, loops: frozenset[int], place: Place, other: Place, *, is_behind: bool
) -> Lagged | None:
    """Wait of one item for another, or for itself; nothing where their order does not matter."""
    own, its = program.access(place.counter), program.access(other.counter)
    conflicts = own.reads & own.writes if place is other else own.conflicts(its)
    is_in_loop = bool(loops & set(place.regions) & set(other.regions))
    may_come_again = is_in_loop or place.body or other.body
    if not conflicts or (is_behind and not may_come_again):
        return None
    region = other.regions[-1]
    return Lagged(other.counter, region, int(is_behind and region in place.regions))


def _without_implied(
    ordered: Sequence[Place], waits: Sequence[tuple[Lagged, ...]]
) -> tuple[tuple[Lagged, ...], ...]:
    """Waits without those that another wait of the same region implies.

    Within a region, who has waited for one execution of a rOperator has waited for all that this
    one had waited for: executions back add up along a chain of waits.
    """
    regions = {place.counter: place.regions for place in ordered}
    near = [
        [(wait.counter, wait.lag) for wait in own if regions[wait.counter] == regions[counter]]
        for counter, own in enumerate(waits)
    ]
    behind = [_executions_back(near, counter) for counter in range(len(waits))]

    def is_implied(wait: Lagged, own: Sequence[tuple[int, int]]) -> bool:
        return any(
            lag + behind[counter].get(wait.counter, wait.lag + 1) <= wait.lag
            for counter, lag in own
            if counter != wait.counter
        )

    return tuple(
        tuple(
            wait
            for wait in own
            if (wait.counter, wait.lag) not in near[counter] or not is_implied(wait, near[counter])
        )
        for counter, own in enumerate(waits)
    )


def _executions_back(near: Sequence[Sequence[tuple[int, int]]], start: int) -> dict[int, int]:
    """How many executions back others have ended for sure when one begins, up to one (0-1 BFS)."""
    found: dict[int, int] = {}
    queue = deque((counter, lag) for counter, lag in near[start])
    while queue:
        counter, lag = queue.popleft()
        if lag > 1 or found.get(counter, 2) <= lag:
            continue
        found[counter] = lag
        for further, more in near[counter]:
            step = (further, lag + more)
            queue.append(step) if more else queue.appendleft(step)
    return found
