"""Programs with loops and branches: what waits for what, and that each wait is needed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rprograms import RandomProgram, placed, random_program
from simulated_program import simulate_program

from tvm_tile.errors import PlanError
from tvm_tile.plan.ahead_of_loops import divided_waits
from tvm_tile.plan.instructions import Await, Decide, End, Enter, NextTurn, RunTask, instructions
from tvm_tile.plan.path import check_path, check_program, path
from tvm_tile.plan.rprogram import (
    Bounds,
    Branch,
    Footprint,
    Lagged,
    Repeat,
    RProgram,
    Series,
    While,
    program_waits,
)


def _access(reads: Sequence[int], writes: Sequence[int]) -> Footprint:
    return Footprint(frozenset(reads), frozenset(writes))


def test_iterations_hand_on_what_they_write() -> None:
    """Two iterations a turn, from memory 0 to 1 and back."""
    accesses = (_access([], [0]), _access([0], [1]), _access([1], [0]), _access([0], [2]))
    program = RProgram((Series((0,)), Repeat(1, 5, (Series((1, 2)),)), Series((3,))), accesses)
    assert program_waits(program) == (
        (),
        (Lagged(0, 0, 0), Lagged(2, 1, 1)),
        (Lagged(0, 0, 0), Lagged(1, 1, 0)),
        (Lagged(0, 0, 0), Lagged(2, 1, 0)),
    )


def test_what_is_changed_in_place_waits_for_its_last_change() -> None:
    program = RProgram((Repeat(1, 4, (Series((0,)),)),), (_access([0], [0]),))
    assert program_waits(program) == ((Lagged(0, 1, 1),),)


def test_a_condition_is_not_written_before_all_have_read_it() -> None:
    accesses = (_access([], [0]), _access([1], [0]))
    program = RProgram((Series((0,)), While(1, 2, 0, (Series((1,)),))), accesses, (0,))
    decided = 2
    assert Lagged(decided, 1, 0) in program_waits(program)[1]
    assert set(program_waits(program)[decided]) == {Lagged(0, 0, 0), Lagged(1, 2, 0)}


def test_sides_of_a_branch_are_both_waited_for() -> None:
    accesses = (_access([], [0]), _access([], [1]), _access([], [1]), _access([1], [2]))
    sides = Branch(0, 1, (Series((1,)),), 2, (Series((2,)),))
    program = RProgram((Series((0,)), sides, Series((3,))), accesses, (0,))
    assert set(program_waits(program)[3]) == {Lagged(1, 1, 0), Lagged(2, 2, 0)}


def test_jumps_lead_back_out_and_over() -> None:
    accesses = tuple(_access([], [n]) for n in range(3))
    body = (Series((0,)), Branch(1, 3, (Series((1,)),), 4, ()))
    program = RProgram((While(1, 2, 0, body), Repeat(5, 2, (Series((2,)),))), accesses, (0, 1))
    _, plan = placed(program, (1, 1, 1), 1, random.Random(0))
    (code,) = instructions(program, plan, divided_waits(program))
    kinds = [type(one) for one in code]
    assert kinds == [Decide, RunTask, Decide, RunTask, Enter, RunTask, End]
    loop, _, branch, inside, _, last, _ = code
    assert isinstance(loop, Decide)
    assert (loop.next, loop.otherwise) == (1, 4)
    assert isinstance(branch, Decide)
    assert (branch.next, branch.otherwise) == (3, 0)
    assert isinstance(inside, RunTask)
    assert inside.next == 0
    assert isinstance(last, RunTask)
    assert (last.next, last.region, last.otherwise) == (5, 5, 6)


def test_what_comes_before_a_loop_is_waited_for_once() -> None:
    """The second loop lies in the first; what it reads of ahead of both is ready ahead of both."""
    accesses = (_access([], [0]), _access([], [1]), _access([0, 1], [2]))
    inner = Repeat(2, 3, (Series((2,)),))
    program = RProgram((Series((0,)), Repeat(1, 3, (Series((1,)), inner))), accesses)
    _, plan = placed(program, (1, 1, 1), 1, random.Random(0))
    (code,) = instructions(program, plan, waits := divided_waits(program))
    assert [type(one) for one in code] == [
        *(RunTask, Await, Enter, RunTask, Await, Enter, RunTask),
        *(NextTurn, End),
    ]
    assert [one.waits for one in code if isinstance(one, Await)] == [
        (Lagged(0, 0, 0),),
        (Lagged(1, 1, 0),),
    ]
    assert waits.inside == ((), (Lagged(2, 2, 0),), ())


def test_paths_follow_what_decisions_say() -> None:
    body = (Series((0,)), Branch(1, 3, (Series((1,)),), 4, (Series((2,)),)))
    items = (While(1, 2, 0, body), Repeat(5, 2, (Series((3,)),)))
    program = RProgram(items, (_access([], [0]),) * 4, (0, 0))
    said = {0: [True, True, False], 1: [True, False]}
    walked = [step.counter for step in path(program, lambda which, turn: said[which][turn])]
    assert walked == [4, 0, 5, 1, 4, 0, 5, 2, 4, 3, 3]


def test_a_path_ends_behind_the_most_iterations_of_a_loop() -> None:
    """Two iterations a turn, each of which counts; a loop that is entered again begins anew."""
    second = Branch(1, 3, (Series((1,)),), 4, (), turn_of=1)
    loop = Repeat(5, 2, (While(1, 2, 0, (Series((0,)), second)),))
    program = RProgram((loop, Series((2,))), (_access([], [0]),) * 3, (0, 0), Bounds(3))
    said = {0: [True, True, False] * 2, 1: [True, False] * 2}

    def walked(program: RProgram) -> list[int]:
        return [step.counter for step in path(program, lambda which, turn: said[which][turn])]

    once = [3, 0, 4, 1, 3, 0, 4, 3]
    assert walked(program) == [*once, *once, 2]
    assert walked(replace(program, bounds=Bounds(2))) == once[:5]
    assert walked(replace(program, bounds=Bounds(1))) == once[:3]


@pytest.mark.parametrize("first", range(0, 500, 125))
def test_random_programs_run_in_any_order(first: int) -> None:
    for seed in range(first, first + 125):
        rng = random.Random(seed)
        made = random_program(rng)
        check_path(made.program, made.says)
        check_program(made.program)
        simulate_program(made.operators, made.program, made.plan, made.says, rng)


@pytest.mark.parametrize("first", range(0, 500, 100))
def test_whatever_lacks_a_wait_is_found(first: int) -> None:
    """Where a path is no longer in order without a wait, some order of events shows that, unless
    the order in which vEUs run their rTasks hides it."""
    found = lacking = 0
    for seed in range(first, first + 100):
        made = random_program(random.Random(seed))
        waits = program_waits(made.program)
        pairs = [(counter, wait) for counter, own in enumerate(waits) for wait in own]
        for counter, wait in random.Random(seed).sample(pairs, k=min(3, len(pairs))):
            without = [*waits]
            without[counter] = tuple(other for other in waits[counter] if other != wait)
            if _is_refused(made, without):
                lacking += 1
                found += _goes_wrong(made, without)
    assert lacking > 20
    assert found > lacking // 2


def _is_refused(made: RandomProgram, waits: Sequence[Sequence[Lagged]]) -> bool:
    try:
        check_path(made.program, made.says, waits)
    except PlanError:
        return True
    return False


def _goes_wrong(made: RandomProgram, waits: Sequence[Sequence[Lagged]]) -> bool:
    rng = random.Random(0)
    for _ in range(40):
        try:
            simulate_program(made.operators, made.program, made.plan, made.says, rng, waits)
        except PlanError:
            return True
    return False
