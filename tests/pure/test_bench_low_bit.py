"""The benchmark of weights of a few bits: its products, its arithmetic, and its page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.lines import append
from bench.low_bit.formats import FORMATS
from bench.low_bit.products import FAMILIES, MARLIN, products
from bench.low_bit.record import APART, CUBLAS, FLOATS, OURS, Measured, read, tidy
from bench.low_bit.report import PAGE, PICTURE, by_gpu, page, write
from bench.low_bit.summary import Demand, Ratios, Results
from bench.open_shapes.record import Provenance

ORIGIN = Provenance("a GPU", "1.2", "torch 3", "abc", "python", "2026-01-01")


def record(family: str, name: str, form: str, system: str, us: float, **others: object) -> Measured:
    product = next(one for one in products() if (one.family, one.name) == (family, name))
    sizes = product.vectors, product.rows, product.depth
    made = Measured(family, name, *sizes, form, system, "ok", 200e6, 40.0, us, us, us, 15, 1e-4,
                    2e-3, provenance=ORIGIN)  # fmt: skip
    return replace(made, **others)  # type: ignore[arg-type]


RECORDS = (
    record("V", "V0", "W4A16", OURS, 50),
    record("V", "V0", "W4A16", CUBLAS, 200),
    record("V", "V0", "W4A16", APART, 400),
    record("V", "V3", "W4A16", OURS, 100, least_bytes=50e6),
    record("V", "V3", "W4A16", CUBLAS, 225),
    record("V", "V0", "W8A16", OURS, 80),
    record("V", "V0", "NF4", OURS, 100, obstacle="no rule writes them", rules="elementwise + mma"),
    record("V16", "V0", "W4A16", OURS, 55),
    record("V16", "V0", "W4A16", CUBLAS, 1, status="wrong: error above 2.0e-03", error=None),
    record("M", "M0", "W4A16", OURS, 1000),
    record("M", "M0", "W4A16", FLOATS, 500),
    record("M", "M1", "W4A16", OURS, 1000),
    record("M", "M1", "W4A16", FLOATS, 950),
    record("M", "M10", "W8A8", OURS, 100),
    record("M", "M10", "W8A8", FLOATS, 170),
    record(MARLIN, "8192x8192", "W4A16", OURS, 10.15),
)
RESULTS = Results(RECORDS)


def test_products_are_ladders_for_so_many_vectors_and_marlins() -> None:
    counts = {family: sum(one.family == family for one in products()) for family in FAMILIES}
    assert counts == dict.fromkeys(FAMILIES, 13) | {MARLIN: 4}
    sizes = {(one.family, one.name): (one.vectors, one.rows, one.depth) for one in products()}
    assert sizes["V", "V3"] == (1, 57344, 14336)
    assert sizes["V64", "V3"] == (64, 57344, 14336)
    assert sizes["M", "M10"] == (8192, 8192, 8192)
    assert {one.marlin_us for one in products() if one.family == MARLIN} == {
        20.3, 38.1, 40.6, 138.4,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "matrix", "beside"),
    [
        ("W4A16", 64 * 256 / 2 + 64 * 2 * 2, 256 * 2),
        ("W4A16 zeros", 64 * 256 / 2 + 64 * 2 * 3, 256 * 2),
        ("W8A16", 64 * 256 + 64 * 2, 256 * 2),
        ("NF4", 64 * 256 / 2 + 64 * 4 * 2 + 16 * 2, 256 * 2),
        ("MXFP4", 64 * 256 / 2 + 64 * 8, 256 * 2),
        ("W2A8", 64 * 256 / 4 + 64 * 4 + 4, 256),
        ("FP8 both", 64 * 256 + 64 * 4 + 4, 256),
    ],
)
def test_least_bytes_are_those_of_codes_scales_vectors_and_the_result(
    name: str, matrix: float, beside: float
) -> None:
    assert FORMATS[name].least_bytes(1, 64, 256) == matrix + beside + 64 * 2


def test_every_product_falls_into_whole_groups() -> None:
    for product in products():
        for low in FORMATS.values():
            assert product.depth % (low.group or product.depth) == 0


def test_means_are_geometric_and_of_right_results_only() -> None:
    gain = RESULTS.speed_up("V", "W4A16", CUBLAS)
    assert gain is not None
    assert gain.values == {"V0": 4.0, "V3": 2.25}
    assert gain.mean == pytest.approx(3.0)
    assert (gain.worst, gain.least) == ("V3", 2.25)
    assert RESULTS.speed_up("V16", "W4A16", CUBLAS) is None
    assert RESULTS.speed_up("V", "W4A16", FLOATS) is None


def test_floors_formats_and_numbers_of_vectors_are_compared() -> None:
    assert RESULTS.reached("V", "W4A16", 100e6) == Ratios({"V0": 0.8})
    assert RESULTS.reached("V", "W4A16") == Ratios({"V0": 0.8, "V3": 0.4})
    assert RESULTS.few_over_one("W4A16", "V16") == Ratios({"V0": 50 / 55})
    assert RESULTS.over_format("V", "NF4", "W8A16") == Ratios({"V0": 0.8})
    assert RESULTS.marlin() == Ratios({"8192x8192": pytest.approx(2.0)})
    assert RESULTS.formats("V") == ["W4A16", "W8A16", "NF4"]


def test_demands_are_met_by_means_or_by_each() -> None:
    found = {one.what: one for one in RESULTS.demands()}
    met = {what: one.is_met for what, one in found.items()}
    assert met == {
        "W4A16, V: over cuBLAS": False,
        "W4A16, V from 100 MB: share of the floor": True,
        "W4A16: over Marlin's published times on an H200": True,
        "W4A16: one vector's time over that of 16": True,
        "NF4, V: W8A16's time over its": False,
        "W4A16, M1-M12: over our float16 product": True,
        "W4A16, V: over decoding to memory first": True,
        "W8A8, M10: over our float16 product": False,
    }
    assert found["W4A16, M1-M12: over our float16 product"].found == Ratios({"M1": 0.95})
    both = Ratios({"a": 4.0, "b": 0.5})
    assert Demand("", 1, both).is_met
    assert not Demand("", 1, both, by_worst=True).is_met


def test_the_page_tells_what_is_wrong_and_what_is_not_taken() -> None:
    text = page(RECORDS)
    assert "| V0: 1 × 16384 × 16384 | 200 |  | 50.0 (80 %) | 80.0 (50 %) | *100* (40 %) |" in text
    assert "| NF4 | elementwise + mma | no rule writes them | V V0 |" in text
    assert "| cublas | W4A16 | wrong: error above 2.0e-03 | V16 V0 |" in text
    assert "| M0: 16384 × 16384 × 16384 |  | 500 | 1000 |" in text
    assert "| 10.2 (394 %) | 20.3 |" in text
    assert page([]).startswith("# Weights of a few bits")
    assert list(by_gpu(RECORDS)) == ["a GPU"]


def test_the_page_and_the_picture_are_the_same_each_time(tmp_path: Path) -> None:
    written = [write(RECORDS, tmp_path / folder) for folder in "ab"]
    names = [[path.name for path in paths] for paths in written]
    assert names == [[PAGE, PICTURE]] * 2
    for one, other in zip(*written, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert [path.name for path in write([], tmp_path / "c")] == [PAGE]


def test_records_are_read_as_they_were_written_but_for_half_lines(tmp_path: Path) -> None:
    path = tmp_path / "low_bit.jsonl"
    append(path, RECORDS[0])
    with path.open("a", encoding="utf-8") as file:
        file.write('{"family": "V')
    append(path, RECORDS[1])
    append(path, replace(RECORDS[0], median_us=49.0))
    found = read(path)
    assert found[RECORDS[1].key] == RECORDS[1]
    assert found[RECORDS[0].key].median_us == 49
    tidy(path, found.values())
    assert read(path) == found
    assert path.read_text(encoding="utf-8").count("\n") == 2
