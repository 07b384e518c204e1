"""Times over open extents, drawn."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_tile.graph.open_extents import Symbol, variable
from tvm_tile.report.cover_report import CoverReport, ModelCover, OpenPoint
from tvm_tile.report.screen.cover_drawing import draw_cover

SVG = "{http://www.w3.org/2000/svg}"
TOKENS = Symbol("tokens", 2, 8)
COVER = CoverReport(
    (variable(0, "tokens"),),
    (
        OpenPoint((8,), "mma", "wide", 8e-6, 0, 8e-6),
        OpenPoint((4,), "matvec", "a < b", 4e-6, 1, 4e-6),
        OpenPoint((2,), "row", "least", 2e-6, 1, 2.08e-6),
    ),
)
MODEL = ModelCover((TOKENS,), {"product": (COVER, 3)}, 0.0)
SECONDS = st.floats(1e-7, 1e-1)


def drawn(model: ModelCover) -> ElementTree.Element:
    return ElementTree.fromstring(draw_cover(model, "predicted"))


def of_class(root: ElementTree.Element, kind: str) -> list[str]:
    return [e.attrib["d"] for e in root.iter(f"{SVG}path") if e.get("class") == kind]


def heights(path: str) -> list[float]:
    """Of the steps of a line."""
    return [float(y) for y in re.findall(r"V([0-9.]+)", path)]


def test_there_is_a_picture_of_all_kernels_and_one_of_each() -> None:
    root = drawn(MODEL)
    texts = [str(element.text) for element in root.iter(f"{SVG}text")]
    assert "all of these kernels in a run: 4.0 % lost at most, at tokens = 2" in texts
    assert "product, of 3 calls one: 4.0 % lost at most, at tokens = 2" in texts
    assert texts.count("tokens") == len(of_class(root, "runs")) == len(of_class(root, "best")) == 2
    assert texts[-3:] == ["2", "4", "8"]


def test_an_upright_line_is_where_a_tile_ends() -> None:
    (end,) = of_class(drawn(MODEL), "end")
    runs = of_class(drawn(MODEL), "runs")[-1]
    second = re.findall(r"H([0-9.]+)", runs)[1]
    assert end.startswith(f"M{second} ")


def test_who_points_at_a_column_is_told_its_tiles() -> None:
    titles = [str(title.text) for title in drawn(MODEL).iter(f"{SVG}title")]
    told = "tokens = 2\n2.08 us, at best 2.00 us\nruns: matvec, a < b\nbest: row, least"
    assert told in titles


@given(times=st.lists(st.tuples(SECONDS, st.floats(1, 3)), min_size=1, max_size=8))
def test_longer_times_are_higher_and_all_is_within_its_frame(
    times: list[tuple[float, float]],
) -> None:
    points = tuple(
        OpenPoint((8 - place,), "mma", "tile", best, 0, best * more)
        for place, (best, more) in enumerate(times)
    )
    cover = replace(COVER, points=points)
    root = drawn(replace(MODEL, kernels={"product": (cover, 1)}))
    frame = [e for e in root.iter(f"{SVG}rect") if e.get("class") == "frame"][-1]
    top, tall = float(frame.attrib["y"]), float(frame.attrib["height"])
    runs, best = (heights(of_class(root, kind)[-1]) for kind in ("runs", "best"))
    assert all(top <= y <= top + tall for y in runs + best)
    assert all(own <= other for own, other in zip(runs, best, strict=True))
    known = sorted(zip([p.seconds for p in reversed(points)], runs, strict=True))
    assert all(y >= after for (_, y), (_, after) in itertools.pairwise(known))
    ticks = [e for e in root.iter(f"{SVG}text") if e.get("class") == "time"]
    assert any(str(tick.text).endswith(" us") for tick in ticks)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_extent_has_a_line_of_its_own(count: int) -> None:
    symbols = tuple(Symbol(f"n{place}", 1, 4) for place in range(count))
    names = tuple(variable(place, symbol.name) for place, symbol in enumerate(symbols))
    points = tuple(replace(point, bound=point.bound * count) for point in COVER.points[:1])
    model = ModelCover(symbols, {"product": (CoverReport(names, points), 1)}, 0.0)
    texts = [str(element.text) for element in drawn(model).iter(f"{SVG}text")]
    assert texts[-2 * count :] == [t for s in symbols for t in (s.name, "8")]


def test_a_model_without_tiles_by_extents_says_so() -> None:
    root = drawn(ModelCover((), {}, 0.0))
    (text,) = root.iter(f"{SVG}text")
    assert str(text.text).endswith("No kernel has any.")
