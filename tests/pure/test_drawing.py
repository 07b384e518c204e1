"""The drawing of groups: well-formed, and it shows what the decisions say."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from tvm_tile.report.screen.drawing import draw
from tvm_tile.tile.weld.connect import Decision, Edge

JOINED = Decision(
    ("turn", "a < b & c", "sum"),
    (Edge(0, 1, 1_000_000, is_view=True), Edge(0, 2, 1_000_000, is_view=True), Edge(1, 2, 500_000)),
    rule="chain",
)
APART = Decision(("up" * 40, "down"), (Edge(0, 1, 250_000),), reason="no rule writes them")


def elements(text: str, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(text).iter(f"{{http://www.w3.org/2000/svg}}{tag}"))


def texts(drawing: str) -> list[str]:
    return [element.text or "" for element in elements(drawing, "text")]


def test_every_function_is_a_box_and_every_value_an_arrow() -> None:
    drawing = draw((JOINED, APART))
    classes = [box.get("class") for box in elements(drawing, "rect")]
    assert classes.count("box") == 5
    assert classes.count("frame") == 1
    assert classes.count("frame apart") == 1
    assert len(elements(drawing, "path")) == 4
    assert "a < b & c" in texts(drawing)
    assert "0.50 MB, register" in texts(drawing)
    assert "1.00 MB, in place" in texts(drawing)
    assert "0.25 MB, global" in texts(drawing)
    shared = replace(JOINED, edges=(replace(JOINED.edges[-1], is_shared=True),))
    assert "0.50 MB, shared" in texts(draw((shared,)))


def test_equal_groups_are_drawn_once() -> None:
    drawing = draw((JOINED, APART, JOINED))
    assert "2 x chain, 4.00 MB less traffic" in texts(drawing)
    assert "1 x no rule writes them, 0.50 MB of traffic between them" in texts(drawing)


def test_long_names_are_cut_and_kept_whole_in_their_titles() -> None:
    drawing = draw((APART,))
    assert "up" * 40 in [title.text for title in elements(drawing, "title")]
    assert "up" * 40 not in texts(drawing)


def test_everything_lies_inside() -> None:
    drawing = draw((JOINED, APART))
    root = ElementTree.fromstring(drawing)
    width, height = int(root.get("width", 0)), int(root.get("height", 0))
    boxes = [box for box in elements(drawing, "rect") if box.get("class")]
    for box in boxes:
        x, y, wide, high = (int(box.get(name, 0)) for name in ("x", "y", "width", "height"))
        assert 0 <= x < x + wide <= width
        assert 0 <= y < y + high <= height
    tops = [int(box.get("y", 0)) for box in boxes if box.get("class") == "box"]
    assert tops == sorted(set(tops))


def test_no_groups_are_an_empty_drawing() -> None:
    assert not texts(draw(()))
