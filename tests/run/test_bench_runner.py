"""The benchmark's runner on systems that are wrong, crash, hang, refuse, or are not there."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from bench import record as records
from bench.gpu import Cores, GpuLock
from bench.machine import Machine
from bench.record import Record
from bench.runner import Plan, Runner
from bench.workload import Workload
from tests import fake_bench

MACHINE = Machine(
    gpu="none",
    driver="none",
    versions="good 1.0",
    date="2026-01-02",
    peak_flops={"float32": 1e12},
    copy_bandwidth=1e9,
    missing={"tests.fake_bench:Absent": "not installed here"},
)


def run(
    path: Path,
    *systems: str,
    workloads: tuple[Workload, ...] | None = None,
    skip: tuple[records.Key, ...] = (),
    **limits: float,
) -> tuple[dict[tuple[str, str], Record], list[str]]:
    """(workload, system) -> record, and what was said."""
    named = tuple(
        (f"tests.fake_bench:{system}", (getattr(fake_bench, system).name, "")) for system in systems
    )
    plan = Plan(
        workloads=workloads or fake_bench.workloads()[:1],
        systems=named,
        device="emulated",
        results=path.parent,
        ending=path.name.removeprefix("fake_bench"),
        commit="abc",
        command="python -m bench run",
        phase_limit_s=limits.get("phase_limit_s", 60.0),
        limit_s=limits.get("limit_s", float("inf")),
    )
    lines: list[str] = []
    Runner(plan, MACHINE, lines.append).run(skip)
    return {(r.workload, r.system): r for r in records.read(path).values()}, lines


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Record]:
    """All of the systems that end by themselves, on one workload."""
    path = tmp_path_factory.mktemp("bench") / "fake_bench.jsonl"
    systems = ("Good", "Wrong", "Lazy", "Refusing", "Raising", "Crashing", "Absent")
    return run(path, *systems)[0]


def test_a_good_system_is_measured(measured: dict[tuple[str, str], Record]) -> None:
    good = measured["sum_64", "good"]
    assert good.status == "ok"
    assert good.median_ms is not None
    assert good.median_ms > 0
    assert good.repeats >= 15
    assert good.error is not None
    assert good.error < 1e-6
    assert good.compile_s is not None
    assert (good.kernels, good.note) == (1, "fine")
    # 768 bytes at 1 GB/s take longer than 64 operations at 1 TFLOP/s.
    assert good.floor_ms == pytest.approx(768e-9 * 1e3)
    assert (good.gpu, good.versions, good.commit) == ("none", "good 1.0", "abc")
    assert (good.date, good.command) == ("2026-01-02", "python -m bench run")


def test_a_wrong_result_is_no_result(measured: dict[tuple[str, str], Record]) -> None:
    wrong = measured["sum_64", "wrong"]
    assert wrong.status.startswith("wrong")
    assert not wrong.is_right
    assert wrong.error is not None
    assert wrong.error > 1e-3


def test_an_element_that_nobody_writes_is_found(measured: dict[tuple[str, str], Record]) -> None:
    lazy = measured["sum_64", "lazy"]
    assert lazy.status.startswith("wrong")
    assert lazy.error != lazy.error  # NaN, from the poisoned memory


def test_reasons_are_recorded(measured: dict[tuple[str, str], Record]) -> None:
    assert measured["sum_64", "refusing"].status == "not supported: it does not add"
    raising = measured["sum_64", "raising"].status
    assert raising == "failed: ZeroDivisionError: a bug of the peer's"
    assert measured["sum_64", "absent"].status == "missing: not installed here"


def test_a_crash_costs_only_the_one_who_crashes(measured: dict[tuple[str, str], Record]) -> None:
    assert "killed by signal 11" in measured["sum_64", "crashing"].status
    assert "timing" in measured["sum_64", "crashing"].status
    assert measured["sum_64", "good"].status == "ok"


@pytest.mark.whole
def test_hanging_is_bounded_and_costs_only_the_one_who_hangs(tmp_path: Path) -> None:
    found, _ = run(
        tmp_path / "fake_bench.jsonl", "Hanging", "HangingOnGpu", "Good", phase_limit_s=15.0
    )
    assert found["sum_64", "hanging"].status == "hangs: more than 15 s while compiling"
    assert found["sum_64", "hanging_on_gpu"].status == "hangs: more than 15 s while starting"
    assert found["sum_64", "good"].status == "ok"


def test_a_workload_that_cannot_be_built_is_given_up(tmp_path: Path) -> None:
    broken = dataclasses.replace(fake_bench.workloads()[0], name="broken")
    found, _ = run(tmp_path / "fake_bench.jsonl", "Good", workloads=(broken,))
    assert "exit status 4" in found["broken", "good"].status
    assert "building the workload" in found["broken", "good"].status


def test_what_is_measured_is_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "fake_bench.jsonl"
    first, _ = run(path, "Good")
    date = dataclasses.replace(first["sum_64", "good"], date="2020-01-01")
    path.write_text("")
    records.append(path, [date])
    both, lines = run(
        path, "Good", workloads=fake_bench.workloads(), skip=tuple(records.read(path))
    )
    assert both["sum_64", "good"].date == "2020-01-01"
    assert both["sum_96", "good"].date == "2026-01-02"
    assert lines[0].startswith("1 results to get")


def test_a_run_ends_at_its_limit(tmp_path: Path) -> None:
    found, lines = run(tmp_path / "fake_bench.jsonl", "Good", limit_s=0.0)
    assert found == {}
    assert any("out of time: 1 workloads are left" in line for line in lines)


@pytest.mark.parametrize(("cores", "quiet"), [(2, 0), (7, 0), (16, 2)])
def test_who_holds_the_gpu_has_processors_of_its_own(
    cores: int, quiet: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pinned: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, own: pinned.append(set(own)))
    lock = GpuLock(tmp_path / "lock", cores=Cores.of_machine(0))
    with lock:
        pass
    lock._file.close()
    expected = [set(range(quiet, cores)), set(range(quiet)), set(range(quiet, cores))]
    assert pinned == (expected if quiet else [])
