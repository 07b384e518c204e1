"""Nsight Compute's print, as functions of a model, and the tables of what was measured."""

from __future__ import annotations

import sys
from dataclasses import replace
from math import exp, log, sqrt
from pathlib import Path

import pytest

from bench.record import Record, append
from bench.report import main, traffic, welding
from bench.report.data import load, suite
from bench.traffic.ncu import Launch, NcuError, command, parse, profile
from bench.traffic.record import FILE, FunctionTraffic, Traffic, by_function, read, store
from tvm_tile.report.compiled import KernelReport

HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"


def row(number: int, kernel: str, metric: str, value: str, unit: str = "byte") -> str:
    before = f'"{number}","4711","python3.12","127.0.0.1","{kernel}","1","7","(256, 1, 1)"'
    section = "Command line profiler metrics"
    return f'{before},"(132, 1, 1)","0","9.0","{section}","{metric}","{unit}","{value}"'


def printed(*rows: str) -> str:
    return "\n".join(
        [
            "something that the program says, with commas, and",
            "==PROF== Connected to process 4711 (/usr/bin/python3.12)",
            '==PROF== Profiling "fused_a_kernel" - 0: 0%....50%....100% - 1 pass',
            "==PROF== Disconnected from process 4711",
            HEADER,
            *rows,
        ]
    )


CANNED = printed(
    row(0, "fused_norm_0123abcd_kernel", READ, "1,048,576"),
    row(0, "fused_norm_0123abcd_kernel", WRITTEN, "32"),
    row(1, "matmul_89abcdef_kernel", READ, "4.5", "Kbyte"),
    row(1, "matmul_89abcdef_kernel", WRITTEN, "0"),
    row(2, "matmul_89abcdef_kernel_1", READ, "500"),
    row(2, "matmul_89abcdef_kernel_1", WRITTEN, "2", "Mbyte"),
    row(3, "void at::copy<float, 2>(float*, int)", READ, "64"),
    row(3, "void at::copy<float, 2>(float*, int)", WRITTEN, "64"),
    row(10, "fused_norm_0123abcd_kernel", READ, "1,048,576"),
    row(10, "fused_norm_0123abcd_kernel", WRITTEN, "0"),
)
KERNELS = (
    KernelReport("fused_norm_0123abcd", "a b", "rows", 1, 1, "t", 1e-6, 3e6, "", written=2e6),
    KernelReport("matmul_89abcdef", "mm", "mma", 1, 1, "t", 1e-6, 5e3, "", written=1e3),
    KernelReport("fused_absent_00000000", "c", "plain", 1, 1, "t", 1e-6, 1e3, ""),
)


def test_launches_are_in_the_order_in_which_they_ran() -> None:
    assert parse(CANNED) == (
        Launch("fused_norm_0123abcd_kernel", 1048576.0, 32.0),
        Launch("matmul_89abcdef_kernel", 4500.0, 0.0),
        Launch("matmul_89abcdef_kernel_1", 500.0, 2e6),
        Launch("void at::copy<float, 2>", 64.0, 64.0),
        Launch("fused_norm_0123abcd_kernel", 1048576.0, 0.0),
    )


def test_no_table_is_no_launches() -> None:
    assert parse("==PROF== Connected\n==WARNING== No kernels were profiled.\n") == ()


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([row(0, "k_kernel", READ, "n/a", "")], "'n/a'"),
        ([row(0, "k_kernel", READ, "5", "sector")], "'sector'"),
        ([row(0, "k_kernel", READ, "5")], "k_kernel: only dram__bytes_read.sum"),
    ],
)
def test_what_is_no_measurement_is_refused(rows: list[str], what: str) -> None:
    with pytest.raises(NcuError, match=what):
        parse(printed(*rows))


