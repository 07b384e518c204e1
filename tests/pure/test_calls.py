"""Programs whose functions call themselves: where they are cut, what waits, how they go."""

from __future__ import annotations

import random
from dataclasses import replace

from rprograms import placed

from tvm_tile.plan.ahead_of_loops import divided_waits
from tvm_tile.plan.calls import cut_at_calls
from tvm_tile.plan.instructions import NO_REGION, Decide, End, Pop, Push, RunTask, instructions
from tvm_tile.plan.path import check_program, path
from tvm_tile.plan.rprogram import (
    Bounds,
    Branch,
    Footprint,
    Invoke,
    Lagged,
    OwnRegion,
    RProgram,
    Series,
    program_waits,
)


def _access(reads: tuple[int, ...], *writes: int) -> Footprint:
    return Footprint(frozenset(reads), frozenset(writes))


def tree() -> RProgram:
    """A tree's sum: 0 makes the root; 1 a node's condition; 2 a leaf; 3 hands the first child on,
    4 keeps its sum and hands the second on, 5 adds."""
    accesses = (
        _access((), 0),
        _access((0,), 1),
        _access((0,), 2),
        _access((1,), 0),
        _access((2,), 3, 0),
        _access((2, 3), 2),
    )
    join = Series((3,)), Invoke(0), Series((4,)), Invoke(0), Series((5,))
    body = Series((1,)), Branch(0, 1, (Series((2,)),), 2, join)
    return cut_at_calls(RProgram((Series((0,)), Invoke(0)), accesses, (1,), Bounds(), (body,)))


def test_regions_are_cut_at_calls() -> None:
    program = tree()
    assert program.items == (Series((0,)), Invoke(0))
    first, branch = program.functions[0]
    assert isinstance(first, OwnRegion)
    assert first.body == (Series((1,)),)
    assert isinstance(branch, Branch)
    assert branch.head is not None
    kinds = [type(item) for item in branch.otherwise]
    assert kinds == [Series, Invoke, OwnRegion, Invoke, OwnRegion]
    assert branch.then == (Series((2,)),)


def test_programs_without_calls_stay_as_they_are() -> None:
    program = RProgram((Series((0,)),), (_access((), 0),))
    assert cut_at_calls(program) is program


def test_others_are_waited_for_wherever_they_are_written() -> None:
    """The sum is written again by whichever call comes next, when the one before has read it."""
    program = tree()
    check_program(program)
    waits = program_waits(program)
    regions = {wait.counter: wait.region for own in waits for wait in own}
    assert set(waits[2]) >= {Lagged(5, regions[5], 0), Lagged(4, regions[4], 0)}
    behind = [(counter, wait) for counter, own in enumerate(waits) for wait in own if wait.lag]
    assert behind == [(5, Lagged(5, regions[5], 1))]  # it changes the sum in place


def test_a_path_goes_through_functions_and_back() -> None:
    """A node with a leaf and a node of two leaves."""
    said = [False, True, False, True, True]

    def walked(program: RProgram) -> list[int]:
        return [one.counter for one in path(program, lambda _, turn: said[turn])]

    leaf, inner = [1, 6, 2], [1, 6, 3]
    second = [*inner, *leaf, 4, *leaf, 5]
    assert walked(tree()) == [0, *inner, *leaf, 4, *second, 5]
    assert walked(replace(tree(), bounds=Bounds(1, 2))) == [0, *inner, *leaf, 4, *inner]
    assert walked(replace(tree(), bounds=Bounds(1, 1))) == [0, *inner]


def test_instructions_push_and_pop() -> None:
    program = tree()
    _, plan = placed(program, (1,) * 6, 1, random.Random(0))
    (code,) = instructions(program, plan, divided_waits(program))
    kinds = [type(one) for one in code]
    join = [RunTask, Push, RunTask, Push, RunTask]
    assert kinds == [RunTask, Push, End, RunTask, Decide, RunTask, *join, Pop]
    pushes = [one for one in code if isinstance(one, Push)]
    assert [push.next for push in pushes] == [3, 3, 3]
    assert [push.otherwise for push in pushes] == [2, 8, 10]
    entered = {push.region for push in pushes}
    behind = [push.behind for push in pushes]
    assert behind[0] == NO_REGION
    assert len({NO_REGION, *behind, *entered}) == 4
    decide, leaf = code[4], code[5]
    assert isinstance(decide, Decide)
    assert (decide.next, decide.otherwise) == (5, 6)
    assert isinstance(leaf, RunTask)
    assert leaf.next == len(code) - 1
