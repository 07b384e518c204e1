"""A program of loops and branches as a straight line, and the plan of that line as the program's.

What stays in shared memory pays from the second iteration on, and iterations run beside one another
where they depend on less than all of what came before: the layers of a recurrence, say, each on
vEUs of its own, one iteration apart (a software pipeline; Lam, PLDI 1988). The planner of straight
lines finds both, if it sees some iterations. Each rOperator then runs where its copy in the middle
one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tvm_tile.plan.execution_plan import ExecutionPlan, Placement, PlanStep, RTasks
from tvm_tile.plan.rprogram import (
    WHOLE,
    Branch,
    Invoke,
    Item,
    OwnRegion,
    Repeat,
    RProgram,
    Series,
    While,
    inner,
)

_ITERATIONS = (16, 8, 4, 2)  # that are tried, the most first
_MOST_OPERATORS = 320
_TAKEN = 0.5  # of branches


@dataclass(frozen=True, slots=True)
class Unrolled:
    """A straight line.

    Attributes:
        operators: numbers of the program's rOperators, each as often as it is written out.
        kept: for each rOperator, the position of the copy that stands for all of them.
        iterations: iterations of each loop that are written out.
    """

    operators: tuple[int, ...]
    kept: tuple[int, ...]
    iterations: int


def unroll(program: RProgram) -> Unrolled:
    """Some iterations of each loop, one behind another, and both sides of each branch."""
    items = _with_functions(program)
    lines = ((iterations, _line(items, iterations)) for iterations in _ITERATIONS)
    fitting = (one for one in lines if len(one[1]) <= _MOST_OPERATORS)
    iterations, line = next(fitting, (1, _line(items, 1)))
    positions: dict[int, list[int]] = {}
    for position, number in enumerate(line):
        positions.setdefault(number, []).append(position)
    kept = tuple(own[len(own) // 2] for _, own in sorted(positions.items()))
    return Unrolled(tuple(line), kept, iterations)


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds of what a program does.

    Attributes:
        operators: seconds of each rOperator.
        decision: seconds of each decision.
        turn: seconds of an iteration of a model's loop, beside its work; a loop of a program has
            two in each of its own, as its values alternate between two memories.
    """

    operators: Sequence[float]
    decision: float = 0.0
    turn: float = 0.0


def seconds_of(program: RProgram, unrolled: Unrolled, costs: Durations) -> float:
    """Seconds of a run of a program, one thing after another.

    A branch is taken one time in two, as far as anybody knows.

    Args:
        program: program; a loop of unknown count has as many iterations as are written out.
        unrolled: its straight line.
        costs: seconds of its parts.
    """
    items = _with_functions(program)
    return sum(_seconds(item, unrolled.iterations, costs) for item in items)


def fold(plan: ExecutionPlan, unrolled: Unrolled) -> ExecutionPlan:
    """The plan of a program, of that of its straight line."""
    numbers = {position: number for number, position in enumerate(unrolled.kept)}
    steps = []
    for step in plan.steps:
        own = tuple(
            _renumbered(placement, numbers[placement.tasks.operator])
            for placement in step.placements
            if placement.tasks.operator in numbers
        )
        steps += [PlanStep(own)] if own else []
    return replace(
        plan,
        chosen=tuple(plan.chosen[position] for position in unrolled.kept),
        copies=tuple(plan.copies[position] for position in unrolled.kept),
        residents=tuple(plan.residents[position] for position in unrolled.kept),
        steps=tuple(steps),
        ahead=(),
    )


def _renumbered(placement: Placement, operator: int) -> Placement:
    """The placement with its rTasks as another operator's."""
    tasks = placement.tasks
    return replace(placement, tasks=RTasks(operator, tasks.start, tasks.stop))


def _with_functions(program: RProgram) -> tuple[Item, ...]:
    """The items of a program, and its functions as loops, for nobody knows how often they run."""
    calls = (Repeat(WHOLE, _ITERATIONS[0], own) for own in program.functions)
    return (*program.items, *calls)


def _line(items: Sequence[Item], iterations: int) -> list[int]:
    """Numbers of the operators of unrolled items, in order."""
    line: list[int] = []
    for item in items:
        match item:
            case Series(operators):
                line += operators
            case Repeat(_, trips, body):
                line += _line(body, iterations) * min(trips, iterations)
            case While(_, _, _, body):
                line += _line(body, iterations) * iterations
            case _:
                for body in inner(item):
                    line += _line(body, iterations)
    return line


def _seconds(item: Item, iterations: int, costs: Durations) -> float:
    """Seconds of an item, with its loops unrolled that often."""

    def total(items: Sequence[Item]) -> float:
        return sum(_seconds(one, iterations, costs) for one in items)

    match item:
        case Series(numbers):
            return sum(costs.operators[number] for number in numbers)
        case Branch(_, _, then, _, otherwise, turn_of):
            # One that is but every second iteration of a loop is taken as often as that goes on.
            taken = 1.0 if turn_of is not None else _TAKEN
            return costs.decision + taken * total(then) + (1 - taken) * total(otherwise)
        case Repeat(_, trips, body):
            return trips * (2 * costs.turn + total(body))
        case While(_, _, _, body):
            return iterations * (2 * costs.turn + costs.decision + total(body))
        case OwnRegion(_, body):
            return total(body)
        case Invoke():
            return 0.0
