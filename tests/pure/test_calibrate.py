"""Calibration without a GPU: from readings to a record, the operands, the command's errors."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm_tile import calibrate as calibration
from tvm_tile.calibrate import compare, nearest_record, operands, sources
from tvm_tile.calibrate.driver import GpuFacts
from tvm_tile.calibrate.record import assemble, describe
from tvm_tile.calibrate.sources import CORE_STEPS_BY_DTYPE, MATRIX_STEPS
from tvm_tile.calibrate.timing import measure, rounds_of_run, summarize
from tvm_tile.cli import main
from tvm_tile.device import Device, MemoryLevel, Reading, find_device
from tvm_tile.device.record import from_json, read_record, to_json
from tvm_tile.errors import CalibrationError

CONSTANT = re.compile(r"constexpr int (\w+) = (\d+);")
FACTS = GpuFacts(
    name="NVIDIA H200",
    driver="580.1 (CUDA 13.0)",
    compute_version=(9, 0),
    multi_processor_count=132,
    warp_size=32,
    max_threads_per_block=1024,
    max_threads_per_multi_processor=2048,
    registers_per_block=65536,
    registers_per_multi_processor=65536,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multi_processor=233472,
    l2_capacity=60 << 20,
    global_capacity=150 * 10**9,
    clock=1.98e9,
)
READINGS = (
    Reading("stream_launch_latency", "", 2.34567e-6, "s", 0.01),
    Reading("launch_latency", "", 1.5e-6, "s", 0.01),
    Reading("grid_barrier_latency", "", 1.1e-6, "s", 0.01),
    Reading("copy_bandwidth", "", 4.2e12, "B/s", 0.001),
    Reading("read_bandwidth", "", 4.4e12, "B/s", 0.001),
    Reading("l2_bandwidth", "", 6e12, "B/s", 0.001),
    Reading("shared_bandwidth", "", 3e13, "B/s", 0.001),
    Reading("peak_flops", "float32", 6e13, "op/s", 0.001),
    Reading("clock", "float32", 1.8e9, "Hz", 0.0),
    Reading("peak_flops", "bfloat16", 1.2e14, "op/s", 0.001),
    Reading("clock", "bfloat16", 1.7e9, "Hz", 0.0),
    Reading("matrix_flops", "float16 wgmma.m64n256k16", 8.001234e14, "op/s", 0.001),
    Reading("matrix_flops", "float16 mma.m16n8k16", 6e14, "op/s", 0.001),
)
VERSIONS = (("tvm_tile", "1"), ("cuda-bindings", "13.3"))


def assembled(**changes: Any) -> Device:
    facts = replace(FACTS, **changes)
    return assemble(facts, READINGS, date="2026-11-21", versions=VERSIONS)


def test_a_record_holds_what_was_measured() -> None:
    device = assembled()
    assert device.name == "nvidia/h200"
    assert device.memory(MemoryLevel.GLOBAL).bandwidth == 4.2e12
    assert device.memory(MemoryLevel.GLOBAL).capacity == FACTS.global_capacity
    assert device.memory(MemoryLevel.SHARED).bandwidth == 3e13
    assert device.memory(MemoryLevel.REGISTER).bandwidth == 3.6e14
    assert (device.read_bandwidth, device.l2_bandwidth) == (4.4e12, 6e12)
    assert (device.launch_latency, device.stream_launch_latency) == (1.5e-6, 2.346e-6)
    assert device.grid_barrier_latency == 1.1e-6
    assert device.l2_capacity == 60 << 20
    assert device.clock == 1.8e9, "the clock under float32's load"
    assert device.measured is not None
    assert device.measured.readings == READINGS
    assert (device.measured.date, device.measured.gpu) == ("2026-11-21", "NVIDIA H200")
    assert from_json(to_json(device)) == device


def test_the_faster_instruction_counts_and_other_dtypes_keep_their_rates() -> None:
    device, built_in = assembled(), find_device("nvidia/h200")
    assert dict(device.matrix_flops)["float16"] == 8.001e14
    assert dict(device.matrix_flops)["int8"] == dict(built_in.matrix_flops)["int8"]
    assert dict(device.peak_flops)["bfloat16"] == 1.2e14
    assert dict(device.peak_flops)["float64"] == built_in.flops("float64")


def test_an_unknown_gpu_gets_its_own_record() -> None:
    device = assembled(
        name="NVIDIA GeForce RTX 3080",
        compute_version=(8, 6),
        multi_processor_count=68,
        max_threads_per_multi_processor=1536,
        shared_memory_per_block_optin=101376,
        shared_memory_per_multi_processor=102400,
    )
    assert device.name == "nvidia/geforce-rtx-3080"
    assert dict(device.target)["arch"] == "sm_86"
    assert dict(device.target)["max_shared_memory_per_block"] == 101376
    assert device.memory(MemoryLevel.SHARED).capacity == 101376
    assert device.max_threads_per_multi_processor == 1536
    assert from_json(to_json(device)) == device


@pytest.mark.parametrize("name", ["NVIDIA H200", "NVIDIA H100 80GB HBM3"])
def test_measured_gpus_keep_the_times_that_were_fitted_to_them(name: str) -> None:
    device = assembled(name=name, global_capacity=80 * 10**9 if "H100" in name else 150 * 10**9)
    assert device.times == find_device(device.name).times
    assert not device.is_estimated


def test_the_comparison_shows_both_records() -> None:
    device = assembled()
    rows = {quantity: (new, old) for quantity, new, old in compare(device, nearest_record(FACTS))}
    built_in = find_device("nvidia/h200")
    old = f"{built_in.memory(MemoryLevel.GLOBAL).bandwidth / 1e12:.3f} TB/s"
    assert rows["copy, read + write"] == ("4.200 TB/s", old)
    assert rows["matrix units, float16"][0] == "800.1 Top/s"
    assert rows["grid barrier"][0] == "1.10 µs"
    assert compare(device, find_device("emulated"))[11] == ("grid barrier", "1.10 µs", "-")


@pytest.mark.parametrize(
    ("reading", "line"),
    [
        (READINGS[0], "stream launch latency: 2.346 µs, spread 1.0%"),
        (READINGS[3], "copy bandwidth: 4.2 TB/s, spread 0.1%"),
        (
            Reading("matrix_flops", "float8_e4m3 mma", 1e15, "op/s", None),
            "matrix flops float8_e4m3 mma: 1000 Top/s",
        ),
    ],
)
def test_a_reading_is_one_line(reading: Reading, line: str) -> None:
    assert describe(reading) == line


class FakeGpu:
    """Takes ``seconds_of_round`` for each round, and remembers how often it was asked."""

    def __init__(self, seconds_of_round: float) -> None:
        self.seconds_of_round = seconds_of_round
        self.rounds = 0
        self.repeats: list[int] = []

    def launch(self, rounds: int) -> None:
        self.rounds = rounds

    def time(
        self, queue: Callable[[], None], repeats: int, before: Callable[[], None] = lambda: None
    ) -> list[float]:
        before()
        queue()
        self.repeats.append(repeats)
        return [self.seconds_of_round * self.rounds] * repeats


@pytest.mark.parametrize("seconds", [1e-9, 3e-6, 1e-3, 1.0])
def test_a_run_is_long_enough_to_time(seconds: float) -> None:
    fake = FakeGpu(seconds)
    rounds = rounds_of_run(fake, fake.launch, 8e-3)  # type: ignore[arg-type]
    assert rounds == 1 or rounds * seconds == pytest.approx(8e-3, rel=0.2)
    assert len(fake.repeats) < 15


def test_the_warm_up_is_not_part_of_the_sample() -> None:
    fake = FakeGpu(1e-3)
    slow = itertools.chain([1000], itertools.repeat(1))
    sample = measure(fake, lambda: fake.launch(next(slow)), 15, warm_up_s=0.0)  # type: ignore[arg-type]
    assert (sample.seconds, sample.spread) == (1e-3, 0.0)
    assert fake.repeats == [2, 15]


def test_a_sample_is_median_and_relative_spread() -> None:
    sample = summarize([1.0, 2.0, 3.0, 4.0, 100.0])
    assert (sample.seconds, sample.spread) == (3.0, pytest.approx(2 / 3))


@pytest.mark.parametrize("step", CORE_STEPS_BY_DTYPE, ids=lambda step: step.dtype)
def test_chains_neither_grow_nor_vanish(step: Any) -> None:
    size = 4096
    raw = operands.contractions(step.dtype, size, size)
    assert raw.nbytes == 2 * size
    if step.dtype == "int8":
        assert len(np.unique(raw)) > 200
        return
    factors, terms = np.split(operands.widen(raw.view(np.uint8), step.dtype), 2)
    assert 0.49 < np.abs(factors).min() < np.abs(factors).max() < 0.91
    assert 0.49 < np.abs(terms).min() < np.abs(terms).max() < 1.51
    sums = np.zeros_like(terms)
    for i in range(200):
        sums = sums * np.roll(factors, i) + np.roll(terms, 3 * i)
    assert 0.5 < np.abs(sums).mean() < np.abs(sums).max() < 15


@pytest.mark.parametrize("dtype", sorted({step.dtype for step in MATRIX_STEPS}))
def test_operands_of_products_are_finite_and_one_is_one(dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kinds = {
        "bfloat16": ml_dtypes.bfloat16,
        "float8_e4m3": ml_dtypes.float8_e4m3fn,
        "tf32": np.float32,
    }
    kind = kinds.get(dtype, dtype)
    values = operands.normal(dtype, 1 << 14)
    assert values.nbytes == 1 << 14
    numbers = np.frombuffer(values.tobytes(), kind).astype(np.float64)
    assert np.isfinite(numbers).all()
    assert len(np.unique(numbers)) > 90
    assert abs(numbers.mean()) < 0.1 * numbers.std()
    ones = np.frombuffer(operands.ones(dtype, 64).tobytes(), kind)
    assert (ones.astype(np.float64) == 1).all()
    assert ones.nbytes == 64


def test_float8_is_measured_only_where_mma_has_it() -> None:
    float8 = next(step for step in MATRIX_STEPS if step.dtype == "float8_e4m3")
    on = [
        version for version in ((8, 0), (8, 9), (9, 0), (10, 0), (12, 0)) if float8.is_on(version)
    ]
    assert on == [(8, 9), (12, 0)]


@pytest.fixture
def _no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = pytest.importorskip("cuda.bindings.driver")

    def missing(flags: int) -> tuple[int]:
        raise RuntimeError('"cuda" is an NVIDIA driver library\nand more lines')

    monkeypatch.setattr(driver, "cuInit", missing)


@pytest.mark.usefixtures("_no_driver")
def test_without_a_gpu_the_command_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.json"
    assert main(["calibrate", "-o", str(path)]) == 4
    message = capsys.readouterr().err
    assert message.startswith("tvm-tile: error: calibration needs an NVIDIA GPU")
    assert 'found:  "cuda" is an NVIDIA driver library\n' in message
    assert "remedy: run it where `nvidia-smi` lists a GPU" in message
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["-o", "/no/such/folder/x.json"], "/no/such/folder"),
        (["-o", "x.txt"], "must end in .json"),
    ],
)
def test_wrong_arguments_are_told_before_measuring(
    words: list[str],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(calibration, "first_gpu", lambda: pytest.fail("too late"))
    assert main(["calibrate", *words]) == 2
    assert problem in capsys.readouterr().err


def test_a_count_of_repeats_is_at_least_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["calibrate", "--repeats", "0"])
    assert "'0' is no whole number from 1 on" in capsys.readouterr().err


class PresentGpu:
    """A GPU that is asked for its facts only."""

    def facts(self) -> GpuFacts:
        return FACTS


@pytest.fixture
def _measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "first_gpu", lambda: nullcontext(PresentGpu()))
    monkeypatch.setattr(calibration, "_measure", lambda *_: iter(READINGS))


@pytest.mark.usefixtures("_measured")
def test_the_command_writes_a_record_and_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["calibrate"]) == 0
    captured = capsys.readouterr()
    written = read_record(tmp_path / "nvidia_h200.json")
    assert written.measured is not None
    assert written.measured.readings == READINGS
    assert find_device(str(tmp_path / "nvidia_h200.json")) == written
    assert len(captured.err.splitlines()) == 1 + len(READINGS)
    heading, *rows, last = captured.out.splitlines()
    assert heading.split() == ["quantity", "measured", "built", "in", "(nvidia/h200)"]
    assert any(row.startswith("L2 read") and "6.00 TB/s" in row for row in rows)
    assert last == "nvidia_h200.json: use it with --device nvidia_h200.json"


@pytest.mark.usefixtures("_measured")
def test_a_failure_on_the_way_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(*_: Any) -> Any:
        yield READINGS[0]
        raise CalibrationError("a driver", "a fault", "another GPU")

    monkeypatch.setattr(calibration, "_measure", failing)
    path = tmp_path / "mine.json"
    path.write_text("old")
    assert main(["calibrate", "-o", str(path)]) == 4
    assert "a fault" in capsys.readouterr().err
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("memory", {"COPY_DEPTH": 4, "READ_DEPTH": 8, "SHARED_THREADS": 256}),
        ("cuda_cores", {"THREADS": 256, "CHAINS": 8, "STEPS": 64, "OPERANDS": 4}),
        ("mma", {"THREADS": 128, "ROWS": 2, "COLUMNS": 4, "STEPS": 4}),
    ],
)
def test_the_host_knows_the_kernels_constants(name: str, expected: dict[str, int]) -> None:
    prefix = {"memory": "", "cuda_cores": "CORE_", "mma": "MMA_"}[name]
    found = {key: int(value) for key, value in CONSTANT.findall(sources.kernel_text(name))}
    assert found == expected
    assert {key: getattr(sources, prefix + key) for key in expected} == expected


def test_the_host_knows_the_warp_groups_constants() -> None:
    constants = {key: int(value) for key, value in CONSTANT.findall(sources.kernel_text("wgmma"))}
    rows = constants["GROUPS"] * 64 + 256
    assert constants["GROUPS"] * 128 == sources.WGMMA_THREADS
    assert constants["SUMS"] == sources.WGMMA_SUMS == 64 * 256 / 128
    steps = constants["ROW_BYTES"] // constants["STEP_BYTES"]
    assert constants["STAGES"] * steps == sources.WGMMA_STEPS
    assert constants["STAGES"] * rows * constants["ROW_BYTES"] == sources.WGMMA_SHARED_BYTES
    assert FACTS.shared_memory_per_block_optin > sources.WGMMA_SHARED_BYTES
    widths = {"bfloat16": 2, "float16": 2, "float8_e4m3": 1, "int8": 1, "tf32": 4}
    for step in sources.WARP_GROUP_STEPS:
        assert step.depth * widths[step.dtype] == constants["STEP_BYTES"]
