"""``bench traffic`` from models to records, with a stand-in for Nsight Compute and no GPU."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.machine import Machine
from bench.runner import Plan
from bench.traffic.measure import Measurement
from bench.traffic.record import FILE, Key, Traffic, read
from tests import fake_bench

pytest.importorskip("pyopencl")
pytest.importorskip("torch")

# Runs the program that it is given, as Nsight Compute does, and says that every kernel of its
# model read 1000 bytes and wrote 500.
NCU = """
import csv, subprocess, sys
import tvm_tile

words = sys.argv[sys.argv.index("--print-units") + 2 :]
subprocess.run(words, check=True)
out = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL)
out.writerow(["ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"])
for number, kernel in enumerate(tvm_tile.load(words[-2]).program.kernels):
    out.writerow([number, kernel.name, "dram__bytes_read.sum", "byte", "1,000"])
    out.writerow([number, kernel.name, "dram__bytes_write.sum", "byte", "500"])
"""

MACHINE = Machine("none", "none", "tvm_tile 0", "2026-01-02", {}, None, {})
SYSTEMS = (("tvm_tile", ("tvm_tile", "top1")),)


def measured(folder: Path, ncu: str, limit_s: float) -> tuple[dict[Key, Traffic], list[str]]:
    program = folder / "ncu"
    program.write_text(f"#!{sys.executable}\n{ncu}")
    program.chmod(0o755)
    plan = Plan(
        workloads=fake_bench.workloads()[:1],
        systems=SYSTEMS,
        device="emulated",
        results=folder,
        commit="abc",
        command="python -m bench traffic",
        jobs=2,
        limit_s=limit_s,
        phase_limit_s=300.0,
    )
    lines: list[str] = []
    Measurement(plan, MACHINE, str(program), ("all", "none")).run(lines.append, time.monotonic())
    return read(folder / FILE), lines


@pytest.mark.whole
def test_models_are_compiled_profiled_and_recorded(tmp_path: Path) -> None:
    found, lines = measured(tmp_path, NCU, 600.0)
    assert sorted((r.system, r.cache_control, r.status) for r in found.values()) == [
        ("tvm_tile", cache_control, "ok") for cache_control in ("all", "none")
    ]
    for record in found.values():
        (function,) = record.functions
        assert (function.calls, function.launches) == (1, 1)
        assert (function.read, function.written) == (1000.0, 500.0)
        # Two vectors of 64 numbers in, one out.
        assert (function.predicted_read, function.predicted_written) == (512.0, 256.0)
        assert function.rule
        assert (record.commit, record.date, record.gpu) == ("abc", "2026-01-02", "none")
    assert len(lines) == 2


@pytest.mark.whole
def test_a_run_that_fails_is_recorded_with_its_reason(tmp_path: Path) -> None:
    found, _ = measured(tmp_path, "raise SystemExit('==ERROR== no permission')", 600.0)
    assert {r.status for r in found.values()} == {"failed: exit status 1: no permission"}


def test_what_is_not_done_in_time_leaves_no_record(tmp_path: Path) -> None:
    found, lines = measured(tmp_path, NCU, 0.0)
    assert found == {}
    assert lines == ["out of time: 2 runs are left"]


def test_only_systems_of_ours_have_kernels_to_attribute(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["traffic", "--suite", "models", "--workloads", "nerf"]
    assert main([*words, "--systems", "tvm_tile,torch"]) == 2
    assert "not of torch" in capsys.readouterr().err
    assert main([*words, "--systems", "tvm_tile", "--cache-control", "some"]) == 2
    assert "--cache-control is of all, none" in capsys.readouterr().err


def test_without_nsight_compute_nothing_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["traffic", "--suite", "models", "--workloads", "nerf", "--systems", "tvm_tile"]
    assert main([*words, "--ncu", "/no/such/ncu"]) == 2
    assert "/no/such/ncu is not there" in capsys.readouterr().err
