"""``tvm-tile doctor``, where all is installed and where nothing is."""

from __future__ import annotations

import json

import pytest

from tvm_tile.cli import capabilities, main
from tvm_tile.errors import CompilerNotFoundError

ABLE = "kernels for NVIDIA GPUs", "kernels for AMD GPUs"


def test_it_tells_what_works(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["apache-tvm"].startswith("0.27")
    by_name = {one["name"]: one for one in found["capabilities"]}
    assert all(by_name[name]["compiles"] for name in ABLE)
    assert by_name["ONNX models"]["is_ready"]
    assert by_name["kernels for the emulated device, and to run them"]["is_ready"]
    for one in found["capabilities"]:
        assert one["is_ready"] or one["remedy"]


def test_without_a_compiler_the_status_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nothing() -> capabilities.Found:
        raise CompilerNotFoundError("a compiler", "none\nof them", "get one")

    def broken() -> capabilities.Found:
        raise RuntimeError("a driver that crashed")

    monkeypatch.setattr(capabilities, "_cuda_compiler", nothing)
    monkeypatch.setattr(capabilities, "_amd_compiler", nothing)
    monkeypatch.setattr(capabilities, "_pocl", broken)
    assert main(["doctor"]) == 4
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("--  kernels for") for line in lines) == 3
    assert sum(line.endswith("remedy: get one") for line in lines) == 2
    assert any("RuntimeError: a driver that crashed" in line for line in lines)
