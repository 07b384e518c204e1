"""The report's section on the model's ranking, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.report.ranking import rank_correlation, rankings, section


def tiles(operator: str, *times: tuple[float, float]) -> list[dict[str, object]]:
    return [
        {"operator": operator, "rank": rank, "predicted_s": predicted, "measured_s": measured}
        for rank, (predicted, measured) in enumerate(times)
    ]


RECORDS = [
    *tiles("ops:C0:float32", (1.0, 10.0), (2.0, 20.0), (3.0, 30.0)),
    *tiles("conv:conv3x3_64_64_56_s1:float32", (1.0, 40.0), (2.0, 10.0)),
    *tiles("ops:D0:float32", (1.0, 1.1), (1.0, 1.0)),
    *tiles("ops:E0:float16", (1.0, 1.0)),
]


@pytest.mark.parametrize(
    ("second", "expected"),
    [([1.0, 2.0, 3.0], 1.0), ([9.0, 2.0, 1.0], -1.0), ([1.0, 1.0, 2.0], 3**0.5 / 2)],
)
def test_equal_values_share_a_rank(second: list[float], expected: float) -> None:
    assert rank_correlation([1.0, 2.0, 3.0], second) == pytest.approx(expected)


def test_no_order_correlates_with_nothing() -> None:
    assert rank_correlation([1.0, 1.0], [1.0, 2.0]) is None


def test_one_tile_ranks_nothing() -> None:
    found = rankings(RECORDS)
    assert [r.operator for r in found] == [*dict.fromkeys(r["operator"] for r in RECORDS[:7])]
    assert [r.regret for r in found] == [1.0, 4.0, 1.1]
    assert [r.correlation for r in found] == [pytest.approx(1), pytest.approx(-1), None]


def test_the_table_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "candidates.json"
    facts = {"gpu": "NVIDIA H200", "driver": "580", "versions": "tvm 0.27"}
    file.write_text(json.dumps(facts | {"records": RECORDS}), encoding="utf-8")
    text = section(file)
    assert "gpu NVIDIA H200; driver 580; versions tvm 0.27." in text
    assert "the file does not say the commit" in text
    assert "| contraction | float32 | 2 | 5 | 0.00 | 2.00 | " in text
    assert "| 4.00 (conv:conv3x3_64_64_56_s1) | 50 % |" in text
    assert "| window | float32 | 1 | 2 |  | 1.10 | 1.10 (ops:D0) | 100 % |" in text
    assert "| **all** |  | 3 | 7 | 0.00 |" in text
    file.write_text(json.dumps(facts | {"commit": "abc", "records": RECORDS}), encoding="utf-8")
    assert "commit abc." in section(file)
    assert "does not say" not in section(file)


def test_nothing_measured_is_no_section(tmp_path: Path) -> None:
    assert section(tmp_path / "candidates.json") == ""
