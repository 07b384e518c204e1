"""Run a rProgram in a random interleaving, with counters and executions as the kernel has them.

A path is drawn first: what each decision says, each time. Then any vEU may take its next event at
any time: an instruction is two, it begins and reads, and it ends, when what it wrote is there and
its counter goes up. Whoever reads a memory must find there what the last before it on the path has
written, completely; whoever writes one, that all who were to read it are done.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tvm_tile.plan.ahead_of_loops import DividedWaits, divided_waits
from tvm_tile.plan.check_plan import require
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
    counter_of,
    instructions,
    waits_of,
)
from tvm_tile.plan.path import Says, ordered
from tvm_tile.plan.rprogram import WHOLE, Lagged, RProgram


def simulate_program(
    operators: tuple[ROperator, ...],
    program: RProgram,
    plan: ExecutionPlan,
    says: Says,
    rng: random.Random,
    waited: Sequence[Sequence[Lagged]] | None = None,
) -> None:
    """Run all vEUs, each event on one picked at random.

    Args:
        operators: operators of the program.
        program: itself.
        plan: places the operators.
        says: answers of the decisions.
        rng: picks.
        waited: waits, if they are others than those of
            :func:`~tvm_tile.plan.rprogram.program_waits`.

    Raises:
        PlanError: a memory does not hold what is to be read, or is written before all have read
            it; or no vEU can go on.
    """
    tasks = [plan.tasks(operators, number) for number in range(len(operators))]
    tasks += [plan.num_veus] * len(program.decisions)
    memory = _Order(program, says, tasks)
    divided = divided_waits(program, waited)
    run = _Interleaving(program, divided, tasks, memory, says)
    veus = [_Veu(own) for own in instructions(program, plan, divided)]
    active = [veu for veu in veus if not run.is_done(veu)]
    while active:
        able = [veu for veu in active if run.may_advance(veu)]
        require(bool(able), "some vEU can go on", f"{len(active)} vEUs wait, and nobody runs")
        chosen = rng.choice(able)
        # Some run far ahead, so that those behind meet what these have left.
        for _ in range(rng.choice((1, 1, 2, 40))):
            if run.is_done(chosen) or not run.may_advance(chosen):
                break
            run.advance(chosen)
        active = [veu for veu in active if not run.is_done(veu)]


@dataclass(slots=True)
class _Veu:
    """State of a vEU on its way through the program.

    Attributes:
        code: its instructions.
        place: place of the instruction that is next, or runs.
        running: whether that has begun.
        executions: for each region, how often it was entered.
        left: for each counted loop, iterations that are left; for each other one, by its head,
            those that it has gone through.
        begun: for each counter and rTask, how often the vEU has come to it; a decision has no
            rTask.
        asked: for each decision, how often it was asked.
        returns: for each call that it is within, the region behind it, and the instruction at which
            it goes on.
        is_stopped: whether it went home, beyond a bound.
    """

    code: Sequence[Instruction]
    place: int = 0
    running: bool = False
    executions: dict[int, int] = field(default_factory=lambda: {WHOLE: 1})
    left: dict[int, int] = field(default_factory=dict)
    begun: dict[tuple[int, int | None], int] = field(default_factory=dict)
    asked: dict[int, int] = field(default_factory=dict)
    returns: list[tuple[int, int]] = field(default_factory=list)
    is_stopped: bool = False


class _Interleaving:
    def __init__(
        self,
        program: RProgram,
        waits: DividedWaits,
        tasks: Sequence[int],
        memory: _Order,
        says: Says,
    ) -> None:
        self._program, self._bounds = program, program.bounds
        self._waits, self._tasks, self._memory, self._says = waits, tasks, memory, says
        self._counters = [0] * len(tasks)

    def is_done(self, veu: _Veu) -> bool:
        """Whether a vEU has come to the end of its instructions."""
        return veu.is_stopped or isinstance(veu.code[veu.place], End)

    def may_advance(self, veu: _Veu) -> bool:
        """Whether a vEU runs an instruction, or all that the next one waits for has ended."""
        waits = waits_of(veu.code[veu.place], self._program, self._waits)
        return veu.running or all(
            self._counters[wait.counter]
            >= self._tasks[wait.counter] * (veu.executions.get(wait.region, 0) - wait.lag)
            for wait in waits
        )

    def advance(self, veu: _Veu) -> None:
        """Take the next event of a vEU."""
        instruction = veu.code[veu.place]
        counter = counter_of(instruction, self._program)
        task = instruction.task.task if isinstance(instruction, RunTask) else None
        if counter is not None and not veu.running:
            veu.begun[counter, task] = veu.begun.get((counter, task), -1) + 1
            self._memory.begin(counter, veu.begun[counter, task])
            veu.running = True
            return
        if counter is not None:
            self._memory.end(counter, veu.begun[counter, task])
            self._counters[counter] += 1
            veu.running = False
        self._go_on(veu, instruction)

    def _go_on(self, veu: _Veu, instruction: Instruction) -> None:
        """Move a vEU to the instruction behind the one that has ended."""
        match instruction:
            case RunTask(_, _, region) if region != NO_REGION:
                _go_around(veu, region, instruction)
            case RunTask() | Await():
                veu.place = instruction.next
            case Enter(region, trips):
                veu.left[region] = trips
                _enter(veu, region)
                veu.place = instruction.next
            case NextTurn(region):
                _go_around(veu, region, instruction)
            case Push():
                veu.returns.append((instruction.behind, instruction.otherwise))
                veu.is_stopped = len(veu.returns) > self._bounds.depth
                _enter(veu, instruction.region)
                veu.place = instruction.next
            case Pop():
                behind, veu.place = veu.returns.pop()
                _enter(veu, behind)
            case Decide(decision, head, then_region, else_region, loop):
                veu.asked[decision] = veu.asked.get(decision, -1) + 1
                holds = self._says(decision, veu.asked[decision])
                if loop != NO_REGION:
                    veu.left[loop] = veu.left.get(loop, 0) + 1 if holds else 0
                    veu.is_stopped = veu.left[loop] > self._bounds.iterations
                _enter(veu, head)
                _enter(veu, then_region if holds else else_region)
                veu.place = instruction.next if holds else instruction.otherwise


def _go_around(veu: _Veu, region: int, instruction: RunTask | NextTurn) -> None:
    """Count an iteration of a loop, and begin the next one or leave."""
    veu.left[region] -= 1
    if veu.left[region]:
        _enter(veu, region)
    veu.place = instruction.next if veu.left[region] else instruction.otherwise


def _enter(veu: _Veu, region: int) -> None:
    """Count that a vEU enters a region, if it is one."""
    if region != NO_REGION:
        veu.executions[region] = veu.executions.get(region, 0) + 1


class _Order:
    """Keeps which executions on the path have ended, and which must have before others begin."""

    def __init__(self, program: RProgram, says: Says, tasks: Sequence[int]) -> None:
        self._left: list[int] = []  # of each execution, rTasks that have not ended
        self._before: list[tuple[int, ...]] = []
        # Of each counter, where on the path its executions are.
        self._places: list[list[int]] = [[] for _ in tasks]
        for place, (own, needed) in enumerate(ordered(program, says)):
            self._left.append(tasks[own.counter])
            self._before.append(needed)
            self._places[own.counter].append(place)

    def begin(self, counter: int, execution: int) -> None:
        """Check that everything that an execution depends on has ended."""
        places = self._places[counter]
        require(execution < len(places), "only what is on the path runs", f"{counter}")
        for before in self._before[places[execution]]:
            current = f"number {counter}, execution {execution}, runs before place {before} ended"
            require(not self._left[before], "who touches the same memory comes in order", current)

    def end(self, counter: int, execution: int) -> None:
        """Note that a rTask of an execution has ended."""
        self._left[self._places[counter][execution]] -= 1
