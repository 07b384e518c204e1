"""``tvm-tile profile`` and ``compare`` on a small ONNX model and the emulated device."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from test_command_line import onnx_file, saved  # noqa: F401

from tvm_tile.cli import main


def test_profile_prints_a_screen(
    saved: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["profile", str(saved), "--runs", "2"]) == 0
    captured = capsys.readouterr()
    first, *rest = captured.out.splitlines()
    assert first.startswith("emulated: 2 runs watched by the CPU's clock")
    assert len(rest) < 40
    assert captured.err == "emulated: these times say nothing about any GPU\n"


def test_profile_tells_other_programs_and_writes_a_trace(
    saved: Path,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.save(tmp_path / "x.npy", np.ones((3, 4), "float32"))
    trace = tmp_path / "trace.json"
    words = ["profile", str(saved), "--input-file", str(tmp_path / "x.npy"), "--runs", "1"]
    assert main([*words, "--json", "--trace", str(trace), "--quiet"]) == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert told["watched_runs"] == 1
    assert told["kernels"][0]["seconds"] > 0
    assert captured.err == ""
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"X", "M"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--extent", "n=2"], "n"),
        (["--trace", "/nowhere/trace.json"], "folder of the output must exist"),
        (["--input-file", "missing.npy"], "missing.npy"),
    ],
)
def test_what_does_not_serve_is_told(
    words: list[str],
    told: str,
    saved: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["profile", str(saved), *words]) == 2
    assert told in capsys.readouterr().err


def test_compare_tells_how_saved_models_differ(
    onnx_file: Path,  # noqa: F811
    saved: Path,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    larger = tmp_path / "larger.tvmtile"
    words = ["compile", str(onnx_file), "--device", "emulated", "--input", "x=300x4"]
    assert main([*words, "--low-bit", "all", "-o", str(larger)]) == 0
    capsys.readouterr()
    assert main(["compare", str(saved), str(larger)]) == 0
    told = capsys.readouterr().out
    assert "default options" in told
    assert "low_bit=True" in told
    assert "b takes " in told
    assert "estimated" in told
    assert main(["compare", str(saved), str(saved), "--runs", "1"]) == 0
    assert "measured" in capsys.readouterr().out


def test_only_saved_models_are_compared(
    onnx_file: Path,  # noqa: F811
    saved: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["compare", str(saved), str(onnx_file)]) == 2
    assert "tvm-tile compile saves one" in capsys.readouterr().err
