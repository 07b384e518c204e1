"""The benchmark's report: every figure by hand, and nothing that is wrong is ever counted."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from math import sqrt
from pathlib import Path

import matplotlib
import pytest

from bench.record import Record, append
from bench.report import NoRecords, main, repeat
from bench.report.compare import compare, compilation, fractions, geometric_mean
from bench.report.data import Column, Row, Suite, column_of, load, natural, suite
from bench.report.markdown import number, plain, ratio, table
from bench.report.plots import compile_time, style
from bench.report.plots.compile_time import History, Point, Round

RECORDED = Path(__file__).parent.parent / "data" / "bench"
TOP1, TOP10 = Column("tvm_tile", "top1"), Column("tvm_tile", "top10")
TORCH, COMPILE = Column("torch", ""), Column("torch_compile", "")
DLIGHT, TUNED = Column("dlight", ""), Column("metaschedule", "")
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def ops() -> Suite:
    return load(RECORDED)[0]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "results"
    shutil.copytree(RECORDED, folder)
    main(folder)
    return folder


def row(ops: Suite, workload: str, dtype: str = "float32") -> Row:
    return next(r for r in ops.rows if (r.workload, r.dtype) == (workload, dtype))


def line(text: str, start: str) -> list[str]:
    found = next(line for line in text.splitlines() if line.startswith(f"| {start} |"))
    return [cell.strip() for cell in found.strip("|").split(" | ")]


def test_rows_are_in_natural_order(ops: Suite) -> None:
    assert [(r.dtype, r.workload) for r in ops.rows] == [
        ("float32", "C2"),
        ("float32", "C10"),
        ("float32", "E1"),
        ("float16", "C2"),
        ("float16", "C10"),
    ]
    names = ["V12", "square_16384", "M10", "square_1024", "V2", "M9", "128x768x3072"]
    assert sorted(names, key=natural) == [
        "128x768x3072", "M9", "M10", "V2", "V12", "square_1024", "square_16384",
    ]  # fmt: skip


def test_columns_are_ours_then_the_peers_without_those_that_are_missing(ops: Suite) -> None:
    assert ops.columns == (TOP1, TOP10, TORCH, COMPILE, DLIGHT, TUNED)
    assert ops.ours == (TOP1, TOP10)


def test_systems_are_named_with_versions(ops: Suite) -> None:
    assert [ops.label(column) for column in ops.columns] == [
        "tvm_tile top1",
        "tvm_tile top10",
        "torch 2.11.0",
        "torch_compile 2.11.0 with triton 3.6.0",
        "dlight (tvm 0.27.0.post1)",
        "metaschedule (64–256 trials, tvm 0.27.0.post1)",
    ]


def test_speed_ups_by_hand(ops: Suite) -> None:
    against_torch = compare(ops.of_dtype("float32"), TOP1, TORCH)
    assert against_torch is not None
    # C2: 2.0 / 1.0, C10: 1.9 / 2.0; E1 is wrong in ours.
    assert (against_torch.count, against_torch.faster, against_torch.close) == (2, 0.5, 1.0)
    assert against_torch.mean == pytest.approx(sqrt(2.0 * 0.95))
    half = compare(ops.of_dtype("float16"), TOP1, TORCH)
    assert half is not None
    # C2: 0.1 / 0.4, C10: 0.4 / 0.5, which is 25 % slower.
    assert (half.count, half.faster, half.close) == (2, 0.0, 0.0)
    assert half.mean == pytest.approx(sqrt(0.25 * 0.8))


def test_what_is_wrong_is_never_counted(ops: Suite) -> None:
    against_dlight = compare(ops.rows, TOP1, DLIGHT)
    assert against_dlight is not None
    assert (against_dlight.count, against_dlight.mean) == (1, pytest.approx(4.0))
    for workload, column in (("E1", TOP1), ("C10", DLIGHT)):
        wrong = row(ops, workload)
        assert wrong.cells[column].median_ms is not None
        assert wrong.ms(column) is None
        assert wrong.fraction(column) is None
    assert row(ops, "E1").speed_up(TOP1, TORCH) is None
    assert compare([row(ops, "E1")], TOP1, TORCH) is None


def test_fractions_of_the_floor_by_hand(ops: Suite) -> None:
    assert fractions(ops.of_dtype("float32"), TOP1) == [0.5, 0.5]
    assert fractions(ops.of_dtype("float16"), TORCH) == [1.0, pytest.approx(0.75)]
    assert fractions(ops.rows, Column("torch_graph", "")) == []
    assert geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)


def test_the_most_trials_that_are_right_count(ops: Suite) -> None:
    assert row(ops, "C2").ms(TUNED) == 1.25
    more = replace(
        row(ops, "C2").cells[TUNED], variant="1024", status="wrong: error", median_ms=0.1
    )
    assert suite("ops", [*ops.records, more]).rows[0].ms(TUNED) == 1.25


def test_compile_time_is_split_into_scheduling_and_nvrtc(ops: Suite) -> None:
    single = ops.of_dtype("float32")
    found = compilation(single, TOP1)
    assert found is not None
    # C2: 0.1 + 0.4, C10: 0.3 + 0.6; E1 is wrong.
    assert (found.count, found.jobs) == (2, 14)
    assert (found.median, found.longest) == (pytest.approx(0.7), 0.9)
    assert found.schedule == (pytest.approx(0.2), 0.3)
    assert found.compiler == (pytest.approx(0.5), pytest.approx(0.6))
    other = compilation(single, TORCH)
    assert other is not None
    assert other.schedule is other.compiler is None
    tuned = compilation(single, TUNED)
    assert tuned is not None
    assert (tuned.count, tuned.longest) == (1, 300.0)
    assert compilation(single, Column("torch_graph", "")) is None


def test_repeatability_by_hand(ops: Suite) -> None:
    found = repeat.pairs(ops)
    assert len(found) == 14  # what is wrong in both runs is no pair
    whole = repeat.spread(found)
    # Twelve agree; C2 is 1.1 times as long, C10 half: differences 0 ..., 0.1 and 1.0.
    assert whole.worst == 0.5
    assert whole.median == 1.0
    assert whole.within == pytest.approx(0.1 + 0.35 * 0.9)
    ours = repeat.spread(pair for pair in found if column_of(pair.first) == TOP1)
    assert (ours.count, ours.median) == (4, pytest.approx(1.0))
    assert ours.low == pytest.approx(0.5 + 0.15 * 0.5)
    assert ours.high == pytest.approx(1.0 + 0.85 * 0.1)
    text = repeat.section(ops)
    assert "95 % of the medians agree within 41.5 %" in text
    assert "(2026-11-23) over the first (2026-11-22), 14 medians" in text
    unlike = [line for line in repeat.unlike(ops).splitlines() if "tvm_tile" in line]
    assert unlike == ["| C10 | float32 |  | tvm_tile top1 | 2.00 (0.02) | 1.00 (0.02) | 0.50 |"]


def test_one_run_says_nothing_about_repeatability(ops: Suite) -> None:
    once = suite("ops", ops.records)
    assert repeat.section(once) == repeat.unlike(once) == ""


def test_the_tables_say_what_is_wrong_and_why(results: Path) -> None:
    text = (results / "ops.md").read_text(encoding="utf-8")
    assert line(text, "C2")[:10] == [
        "C2", "conv", "0.500", "1.00 (0.01)", "0.50", "2e-07", "0.800 (0.008)", "0.62", "2e-07",
        "1 (0)",
    ]  # fmt: skip
    assert line(text, "C2")[10:] == [
        "2.00 (0.02)", "2.00", "1.05 (0.01)", "1.05", "4.00 (0.04)", "4.00", "1.25 (0.01)", "1.25",
    ]  # fmt: skip
    assert line(text, "C10")[9:] == [
        "2 (1)", "1.90 (0.02)", "0.95", "*hangs: more than 120 s*", "",
        "*wrong: error above 1.0e-04*", "", "", "",
    ]  # fmt: skip
    assert line(text, "E1")[3:6] == ["*wrong: error above 1.0e-04*", "", "1e+00"]
    reasons = text[text.index("Not right") :]
    assert "| jax | float32 | missing: No module named jax | all |" in reasons
    assert "| wrong: error above 1.0e-04 | C10 (3e-01) |" in reasons
    assert "Check failed: (x \\| y) is false" in reasons


def test_the_index_has_summary_protocol_and_environment(results: Path) -> None:
    text = (results / "REPORT.md").read_text(encoding="utf-8")
    for part in ("NVIDIA H200", "580.159.04", "0123456789ab", "2026-11-22", "triton 3.6.0"):
        assert part in text
    assert "`python -m bench run --suite ops --systems tvm_tile,torch`" in text
    assert "| float32 | conv | tvm_tile top1 | 2 | 1.38 · 50 % · 100 % | 1.05" in text
    assert "| 4.00 · 100 % · 100 % (1) |" in text
    assert "| float32 | tvm_tile top1 | 2 | 0.700 | 0.900 | 0.200 / 0.300 | 0.500 / 0.600" in text
    assert "Workloads: Zhu et al., ROLLER" in text
    for image in results.glob("*.png"):
        assert f"({image.name})" in text


def test_the_pictures_have_plain_names(results: Path) -> None:
    assert {path.name for path in results.glob("*.png")} == {
        "ops_speedup_float32.png",
        "ops_speedup_float16.png",
        "ops_floor_float32.png",
        "ops_floor_float16.png",
        "roofline.png",
        "compile_time.png",
    }
    assert all(path.read_bytes().startswith(PNG) for path in results.glob("*.png"))


def test_the_same_records_give_the_same_bytes(results: Path) -> None:
    written = {path: path.read_bytes() for path in sorted(results.iterdir()) if path.is_file()}
    assert set(main(results)) < set(written)
    assert {path: path.read_bytes() for path in written} == written


def test_nothing_to_report_is_said_and_is_an_exit_status(tmp_path: Path) -> None:
    with pytest.raises(NoRecords, match=r"no records in .*SUITE\.jsonl") as ended:
        main(tmp_path)
    assert isinstance(ended.value, SystemExit)
    assert ended.value.code not in (None, 0)
    (tmp_path / "ops.jsonl").write_text('{"suite": "ops", "wor')
    with pytest.raises(NoRecords):
        main(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["ops.jsonl"]


@pytest.mark.parametrize("system", ["tvm_tile", "torch", "something_new"])
def test_one_system_alone(system: str, tmp_path: Path) -> None:
    full = Record("norm", "softmax", "softmax", "float32", 8, system, "", "ok", median_ms=1.0)
    full = replace(full, floor_ms=0.5, flops=1e6, bytes=1e6, peak_flops=1e12, copy_bandwidth=1e12)
    append(tmp_path / "norm.jsonl", [full])
    names = {path.name for path in main(tmp_path)}
    assert names == {"REPORT.md", "norm.md", "norm_floor_float32.png", "norm_roofline.png"}
    assert "| softmax | softmax | 8 |" in (tmp_path / "norm.md").read_text(encoding="utf-8")


def test_a_suite_in_which_nothing_worked_has_no_pictures(tmp_path: Path) -> None:
    bare = Record("rnn", "lstm", "lstm", "float32", 1, "tvm_tile", "top1", "failed: KeyError: 'x'")
    append(tmp_path / "rnn.jsonl", [bare])
    assert {path.name for path in main(tmp_path)} == {"REPORT.md", "rnn.md"}
    assert "*failed: KeyError: 'x'*" in (tmp_path / "rnn.md").read_text(encoding="utf-8")


def test_unknown_systems_get_colours_of_their_own() -> None:
    columns = [TOP1, TORCH, Column("a", ""), Column("b", ""), Column("tvm_tile_unfused", "")]
    assert len(set(style.colours(columns).values())) == 5
    assert style.colours(columns) == style.colours(columns)


def test_drawing_leaves_the_settings_alone() -> None:
    before = dict(matplotlib.rcParams)
    with style.styled():
        assert dict(matplotlib.rcParams) != before
    assert dict(matplotlib.rcParams) == before


def test_a_history_ends_at_what_the_bench_measured(ops: Suite) -> None:
    histories = compile_time.read_histories(RECORDED / "metaschedule")
    rounds = (Round(64, 80.0, 2.4e-3), Round(128, 150.0, 1.6e-3), Round(256, 290.0, 1.2e-3))
    assert histories == (History("C2", "float32", rounds),)
    # The fastest known is top10's 0.8 ms; MetaSchedule's 1.25 ms is 0.64 of its speed.
    curve = compile_time.curve(row(ops, "C2"), histories)
    assert [point.trials for point in curve] == [64, 128, 256]
    assert [point.speed for point in curve] == pytest.approx([0.32, 0.48, 0.64])
    assert compile_time.curve(row(ops, "C10"), histories) == []


def test_the_mean_of_histories_is_taken_at_equal_numbers_of_trials() -> None:
    long = [Point(10.0, 0.1, 32), Point(20.0, 0.2, 64), Point(30.0, 0.3, 96), Point(40.0, 0.4, 128)]
    exhausted = [Point(2.5, 0.9, 20)]
    assert compile_time.mean_curve([long]) == [
        Point(pytest.approx(p.seconds), pytest.approx(p.speed), p.trials)
        for p in (long[0], long[1], long[3])
    ]
    means = compile_time.mean_curve([long, exhausted])
    assert [p.trials for p in means] == [32, 64, 128]
    assert [p.seconds for p in means] == pytest.approx([5.0, sqrt(50.0), 10.0])
    assert means[0].speed == pytest.approx(0.3)
    assert compile_time.mean_curve([]) == []


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"workload": "C2"}', '{"workload": "C2", "dtype": "float32", "rounds": [1]}'],
)
def test_a_history_that_is_none_is_skipped(text: str, tmp_path: Path) -> None:
    (tmp_path / "C2.history.json").write_text(text)
    (tmp_path / "C3.history.json").write_text(
        json.dumps({"workload": "C3", "dtype": "float32", "rounds": [{"best_s": None}]})
    )
    assert compile_time.read_histories(tmp_path) == ()
    assert compile_time.read_histories(tmp_path / "none") == ()


def test_numbers_read_well() -> None:
    values = (0.00213, 0.0000971, 9.999, 1234.5, 0, None, float("inf"))
    assert [number(value) for value in values] == [
        "0.00213", "0.0000971", "10.0", "1234", "0", "", "inf",
    ]  # fmt: skip
    assert (number(9.71e-05, 1), number(0.0971, 1)) == ("0.0001", "0.1")
    assert [ratio(value) for value in (0.954, 1.0, 48.63, None)] == ["0.95", "1.00", "48.6", ""]
    assert plain("a\n  b | c") == "a b \\| c"
    assert plain("x" * 50, 10) == "x" * 9 + "…"
    assert table(["a", "b"], []) == ""