def test_launches_are_summed_by_function() -> None:
    norm, product, other = by_function(parse(CANNED), KERNELS)
    assert norm == FunctionTraffic(
        "fused_norm_0123abcd", "a b", "rows", 2, 2, 2 * 1048576.0, 32.0, 2e6, 4e6
    )
    assert norm.is_joined
    assert norm.ratio == 1.048576
    # Two kernels of one call.
    assert product == FunctionTraffic("matmul_89abcdef", "mm", "mma", 1, 2, 5e3, 2e6, 4e3, 1e3)
    assert not product.is_joined
    # None of the model's: counted, but nothing is predicted.
    assert other == FunctionTraffic("void at::copy<float, 2>", "", "", 1, 1, 64, 64, 0, 0)
    assert other.ratio is None


def test_ncu_is_told_what_to_count_and_what_to_do_with_caches() -> None:
    words = command("ncu", "none", ("python", "-m", "x"))
    assert (words[0], words[-3:]) == ("ncu", ("python", "-m", "x"))
    assert words[words.index("--cache-control") + 1] == "none"
    assert words[words.index("--metrics") + 1] == f"{READ},{WRITTEN}"
    assert words[words.index("--profile-from-start") + 1] == "off"


def fake_ncu(folder: Path, body: str) -> str:
    path = folder / "ncu"
    path.write_text(f"#!{sys.executable}\nimport sys, time\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_what_ncu_prints_is_read(tmp_path: Path) -> None:
    (tmp_path / "csv").write_text(CANNED)
    ncu = fake_ncu(tmp_path, f"print(open({str(tmp_path / 'csv')!r}).read())")
    assert profile(ncu, "all", ("true",), 60) == parse(CANNED)


@pytest.mark.parametrize(
    ("body", "limit_s", "reason"),
    [
        ("print('==ERROR== ERR_NVGPUCTRPERM'); sys.exit(1)", 60, "status 1: ERR_NVGPUCTRPERM"),
        ("print('==WARNING== No kernels'); print()", 60, "no launch was seen: .*No kernels"),
        ("time.sleep(100)", 0.5, "more than 0 s"),
    ],
)
def test_why_nothing_was_measured(body: str, limit_s: float, reason: str, tmp_path: Path) -> None:
    with pytest.raises(NcuError, match=reason):
        profile(fake_ncu(tmp_path, body), "all", ("true",), limit_s)


def test_no_ncu_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(NcuError, match="No such file"):
        profile(str(tmp_path / "none"), "all", ("true",), 60)


def run(system: str, cache_control: str, *functions: FunctionTraffic) -> Traffic:
    variant = "top1" if system == "tvm_tile" else ""
    return Traffic(
        "models", "nafnet", "cnn", "float16", 64, system, variant, cache_control, "ok", functions,
        gpu="NVIDIA H200", commit="abc", date="2026-11-22", command="python -m bench traffic",
    )  # fmt: skip


def function(name: str, rule: str, read: float, predicted: float) -> FunctionTraffic:
    return FunctionTraffic(name, "a b", rule, 2, 2, read, 1e6, predicted, 3e6)


RUNS = (
    run("tvm_tile", "none", function("fused_a", "rows", 30e6, 40e6)),
    run(
        "tvm_tile_unfused",
        "none",
        function("a", "rows", 50e6, 60e6),
        function("b", "plain", 10e6, 20e6),
    ),
    run(
        "tvm_tile",
        "all",
        function("fused_a", "rows", 105e6, 100e6),
        function("joined_b", "chain", 40e6, 80e6),
        function("alone", "rows", 900e6, 100e6),
        function("fused_nothing", "rows", 1e6, 0.0),
    ),
    run("tvm_tile_unfused", "all", function("fused_c", "rows", 7e6, 1e6)),
    replace(run("tvm_tile", "all"), workload="bsrn", status="failed: no ncu"),
)


def test_what_is_stored_is_read_and_replaces_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "folder" / FILE
    for record in (replace(RUNS[0], date="2026-01-01", functions=()), *RUNS):
        store(path, record)
    assert set(read(path).values()) == set(RUNS)
    assert read(tmp_path / "none") == {}


def line(text: str, start: str) -> list[str]:
    found = next(line for line in text.splitlines() if line.startswith(f"| {start} |"))
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_predictions_are_compared_for_what_is_joined_of_ours_only() -> None:
    found = traffic.groups(RUNS)
    assert [(group.function.name, group.ratio) for group in found] == [
        ("fused_a", 1.05),
        ("joined_b", 0.5),
    ]
    assert [group.error for group in found] == [1.05, 2.0]
    text = traffic.page(RUNS)
    mean, off = sqrt(1.05 * 0.5), exp((log(1.05) + log(2)) / 2)
    assert line(text, "**all**") == [
        "**all**", "2", f"{mean:.3f}", f"{off:.3f}", "50 %", "0.50", f"{145 / 180:.3f}",
    ]  # fmt: skip
    assert line(text, "chain")[1:3] == ["1", "0.500"]
    joined = line(text, "nafnet | float16 | joined_b")
    assert joined[3:] == ["chain", "64", "2", "2", "80.0", "40.0", "0.50", "3.00", "1.00"]
    assert "| bsrn | float16 | tvm_tile | all | failed: no ncu | 64 |" in text
    assert "alone" not in text


def test_whole_models_are_before_and_after() -> None:
    found = line(traffic.page(RUNS), "nafnet | float16")
    assert found[2:7] == ["64", "4", "60.0 MB", "2.00 MB", "86.0 MB"]
    # 62 MB before, 31 MB after.
    assert found[7:] == ["2", "30.0 MB", "1.00 MB", "43.0 MB", "2.00"]


def record(system: str, variant: str, ms: float, kernels: int, workload: str = "nafnet") -> Record:
    return Record(
        "models", workload, "cnn", "float16", 64, system, variant, "ok",
        median_ms=ms, iqr_ms=0.01, kernels=kernels,
    )  # fmt: skip


RECORDS = (
    record("tvm_tile", "top1", 2.0, 30),
    record("tvm_tile_unfused", "", 3.0, 45),
    record("tvm_tile", "top1", 1.0, 20, "bsrn"),
    record("tvm_tile_unfused", "", 6.0, 40, "bsrn"),
    record("tvm_tile", "top1", 1.0, 9, "bert_base"),
    record("tvm_tile_unfused", "", 9.0, 9, "bert_base"),
)


def test_what_joining_is_worth() -> None:
    text = welding.section(suite("models", RECORDS), RUNS)
    assert line(text, "nafnet")[1:] == [
        "float16", "64", "3.00 (0.01)", "2.00 (0.01)", "1.50", "45 → 30", "4 → 2",
        "62.0", "31.0", "2.00",
    ]  # fmt: skip
    assert line(text, "bsrn")[5:] == ["6.00", "40 → 20", "", "", "", ""]
    assert line(text, "**geometric mean**")[5] == "3.00"
    assert "bert_base" not in text
    assert welding.section(suite("models", RECORDS[:1]), RUNS) == ""


def test_a_wrong_result_has_no_ratio() -> None:
    wrong = replace(RECORDS[1], status="wrong: error above 3.0e-02")
    text = welding.section(suite("models", [RECORDS[0], wrong]), ())
    assert line(text, "nafnet")[3:6] == ["*wrong: error above 3.0e-02*", "2.00 (0.01)", ""]


def test_the_report_has_both(tmp_path: Path) -> None:
    append(tmp_path / "models.jsonl", RECORDS)
    for each in RUNS:
        store(tmp_path / FILE, each)
    assert [one.name for one in load(tmp_path)] == ["models"]
    names = {path.name for path in main(tmp_path)}
    assert {"traffic.md", "models.md", "REPORT.md"} <= names
    models = (tmp_path / "models.md").read_text(encoding="utf-8")
    assert "### What joining is worth" in models
    assert "tvm_tile_unfused" in models
    assert "[Every kernel, and whole models](traffic.md)" in (tmp_path / "REPORT.md").read_text()


def test_traffic_alone_is_a_report(tmp_path: Path) -> None:
    store(tmp_path / FILE, RUNS[2])
    assert {path.name for path in main(tmp_path)} == {"traffic.md", "REPORT.md"}
