"""The instructions of a persistent kernel with control flow as the table that it reads.

A record is one instruction: 32-bit words, of which the first four are those of
:mod:`tvm_tile.plan.records`, and the next ones are named here. What the kernel does with them is in
:mod:`tvm_tile.kernel.looping`.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from tvm_tile.plan.records import (
    BLOCK,
    NOTHING,
    RESIDENT_PLACE,
    SIGNAL,
    RecordTable,
    TaskKind,
    argument_words,
    record_width,
    resident_places,
    table_of,
)
from tvm_tile.plan.rprogram import Lagged, RProgram

# The body may also be one of the kinds below, or NOTHING of a record that only waits.
NEXT = 4  # record that is next
OTHERWISE = 5  # record that is next where a condition does not hold, or no iteration is left
REGIONS = 6  # those that are entered: always, where it holds, where it does not; of a call, with it
# and behind it; NOTHING for none
TRIPS = 9  # iterations; of what decides, the most of a loop; of a call, the most within another
# Of what decides, whose iteration begins where a condition holds; of all else, whose iteration ends
# with it, and whose next one begins if any is left; NOTHING for none.
LOOP = 10
WAIT_COUNT = 11  # counters that it waits for
WAITS = 12  # each: which one, rTasks that add to it in an execution, region, lag
WAIT_WORDS = 4
MOST_WAITS = 8
ARGUMENTS = WAITS + WAIT_WORDS * MOST_WAITS  # each: which tensor, and how many units from its start

DECIDE = -2
ENTER = -3
END = -4
PUSH = -5
POP = -6
"""Kinds of records that run no body."""

COUNTER_WORDS = 32
"""Words from a counter to the next: a line of the second-level cache, so that those who wait for
one are not in the way of those who add to another."""


def make_program_table(
    operators: tuple[ROperator, ...],
    program: RProgram,
    plan: ExecutionPlan,
    tasks: Sequence[TaskKind],
    conditions: Sequence[tuple[int, int]],
    counter: int = 0,
) -> RecordTable:
    """The records of a program.

    Args:
        operators: operators of the program.
        program: itself.
        plan: their plan.
        tasks: bodies and arguments of each operator.
        conditions: for each decision, the condition that it reads, as (tensor, bytes from its
            start).
        counter: the first that the kernel may use.

    Returns:
        Records, and of each vEU where it begins.

    Raises:
        BuildError: an argument begins where no word can say.
    """
    writer = _Records(operators, program, plan, tasks, conditions, counter)
    return writer.table()


def counter_words(program: RProgram) -> int:
    """How many words the counters of a program take."""
    return program.count_counters * COUNTER_WORDS


class _Records:
    def __init__(
        self,
        operators: tuple[ROperator, ...],
        program: RProgram,
        plan: ExecutionPlan,
        tasks: Sequence[TaskKind],
        conditions: Sequence[tuple[int, int]],
        counter: int,
    ) -> None:
        self._operators, self._program, self._plan = operators, program, plan
        self._tasks, self._conditions, self._counter = tasks, conditions, counter
        self._waits = divided_waits(program)
        self._rows: list[list[int]] = []
        self._loads, self._places = resident_places(operators, plan)

    def table(self) -> RecordTable:
        """All records, one vEU's behind another's."""
        starts = []
        for veu, code in enumerate(instructions(self._program, self._plan, self._waits)):
            starts.append(len(self._rows))
            self._load(veu)
            self._write(code)
        return table_of(self._rows, record_width(ARGUMENTS, self._tasks), starts)

    def _load(self, veu: int) -> None:
        """Records that fill resident parts; who reads them is behind them."""
        for part in self._loads.get(veu, ()):
            task = self._tasks[part.operator]
            assert task.load is not None
            row = self._row(task.load, len(self._rows) + 1, (), task.load_arguments)
            row[BLOCK] = part.task * self._plan.copies[part.operator]
            row[RESIDENT_PLACE] = part.offset
            self._rows.append(row)

    def _write(self, code: Sequence[Instruction]) -> None:
        """The records of a vEU's instructions, each behind those that wait for it if need be."""
        batches = [_batches(waits_of(one, self._program, self._waits)) for one in code]
        first = [len(self._rows)]
        for own in batches[:-1]:
            first.append(first[-1] + len(own))
        for instruction, own in zip(code, batches, strict=True):
            for waited in own[:-1]:
                self._rows.append(self._row(NOTHING, len(self._rows) + 1, waited))
            self._rows.append(self._instruction(instruction, own[-1], first))

    def _instruction(
        self, instruction: Instruction, waited: Sequence[Lagged], first: Sequence[int]
    ) -> list[int]:
        """The record of an instruction; ``first`` are those of all of the vEU's."""
        match instruction:
            case RunTask(task, following, region, otherwise):
                kind, copies = self._tasks[task.operator], self._plan.copies[task.operator]
                row = self._row(kind.body, first[following], waited, kind.arguments)
                weights = self._operators[task.operator].weights
                row[BLOCK], row[SIGNAL] = task.task * copies, self._word(task.operator)
                row[RESIDENT_PLACE] = self._places.get((weights, task.task), 0)
                if region != NO_REGION:
                    row[LOOP], row[OTHERWISE] = region, first[otherwise]
            case Await(_, following):
                row = self._row(NOTHING, first[following], waited)
            case Decide(decision, head, then_region, else_region, loop, following, otherwise):
                place = (self._conditions[decision],)
                row = self._row(DECIDE, first[following], waited, place)
                row[SIGNAL] = self._word(len(self._operators) + decision)
                row[OTHERWISE] = first[otherwise]
                row[REGIONS : REGIONS + 3] = head, then_region, else_region
                row[TRIPS], row[LOOP] = self._program.bounds.iterations, loop
            case Enter(region, trips, following):
                row = self._row(ENTER, first[following], waited)
                row[REGIONS], row[TRIPS] = region, trips
            case NextTurn(region, following, otherwise):
                row = self._row(NOTHING, first[following], waited)
                row[LOOP], row[OTHERWISE] = region, first[otherwise]
            case Push(region, behind, following, otherwise):
                row = self._row(PUSH, first[following], waited)
                row[REGIONS : REGIONS + 2] = region, behind
                row[OTHERWISE], row[TRIPS] = first[otherwise], self._program.bounds.depth
            case End():
                row = self._row(END, len(self._rows), waited)
            case Pop():
                row = self._row(POP, len(self._rows), waited)
        return row

    def _row(
        self,
        body: int,
        following: int,
        waited: Sequence[Lagged],
        arguments: Sequence[tuple[int, int]] = (),
    ) -> list[int]:
        """A record as numbers: its body, the records that follow, waits and arguments."""
        row = [body, 0, NOTHING, 0, following, following, *[NO_REGION] * 3, 0, NO_REGION]
        row.append(len(waited))
        for wait in waited:
            row += [self._word(wait.counter), self._count(wait.counter), wait.region, wait.lag]
        row += [0] * (ARGUMENTS - len(row))
        return [*row, *argument_words(arguments)]

    def _word(self, counter: int) -> int:
        """Number of a counter among the kernel's."""
        return self._counter + counter * COUNTER_WORDS

    def _count(self, counter: int) -> int:
        """How many add to a counter in an execution."""
        if counter < len(self._operators):
            return self._plan.tasks(self._operators, counter)
        return self._plan.num_veus


def _batches(waited: Sequence[Lagged]) -> list[Sequence[Lagged]]:
    """Waits, as many as a record holds; at least one batch, maybe of none."""
    starts = range(0, max(1, len(waited)), MOST_WAITS)
    return [waited[start : start + MOST_WAITS] for start in starts]
