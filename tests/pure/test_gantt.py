"""The drawing of a plan: well-formed, to scale, and every rTask is in it."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from roperators import lstm, nasnet

import tvm_tile
from tvm_tile.plan.coschedule import coschedule
from tvm_tile.plan.execution_plan import ROperator
from tvm_tile.plan.timeline import timeline
from tvm_tile.report.screen.gantt import gantt

H200 = tvm_tile.find_device("nvidia/h200")


def boxes(text: str) -> list[ElementTree.Element]:
    found = ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}rect")
    return [box for box in found if box.get("class") == "task"]


@pytest.mark.parametrize("operators", [lstm(4, 6), nasnet(2)], ids=["lstm", "nasnet"])
def test_boxes_cover_the_rtasks_and_stay_inside(operators: tuple[ROperator, ...]) -> None:
    plan = coschedule(operators, H200)
    assert plan is not None
    text = gantt(operators, plan, H200)
    row = 660 / plan.num_veus
    rows = sum(float(box.get("height", 0)) for box in boxes(text)) / row
    tasks = sum(plan.tasks(operators, number) for number in range(len(operators)))
    assert rows == pytest.approx(tasks, rel=0.01)
    for box in boxes(text):
        x, y, wide, high = (float(box.get(name, -1)) for name in ("x", "y", "width", "height"))
        assert 16 <= x < x + wide <= 1216.1
        assert 40 <= y < y + high <= 700.1


def test_one_colour_for_equal_code_and_names_are_there() -> None:
    operators = tuple(replace(o, name=f"<{o.name}>") for o in nasnet(2, kinds=7))
    plan = coschedule(operators, H200)
    assert plan is not None
    found = boxes(gantt(operators, plan, H200))
    assert len({box.get("fill") for box in found}) == 7
    titles = {title.text for box in found for title in box}
    assert titles == {operator.name for operator in operators}


def test_a_veu_does_one_rtask_at_a_time_and_none_before_what_it_reads() -> None:
    operators = nasnet(3)
    plan = coschedule(operators, H200)
    assert plan is not None
    for uses_flags in (False, True):
        until = [0.0] * plan.num_veus
        ends: dict[int, float] = {}
        for span in timeline(operators, replace(plan, uses_flags=uses_flags), H200):
            for veu in range(span.first_veu, span.first_veu + span.num_veus):
                assert until[veu] <= span.begin < span.end
                until[veu] = span.end
            for number, operator in enumerate(operators[: span.operator]):
                if set(operator.writes) & set(operators[span.operator].reads):
                    assert ends[number] < span.begin
            ends[span.operator] = max(ends.get(span.operator, 0), span.end)
