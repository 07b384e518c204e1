"""What each vEU of a persistent kernel with control flow does: instructions with jumps.

Instructions are numbered by their place in a vEU's list. Each says which one is next; those that
decide something also say which one is next otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tvm_tile.plan.execution_plan import ExecutionPlan, QueuedTask
from tvm_tile.plan.rprogram import Branch, Item, Repeat, RProgram, Run, While

NO_REGION = -1


@dataclass(frozen=True, slots=True)
class RunTask:
    """Run a rTask, when those it waits for have ended, and count that."""

    task: QueuedTask
    next: int


@dataclass(frozen=True, slots=True)
class Decide:
    """Read a condition, when those that write it have ended, and count that.

    Attributes:
        decision: its number.
        head: region that is entered each time; none of a branch.
        then_region: that is entered where the condition holds.
        else_region: that is entered where it does not; none of a loop.
        loop: head of the loop of which an iteration begins where it holds; none of a branch.
        next: where it holds.
        otherwise: where it does not.
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
class Again:
    """Begin the next iteration, if there are any left."""

    region: int
    next: int
    otherwise: int


@dataclass(frozen=True, slots=True)
class _Jump:
    """Go on elsewhere; nothing is left of it in the end."""

    next: int


@dataclass(frozen=True, slots=True)
class End:
    """The vEU is done."""


Instruction = RunTask | Decide | Enter | Again | End


def in_order(program: RProgram, plan: ExecutionPlan) -> RProgram:
    """A program whose straight lines are in the order of a plan's steps."""
    step_of: dict[int, int] = {}
    for number, step in enumerate(plan.steps):
        for placement in step.placements:
            step_of.setdefault(placement.tasks.operator, number)

    def ordered(item: Item) -> Item:
        match item:
            case Run(operators):
                return Run(tuple(sorted(operators, key=lambda number: step_of[number])))
            case Branch(_, _, then, _, otherwise, _):
                sides = tuple(map(ordered, then)), tuple(map(ordered, otherwise))
                return replace(item, then=sides[0], otherwise=sides[1])
            case _:
                return replace(item, body=tuple(map(ordered, item.body)))

    return replace(program, items=tuple(map(ordered, program.items)))


def instructions(program: RProgram, plan: ExecutionPlan) -> tuple[tuple[Instruction, ...], ...]:
    """The instructions of each vEU.

    Args:
        program: whose rOperators the plan places.
        plan: in whose steps each rOperator stands once; of its own order only that within a
            straight line counts.
    """
    queues: list[dict[int, list[QueuedTask]]] = [{} for _ in range(plan.num_veus)]
    for veu, queue in enumerate(plan.queues()):
        for task in queue:
            queues[veu].setdefault(task.operator, []).append(task)
    return tuple(_resolved([*_written(program.items, own, 0), End()]) for own in queues)


def _written(
    items: Sequence[Item], tasks: dict[int, list[QueuedTask]], first: int
) -> list[Instruction | _Jump]:
    """The instructions of items, which begin at place ``first`` and go on behind their last."""
    made: list[Instruction | _Jump] = []
    for item in items:
        here = first + len(made)
        match item:
            case Run(operators):
                own = [task for operator in operators for task in tasks.get(operator, ())]
                made += [RunTask(task, here + number + 1) for number, task in enumerate(own)]
            case Repeat(region, trips, body):
                inner = _written(body, tasks, here + 1)
                end = here + 1 + len(inner)
                made += [Enter(region, trips, here + 1), *inner, Again(region, here + 1, end + 1)]
            case While(head, region, decision, body):
                inner = _written(body, tasks, here + 1)
                behind = here + 2 + len(inner)
                decide = Decide(decision, head, region, NO_REGION, head, here + 1, behind)
                made += [decide, *inner, _Jump(here)]
            case Branch(decision, then_region, then, else_region, otherwise, turn_of):
                one = _written(then, tasks, here + 1)
                start = here + 2 + len(one)
                two = _written(otherwise, tasks, start)
                loop = NO_REGION if turn_of is None else turn_of
                sides = then_region, else_region
                decide = Decide(decision, NO_REGION, *sides, loop, here + 1, start)
                made += [decide, *one, _Jump(start + len(two)), *two]
    return made


def _resolved(made: Sequence[Instruction | _Jump]) -> tuple[Instruction, ...]:
    """The instructions without jumps: who leads to one leads to where that one does."""
    kept = [number for number, one in enumerate(made) if not isinstance(one, _Jump)]
    places = {number: place for place, number in enumerate(kept)}

    def target(number: int) -> int:
        one = made[number]
        return target(one.next) if isinstance(one, _Jump) else places[number]

    def renumbered(one: Instruction | _Jump) -> Instruction:
        assert not isinstance(one, _Jump)
        match one:
            case End():
                return one
            case Decide() | Again():
                return replace(one, next=target(one.next), otherwise=target(one.otherwise))
            case RunTask() | Enter():
                return replace(one, next=target(one.next))

    return tuple(renumbered(made[number]) for number in kept)
