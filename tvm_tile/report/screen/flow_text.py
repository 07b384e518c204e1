"""Control flow inside a persistent kernel in words: its program, and what a vEU does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm_tile.plan.ahead_of_loops import divided_waits
from tvm_tile.plan.execution_plan import ExecutionPlan, ROperator
from tvm_tile.plan.instructions import (
    NO_REGION,
    Await,
    Decide,
    End,
    Enter,
    Instruction,
    NextTurn,
    Pop,
    Push,
    RunTask,
    instructions,
    waits_of,
)
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

_INDENT = "    "


@dataclass(frozen=True, slots=True)
class Told:
    """An instruction in words.

    Attributes:
        operator: number of the rOperator whose rTask it runs; None of another instruction.
        does: words for its work.
        waits: words for each of its waits before that; "last time" is in the execution before this
            one of the region that it lies in.
        next: place of what is behind it; None where it has none of its own.
        otherwise: place of what is behind it where a condition does not hold, no iteration is left,
            or a call has ended; None where it goes on in one way.
    """

    operator: int | None
    does: str
    waits: tuple[str, ...]
    next: int | None
    otherwise: int | None


def summary(program: RProgram) -> str:
    """How many loops, branches and functions a program has, and how far it goes at most."""
    iterations, depth = program.bounds.iterations, program.bounds.depth
    counts = Counter(kind for own in program.bodies for kind in _kinds(own, iterations))
    several = (
        _several(counts["counted"], "loop of a known count", "loops of known counts"),
        _several(counts["bounded"], "loop that data end", "loops that data end")
        + " within a known count",
        _several(counts["while"], "loop that data end", "loops that data end")
        + f", {iterations} iterations at most",
        _several(counts["branch"], "branch", "branches"),
        _several(len(program.functions), "function that calls itself", "recursive functions")
        + f", {depth} calls at most within one another",
    )
    return "; ".join(text for text in several if not text.startswith("0 ")) or "a straight line"


def outline(operators: Sequence[ROperator], program: RProgram) -> str:
    """A program as indented lines: a rOperator each, and the loops and branches around it.

    Args:
        operators: operators of the program.
        program: itself. Two iterations of a loop that hands values on are written out: one reads
            where the other one writes.
    """
    names = names_of(operators, program)
    lines = list(_lines(program.items, names))
    for number, own in enumerate(program.functions):
        lines += [f"function {number}:", *_indented(own, names)]
    return "\n".join(lines)


def listing(
    operators: tuple[ROperator, ...], program: RProgram, plan: ExecutionPlan, veu: int
) -> str:
    """The instructions of a vEU as numbered lines, with what they wait for and where they lead.

    Args:
        operators: operators of the program.
        program: itself.
        plan: places the operators.
        veu: number of the vEU.
    """
    lines = []
    for place, own in enumerate(told(operators, program, plan, veu)):
        leads = "" if own.next is None else f" -> {own.next}"
        otherwise = "" if own.otherwise is None else f" | {own.otherwise}"
        lines.append(f"{place:3}  {own.does}{leads}{otherwise}")
        lines += (f"       waits for {wait}" for wait in own.waits)
    return "\n".join(lines)


def told(
    operators: tuple[ROperator, ...], program: RProgram, plan: ExecutionPlan, veu: int
) -> tuple[Told, ...]:
    """The instructions of a vEU in words; the arguments are those of :func:`listing`."""
    waits = divided_waits(program)
    code = instructions(program, plan, waits)[veu]
    names = names_of(operators, program)
    tasks = (_several(plan.tasks(operators, number), "rTask") for number in range(len(operators)))
    adds = [f"{several} of {name}" for several, name in zip(tasks, names, strict=False)]
    adds += [f"{name} of all vEUs" for name in names[len(operators) :]]

    def said(wait: Lagged) -> str:
        return adds[wait.counter] + (", last time" if wait.lag else "")

    return tuple(
        Told(
            one.task.operator if isinstance(one, RunTask) else None,
            _does(one, names),
            tuple(map(said, waits_of(one, program, waits))),
            getattr(one, "next", None),
            _otherwise(one),
        )
        for one in code
    )


def names_of(operators: Sequence[ROperator], program: RProgram) -> tuple[str, ...]:
    """Name each rOperator and each decision, no two alike."""
    counts, seen = Counter(operator.name for operator in operators), Counter[str]()
    names = []
    for operator in operators:
        seen[operator.name] += 1
        is_alone = counts[operator.name] == 1
        names.append(operator.name if is_alone else f"{operator.name} #{seen[operator.name]}")
    return (*names, *(f"decision {number}" for number in range(len(program.decisions))))


def _does(instruction: Instruction, names: Sequence[str]) -> str:
    """Words for what an instruction does."""
    match instruction:
        case RunTask(task, _, region):
            again = "" if region == NO_REGION else ", then the next iteration"
            return f"rTask {task.task} of {names[task.operator]}{again}"
        case Await():
            return "come to a loop"
        case Decide(decision, loop=loop):
            again = "" if loop == NO_REGION else ", an iteration if it holds"
            return f"decision {decision}{again}"
        case Enter(_, trips):
            return f"begin {_several(trips, 'turn')}"
        case NextTurn():
            return "the next iteration"
        case Push():
            return "call"
        case Pop():
            return "return"
        case End():
            return "end"


def _otherwise(instruction: Instruction) -> int | None:
    """The instruction that follows otherwise; ``None`` where there is one only."""
    match instruction:
        case RunTask(_, _, region, otherwise) if region != NO_REGION:
            return otherwise
        case Decide() | NextTurn() | Push():
            return instruction.otherwise
    return None


def _kinds(items: Sequence[Item], most: int) -> Iterator[str]:
    """Numbers of loops and branches, by kind; the question for another iteration is none."""
    for item in items:
        match item:
            case Repeat(_, _, body):
                yield from ("counted", *_kinds(body, most))
            case While(_, _, _, body, known):
                is_bounded = known is not None and known <= most
                yield from ("bounded" if is_bounded else "while", *_kinds(body, most))
            case OwnRegion(_, body):
                yield from _kinds(body, most)
            case Branch(_, _, then, _, otherwise, turn_of):
                yield from ("branch",) if turn_of is None else ()
                yield from (*_kinds(then, most), *_kinds(otherwise, most))


def _lines(items: Sequence[Item], names: Sequence[str]) -> Iterator[str]:
    """Lines of a program's items."""
    for item in items:
        match item:
            case Series(operators):
                yield from (names[number] for number in operators)
            case Repeat(_, trips, body):
                yield from (f"{_several(trips, 'turn')}:", *_indented(body, names))
            case While(_, _, decision, body, known):
                most = "" if known is None else f", {known} times at most"
                yield from (f"while decision {decision} holds{most}:", *_indented(body, names))
            case Branch(decision, _, then, _, otherwise, turn_of):
                again = "" if turn_of is None else ", another iteration"
                yield from (f"if decision {decision} holds{again}:", *_indented(then, names))
                yield from ("else:", *_indented(otherwise, names)) if otherwise else ()
            case OwnRegion(_, body):
                yield from _lines(body, names)
            case Invoke(function):
                yield f"call function {function}"


def _indented(items: Sequence[Item], names: Sequence[str]) -> Iterator[str]:
    """Lines of a program's items, one level deeper."""
    lines = list(_lines(items, names)) or ["nothing"]
    return (_INDENT + line for line in lines)


def _several(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"
