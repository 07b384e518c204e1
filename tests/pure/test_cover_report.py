"""What is said of tiles by open extents."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_tile.errors import InputError
from tvm_tile.graph.open_extents import Symbol, variable
from tvm_tile.report.compiled import KernelReport
from tvm_tile.report.cover_report import CoverReport, OpenPoint
from tvm_tile.report.shown import Report
from tvm_tile.tile.cover import grid

TOKENS, ROWS = Symbol("tokens", 2, 8), Symbol("rows", 1, 2)
POINTS = (
    OpenPoint((8,), "mma", "wide", 8e-6, 0, 8e-6),
    OpenPoint((6,), "mma", "wide", 7e-6, 0, 7e-6),
    OpenPoint((4,), "matvec", "narrow", 4e-6, 2, 4e-6),
    OpenPoint((2,), "row", "least", 2e-6, 2, 2.08e-6),
)
COVER = CoverReport((variable(0, "tokens"),), POINTS)
KERNEL = KernelReport(
    "product", "matmul", "mma", 8, 128, "wide", 1e-5, 1e6, "", calls=3, cover=COVER
)
OTHER = replace(KERNEL, name="sum", operators="sum", calls=2, seconds=3e-6, cover=None)
REPORT = Report("nvidia/h200", (KERNEL, OTHER), (), symbols=(TOKENS,))


def test_the_worst_point_and_where_tiles_end() -> None:
    assert COVER.worst == POINTS[3]
    assert COVER.worst.loss == pytest.approx(0.04)
    assert COVER.ends == (POINTS[2], POINTS[0])
    assert [COVER.tile_of(end).tile for end in COVER.ends] == ["narrow", "wide"]


@pytest.mark.parametrize(
    ("tokens", "bound"), [(1, 2), (2, 2), (3, 4), (4, 4), (5, 6), (7, 8), (8, 8)]
)
def test_extents_count_as_the_next_point_of_the_grid(tokens: int, bound: int) -> None:
    assert COVER.at((tokens,)).bound == (bound,)


def test_a_run_is_the_sum_of_its_calls() -> None:
    times = REPORT.cover.times
    assert [time.extents for time in times] == list(reversed(grid([TOKENS])))
    at = {time.extents[0]: time for time in times}
    assert at[8].seconds == at[8].best_seconds == pytest.approx(24e-6)
    assert at[2].seconds == pytest.approx(3 * 2.08e-6)
    assert at[2].best_seconds == pytest.approx(6e-6)
    assert at[2].loss == pytest.approx(0.04)
    assert at[3].seconds == pytest.approx(12e-6)
    assert REPORT.cover.other_seconds == pytest.approx(6e-6)


@pytest.mark.parametrize("extents", [(), (1,), (9,), (4, 4)])
def test_extents_that_no_call_has_are_refused(extents: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="open extents of the model are tokens from 2 to 8"):
        REPORT.cover.time_at(extents)


def test_kernels_may_depend_on_some_of_the_extents() -> None:
    """Of a model of two, and not on the first one."""
    cover = replace(COVER, names=(variable(1, "tokens"),))
    both = CoverReport(
        (variable(0, "rows"), variable(1, "tokens")),
        (
            OpenPoint((2, 8), "mma", "a", 4e-6, 0, 4e-6),
            OpenPoint((2, 2), "mma", "b", 1e-6, 1, 1e-6),
            OpenPoint((1, 8), "mma", "c", 3e-6, 0, 3.3e-6),
            OpenPoint((1, 2), "mma", "d", 1e-6, 1, 1e-6),
        ),
    )
    kernels = (
        replace(KERNEL, cover=cover, calls=1),
        replace(KERNEL, name="k", cover=both, calls=1),
    )
    model = replace(REPORT, kernels=kernels, symbols=(ROWS, TOKENS)).cover
    assert model.names(cover) == ("tokens",)
    assert model.names(both) == ("rows", "tokens")
    assert model.time_at((1, 8)).seconds == pytest.approx(11.3e-6)
    assert model.time_at((1, 8)).best_seconds == pytest.approx(11e-6)
    assert model.time_at((2, 2)).seconds == pytest.approx(3.08e-6)


def test_people_see_tiles_with_their_ends_and_what_is_lost() -> None:
    lines = REPORT.render().splitlines()
    start = lines.index(
        "tiles by open extents, and what these lose at most beside the best at each, predicted:"
    )
    assert lines[start + 1 : start + 6] == [
        "  3 x product: 4.0 % at tokens = 2",
        "      tokens <= 4: matvec, narrow",
        "      tokens <= 8: mma, wide",
        "these kernels in a run, predicted, behind their launches:",
        "  tokens  these tiles  best tiles  lost",
    ]
    assert "  2       6.2 us       6.0 us      4.0 %" in lines
    assert "  8       24.0 us      24.0 us     0.0 %" in lines
    assert "  at most 4.0 % are lost, at tokens = 2" in lines
    others = "  all other kernels have one tile: 6.0 us at the greatest extents, launches included"
    assert others in lines


def test_a_model_of_known_extents_has_no_such_lines() -> None:
    report = Report("nvidia/h200", (OTHER,), ())
    assert report.cover.times == ()
    assert "open extents" not in report.render()


SECONDS = st.floats(1e-7, 1)
GRID_POINTS = st.builds(
    OpenPoint, st.tuples(st.integers(1, 99)), st.text(), st.text(), SECONDS, st.just(0), SECONDS
)


@given(points=st.lists(GRID_POINTS, min_size=1, max_size=4).map(tuple))
def test_it_survives_json(points: tuple[OpenPoint, ...]) -> None:
    cover = replace(COVER, points=points)
    report = replace(REPORT, kernels=(replace(KERNEL, cover=cover),))
    assert Report.from_json(report.to_json()) == report


def test_reports_from_before_there_were_covers_are_read() -> None:
    data = json.loads(replace(REPORT, kernels=(OTHER,), symbols=()).to_json())
    del data["symbols"], data["kernels"][0]["cover"]
    assert Report.from_json(json.dumps(data)) == Report("nvidia/h200", (OTHER,), ())
