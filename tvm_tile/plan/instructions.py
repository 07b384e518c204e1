"""Instructions, with jumps, of each vEU of a persistent kernel with control flow.

Instructions are numbered by their place in a vEU's list. Each says which one is next; those that
decide something also say which one is next otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tvm_tile.plan.ahead_of_loops import DividedWaits
from tvm_tile.plan.execution_plan import ExecutionPlan, QueuedTask
from tvm_tile.plan.rprogram import (
    Branch,
    Invoke,
    Item,
    Lagged,
    OwnRegion,
    Repeat,
    RProgram,
    Series,
    While,
)

NO_REGION = -1


@dataclass(frozen=True, slots=True)
class RunTask:
    """Run a rTask, when those it waits for have ended, and count that.

    Attributes:
        task: itself.
        next: instruction behind it.
        region: region of the loop whose iteration ends with it, and whose next one begins if there
            are any left; or none.
        otherwise: instruction behind it when no iteration is left.
    """

    task: QueuedTask
    next: int
    region: int = NO_REGION
    otherwise: int = 0


@dataclass(frozen=True, slots=True)
class Await:
    """Wait, as one comes to a loop, for what comes before it."""

    waits: tuple[Lagged, ...]
    next: int


@dataclass(frozen=True, slots=True)
class Decide:
    """Read a condition, when those that write it have ended, and count that.

    Attributes:
        decision: its number.
        head: region that is entered each time; none where the region around has it.
        then_region: region that is entered where the condition holds.
        else_region: region that is entered where it does not; none for a loop.
        loop: head of the loop of which an iteration begins where it holds; none of a branch.
        next: instruction where the condition holds.
        otherwise: instruction where it does not.
    """

    decision: int
    head: int
    then_region: int
    else_region: int
    loop: int
    next: int
    otherwise: int


@dataclass(frozen=True, slots=True)
class Enter:
    """Begin the first of some iterations, whose region is entered."""

    region: int
    trips: int
    next: int


@dataclass(frozen=True, slots=True)
class NextTurn:
    """Begin the next iteration, if there are any left."""

    region: int
    next: int
    otherwise: int


@dataclass(frozen=True, slots=True)
class Push:
    """Begin a call, unless there is one too many within another.

    Attributes:
        region: region that is entered with the call; none where the function begins otherwise.
        behind: region that is entered when the function has ended, or none.
        next: first instruction of the function.
        otherwise: instruction behind the call, for when the function has ended.
    """

    region: int
    behind: int
    next: int
    otherwise: int


@dataclass(frozen=True, slots=True)
class Pop:
    """End a call: go on where the last one that has not ended says."""


@dataclass(frozen=True, slots=True)
class _Jump:
    """Go on elsewhere; nothing is left of it in the end."""

    next: int


@dataclass(frozen=True, slots=True)
class _Called:
    """A call of a function, of which nobody knows yet where it is, and what is behind that."""

    function: int
    behind: int
    next: int


@dataclass(frozen=True, slots=True)
class End:
    """The vEU is done."""


Instruction = RunTask | Await | Decide | Enter | NextTurn | Push | Pop | End
_Made = Instruction | _Jump | _Called


def counter_of(instruction: Instruction, program: RProgram) -> int | None:
    """The counter that an instruction of a program adds to, if it adds to one."""
    match instruction:
        case RunTask(task):
            return task.operator
        case Decide(decision):
            return len(program.accesses) + decision
    return None


def waits_of(
    instruction: Instruction, program: RProgram, waits: DividedWaits
) -> tuple[Lagged, ...]:
    """Counters that an instruction of a program waits for."""
    if isinstance(instruction, Await):
        return instruction.waits
    counter = counter_of(instruction, program)
    return () if counter is None else waits.inside[counter]


def in_order(program: RProgram, plan: ExecutionPlan) -> RProgram:
    """A program whose straight lines are in the order of a plan's steps."""
    step_of: dict[int, int] = {}
    for number, step in enumerate(plan.steps):
        for placement in step.placements:
            step_of.setdefault(placement.tasks.operator, number)

    def ordered(item: Item) -> Item:
        match item:
            case Series(operators):
                return Series(tuple(sorted(operators, key=lambda number: step_of[number])))
            case Invoke():
                return item
            case Branch(_, _, then, _, otherwise):
                sides = tuple(map(ordered, then)), tuple(map(ordered, otherwise))
                return replace(item, then=sides[0], otherwise=sides[1])
            case _:
                return replace(item, body=tuple(map(ordered, item.body)))

    items, *functions = (tuple(map(ordered, own)) for own in program.bodies)
    return replace(program, items=items, functions=tuple(functions))


def instructions(
    program: RProgram, plan: ExecutionPlan, waits: DividedWaits
) -> tuple[tuple[Instruction, ...], ...]:
    """The instructions of each vEU.

    Args:
        program: program whose rOperators the plan places.
        plan: plan in whose steps each rOperator stands once; only the order within a straight line
            counts.
        waits: waits of the program.
    """
    queues: list[dict[int, list[QueuedTask]]] = [{} for _ in range(plan.num_veus)]
    for veu, queue in enumerate(plan.queues()):
        for task in queue:
            queues[veu].setdefault(task.operator, []).append(task)
    return tuple(_linked(program, _InstructionWriter(program, own, waits)) for own in queues)


