"""The script that compares a profile's sum with the time of a run, on the emulated device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import bench.profile_sums as profile_sums
from bench.lines import read_keyed


def test_a_line_is_written_for_each_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()

    def missing() -> None:
        raise ModuleNotFoundError("no such package")

    models = {
        "lstm": lambda: (small, {"example_inputs": (torch.ones(2, 8),)}),
        "detector": missing,
    }
    monkeypatch.setattr(profile_sums, "MODELS", models)
    monkeypatch.setattr(profile_sums, "TOLERANCE", 100.0)
    lines = tmp_path / "sums.jsonl"
    words = ["--device", "emulated", "--results", str(lines), "--traces", str(tmp_path)]
    assert profile_sums.main([*words, "--commit", "0000000"]) == 0
    (made,) = read_keyed(lines, profile_sums.revived).values()
    assert (made.model, made.launches, made.unseen) == ("lstm", 1, ())
    assert made.is_right
    assert made.ratio > 0
    assert made.provenance.commit == "0000000"
    assert (tmp_path / "lstm.json").is_file()
    printed = capsys.readouterr().out
    assert "detector: not measured: no such package" in printed
    monkeypatch.setattr(profile_sums, "TOLERANCE", 0.0)
    assert not made.is_right
