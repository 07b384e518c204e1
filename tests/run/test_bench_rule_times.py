"""The script that puts kernels' times beside predictions, on the emulated device."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import tvm_tile
from bench import rule_times
from bench.lines import put, read_keyed
from bench.open_shapes.record import Provenance
from tvm_tile.stages.forced import Forced

WHERE = Provenance("gpu", "driver", "versions", "0000000", "command", "2026-11-30")


def times(rule: str, *each: tuple[float, float]) -> rule_times.ModelTimes:
    kernels = tuple(rule_times.KernelTime("k", rule, "", *own) for own in each)
    return rule_times.ModelTimes("models", rule, "float16", 1, 9.0, 8.0, kernels, WHERE)


def test_rules_are_compared_by_sums_and_in_the_median() -> None:
    found = [times("mma", (2.0, 1.0), (3.0, 3.0), (4.0, 0.0)), times("row", (1.0, 2.0))]
    heads, *rows = rule_times.rows(found)
    assert heads[2:5] == ("rule", "launches", "measured us")
    assert rows == [
        ("float16", "1", "mma", "2", "5", "4", "1.25", "1.50"),
        ("float16", "1", "row", "1", "1", "2", "0.50", "0.50"),
    ]


def test_records_come_back_from_their_lines(tmp_path: Path) -> None:
    lines, made = tmp_path / "times.jsonl", times("mma", (2.0, 1.0))
    put(lines, read_keyed(lines, rule_times.revived), made)
    assert list(read_keyed(lines, rule_times.revived).values()) == [made]


def test_a_kernel_takes_what_its_run_is_longer_for_it() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Softmax(-1), nn.Linear(8, 4), nn.Softmax(-1))
    x = torch.ones(2, 8)
    options = Forced(cache=False, coschedule=False, weld=False, cuda_graph=False)
    model = tvm_tile.compile(module.eval(), "emulated", example_inputs=(x,), options=options)
    profile = model.profile(x, runs=3)
    found = rule_times.chained(profile)
    assert len(found) == len(profile.typical) - 1
    assert all(kernel.measured_us > 0 for kernel in found)
    known = {kernel.name for kernel in model.report.kernels}
    ours = [kernel for kernel in found if kernel.rule != "(not ours)"]
    assert ours
    assert {kernel.name.removesuffix("_kernel") for kernel in ours} <= known