def _linked(program: RProgram, writer: _InstructionWriter) -> tuple[Instruction, ...]:
    """The instructions of a vEU: the program's, then each function's."""
    made: list[_Made] = [*writer.written(program.items, 0), End()]
    entries = []
    for own in program.functions:
        region, inner = _opened(own)
        entries.append((region, len(made)))
        made += [*writer.written(inner, len(made)), Pop()]

    def linked(one: _Made) -> _Made:
        if not isinstance(one, _Called):
            return one
        region, entry = entries[one.function]
        return Push(region, one.behind, entry, one.next)

    return _resolved(list(map(linked, made)))


def _opened(items: Sequence[Item]) -> tuple[int, Sequence[Item]]:
    """Items whose first region, if they begin with one, whoever leads there enters; and that."""
    if items and isinstance(items[0], OwnRegion):
        return items[0].region, (*items[0].body, *items[1:])
    return NO_REGION, items


class _InstructionWriter:
    """Writes a vEU's instructions.

    Args:
        program: program that the instructions are of.
        tasks: for each rOperator, those of its rTasks that the vEU runs.
        waits: waits of the program.
    """

    def __init__(
        self, program: RProgram, tasks: Mapping[int, Sequence[QueuedTask]], waits: DividedWaits
    ) -> None:
        self._tasks, self._waits = tasks, waits
        decisions = range(len(program.accesses), program.count_counters)
        self._own = (*sorted(tasks), *decisions)  # counters to which it adds

    def written(self, items: Sequence[Item], first: int) -> list[_Made]:
        """The instructions of items, which begin at place ``first`` and go on behind the last."""
        made: list[_Made] = []
        for number, item in enumerate(items):
            here = first + len(made)
            match item:
                case Series(operators):
                    own = [task for o in operators for task in self._tasks.get(o, ())]
                    made += [RunTask(task, here + place) for place, task in enumerate(own, 1)]
                case Repeat(region, trips, body):
                    made += (ahead := self._ahead(region, here))
                    here += len(ahead)
                    made += _repeated(region, trips, self.written(body, here + 1), here)
                case While(head, region, decision, body):
                    made += (ahead := self._ahead(head, here))
                    here += len(ahead)
                    inner = self.written(body, here + 1)
                    behind = here + 2 + len(inner)
                    decide = Decide(decision, head, region, NO_REGION, head, here + 1, behind)
                    made += [decide, *inner, _Jump(here)]
                case Invoke(function):
                    behind, rest = _opened(items[number + 1 :])
                    made.append(_Called(function, behind, here + 1))
                    return [*made, *self.written(rest, here + 1)]
                case OwnRegion(region, body):
                    made += [Enter(region, 1, here + 1), *self.written(body, here + 1)]
                case Branch(_, _, then, _, otherwise):
                    one = self.written(then, here + 1)
                    start = here + 2 + len(one)
                    two = self.written(otherwise, start)
                    decide = _decide(item, here + 1, start)
                    made += [decide, *one, _Jump(start + len(two)), *two]
        return made

    def _ahead(self, region: int, here: int) -> list[_Made]:
        """Waits ahead of a loop, all of which lies in a region; here, if anything."""
        waits = self._waits.of_loop(region, self._own)
        return [Await(waits, here + 1)] if waits else []


def _repeated(region: int, trips: int, body: list[_Made], here: int) -> list[_Made]:
    """A counted loop. Where its body ends with a rTask, that one also begins the next iteration."""
    start, end = here + 1, here + 1 + len(body)
    last = body[-1] if body else None
    enter = Enter(region, trips, start)
    if not isinstance(last, RunTask) or last.region != NO_REGION or _is_led_to(end, body[:-1]):
        return [enter, *body, NextTurn(region, start, end + 1)]
    return [enter, *body[:-1], replace(last, next=start, region=region, otherwise=end)]


def _is_led_to(place: int, body: Sequence[_Made]) -> bool:
    """Whether something leads to a place."""
    targets = ((getattr(one, name, -1) for name in ("next", "otherwise")) for one in body)
    return any(place in own for own in targets)


def _decide(branch: Branch, following: int, otherwise: int) -> Decide:
    """The instruction by which a vEU takes a side of ``branch``, given both sides' places."""
    head, loop = (NO_REGION if r is None else r for r in (branch.head, branch.turn_of))
    sides = branch.then_region, branch.else_region
    return Decide(branch.decision, head, *sides, loop, following, otherwise)


def _resolved(made: Sequence[_Made]) -> tuple[Instruction, ...]:
    """The instructions without jumps: who leads to one leads to where that one does."""
    kept = [number for number, one in enumerate(made) if not isinstance(one, _Jump)]
    places = {number: place for place, number in enumerate(kept)}

    def target(number: int) -> int:
        one = made[number]
        return target(one.next) if isinstance(one, _Jump) else places[number]

    def renumbered(one: _Made) -> Instruction:
        assert not isinstance(one, _Jump | _Called)
        match one:
            case End() | Pop():
                return one
            case Decide() | NextTurn() | Push():
                return replace(one, next=target(one.next), otherwise=target(one.otherwise))
            case RunTask() if one.region != NO_REGION:
                return replace(one, next=target(one.next), otherwise=target(one.otherwise))
            case RunTask() | Await() | Enter():
                return replace(one, next=target(one.next))

    return tuple(renumbered(made[number]) for number in kept)
