"""Programs of loops, branches and calls in words, and drawn."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from rprograms import placed, random_program

from tvm_tile.plan.ahead_of_loops import divided_waits
from tvm_tile.plan.execution_plan import ExecutionPlan, ROperator
from tvm_tile.plan.instructions import instructions
from tvm_tile.plan.rprogram import (
    Bounds,
    Branch,
    Footprint,
    Invoke,
    Repeat,
    RProgram,
    Series,
    While,
)
from tvm_tile.report.screen.flow_drawing import draw_veu, jumps
from tvm_tile.report.screen.flow_text import listing, names_of, outline, summary, told

SVG = "{http://www.w3.org/2000/svg}"
SEEDS = range(60)


def touching(*memories: int) -> Footprint:
    """What changes memories in place."""
    return Footprint(frozenset(memories), frozenset(memories))


LOOPS = RProgram(
    (
        Series((0,)),
        Repeat(1, 3, (Series((1,)),)),
        While(2, 3, 0, (Series((2,)), Branch(1, 4, (), 5, (Series((3,)),)))),
    ),
    tuple(touching(0) for _ in range(4)),
    (0, 0),
    Bounds(70),
)


def planned(program: RProgram) -> tuple[tuple[ROperator, ...], ExecutionPlan]:
    """Operators of two rTasks each, all on one vEU."""
    return placed(program, [2] * len(program.accesses), 1, random.Random(0))


def test_what_a_program_is() -> None:
    loops = "1 loop of a known count; 1 loop that data end, 70 iterations at most; 1 branch"
    assert summary(LOOPS) == loops
    counted = replace(LOOPS, items=(replace(LOOPS.items[2], most=20),))
    assert summary(counted) == "1 loop that data end within a known count; 1 branch"
    assert "while decision 0 holds, 20 times at most:" in outline(planned(LOOPS)[0], counted)
    calls = RProgram(
        (Invoke(0),), (touching(0),), bounds=Bounds(depth=5), functions=((Series((0,)),),)
    )
    assert summary(calls) == "1 function that calls itself, 5 calls at most within one another"
    assert summary(RProgram((Series((0,)),), (touching(0),))) == "a straight line"


def test_a_program_in_lines() -> None:
    assert outline(planned(LOOPS)[0], LOOPS).splitlines() == [
        "o0",
        "3 turns:",
        "    o1",
        "while decision 0 holds:",
        "    o2",
        "    if decision 1 holds:",
        "        nothing",
        "    else:",
        "        o3",
    ]


def test_a_veu_in_lines() -> None:
    program = RProgram(LOOPS.items[:2], (touching(0), touching(0)))
    operators, plan = planned(program)
    assert listing(operators, program, plan, 0).splitlines() == [
        "  0  rTask 0 of o0 -> 1",
        "  1  rTask 1 of o0 -> 2",
        "  2  come to a loop -> 3",
        "       waits for 2 rTasks of o0",
        "  3  begin 3 turns -> 4",
        "  4  rTask 0 of o1 -> 5",
        "       waits for 2 rTasks of o1, last time",
        "  5  rTask 1 of o1, then the next iteration -> 4 | 6",
        "       waits for 2 rTasks of o1, last time",
        "  6  end",
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_all_that_is_there_is_told_once(seed: int) -> None:
    made = random_program(random.Random(seed))
    lines = Counter(line.strip() for line in outline(made.operators, made.program).splitlines())
    names = names_of(made.operators, made.program)
    own = len(made.operators)
    assert all(lines[name] == 1 for name in names[:own])
    for name in names[own:]:
        asked = (
            f"while {name} holds:",
            f"if {name} holds:",
            f"if {name} holds, another iteration:",
        )
        assert sum(lines[line] for line in asked) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawing_has_a_box_and_an_arrow_for_all(seed: int) -> None:
    made = random_program(random.Random(seed))
    code = instructions(made.program, made.plan, divided_waits(made.program))
    for veu in range(made.plan.num_veus):
        text = draw_veu(made.operators, made.program, made.plan, veu)
        root = ElementTree.fromstring(text)
        boxes = [box for box in root.iter(f"{SVG}rect") if box.get("class") == "box"]
        assert len(boxes) == len(code[veu])
        ways = sum(
            len({way for way in (own.next, own.otherwise) if way is not None})
            for own in told(made.operators, made.program, made.plan, veu)
        )
        arrows = [p for p in root.iter(f"{SVG}path") if p.get("class", "").startswith("arrow")]
        assert len(arrows) >= ways
        width, height = (float(root.get(name, 0)) for name in ("width", "height"))
        for box in boxes:
            x, y, wide, high = (float(box.get(name, -1)) for name in ("x", "y", "width", "height"))
            assert 16 <= x < x + wide <= width - 16
            assert 40 <= y < y + high <= height - 16


@pytest.mark.parametrize("seed", SEEDS)
def test_no_arrow_runs_on_another_one(seed: int) -> None:
    made = random_program(random.Random(seed))
    for veu in range(made.plan.num_veus):
        taken = set()
        for jump in jumps(told(made.operators, made.program, made.plan, veu)):
            first, last = sorted((jump.start, jump.end))
            own = {(jump.is_back, jump.lane, place) for place in range(first, last + 1)}
            assert not taken & own
            taken |= own
