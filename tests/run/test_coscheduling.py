"""Co-scheduling as a stage of compile: what the report says, and what does not build or fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tvm import IRModule, relax
from tvm.relax import op

import tvm_tile
from tvm_tile.build import Builder
from tvm_tile.errors import BuildError
from tvm_tile.report.screen.gantt import gantt
from tvm_tile.report.shown import Report
from tvm_tile.stages import coscheduling
from tvm_tile.stages.forced import Forced
from tvm_tile.tile.time import least_seconds

H200 = tvm_tile.find_device("nvidia/h200")
BRANCHES = 6


def branches(dtype: str = "float32") -> IRModule:
    """Sums along rows, and of each its softmax: kernels that fill half of the device at most."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64, 512), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            sums = [
                builder.emit(op.sum(op.multiply(x, relax.const(float(n), dtype)), 1))
                for n in range(1, BRANCHES + 1)
            ]
            outputs = [builder.emit(op.nn.softmax(total, 0)) for total in sums]
            result = builder.emit_output(relax.Tuple(outputs))
        builder.emit_func_output(result)
    return builder.get()


def compiled(*, coschedule: bool = True) -> tvm_tile.CompiledModel:
    options = Forced(coschedule=coschedule, cache=False)
    return tvm_tile.compile(branches(), "nvidia/h200", options=options)


def test_half_precision_stays_apart() -> None:
    options = tvm_tile.Options(cache=False)
    report = tvm_tile.compile(branches("float16"), "nvidia/h200", options=options).report
    assert not report.plans
    assert sum(left.calls for left in report.left_apart) in (0, launches(report))


def launches(report: Report) -> int:
    return sum(kernel.calls for kernel in report.kernels)


def test_the_report_has_the_plan_and_a_saved_model_keeps_it(tmp_path: Path) -> None:
    apart, together = compiled(coschedule=False).report, compiled()
    report = together.report
    assert (apart.plans, apart.left_apart) == ((), ())
    (plan,) = report.plans
    assert len(plan.operators) + sum(left.calls for left in report.left_apart) == launches(apart)
    # The persistent kernel, and the one that sets its counters to zero.
    assert launches(report) == launches(apart) - len(plan.operators) + 2
    assert plan.proof.holds
    assert plan.proof.grid == plan.plan.num_veus
    assert 0 < plan.proof.registers <= 255
    # Both are sums of the same predictions, so that they differ by what was joined alone. Apart,
    # plans take short kernels behind others to start early, as in graphs; here none is in a graph,
    # as each touches an input or an output.
    assert H200.dependent_launches is not None
    early = (len(plan.operators) - 1) * H200.dependent_launches.overlap_seconds
    saved = plan.apart_seconds - plan.plan.seconds - least_seconds(H200)
    assert saved <= apart.predicted_seconds - report.predicted_seconds <= saved + early
    assert f"  {plan.name}: {len(plan.operators)} operators" in together.explain("all")
    assert gantt(plan.operators, plan.plan, H200).count("<title>") >= len(plan.operators)
    together.save(tmp_path / "model.tvmtile")
    assert tvm_tile.load(tmp_path / "model.tvmtile").report == report


def test_a_group_whose_kernel_does_not_build_is_left_apart_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find_failures = Builder.find_failures

    def fail(builder: Builder, mod: Any) -> dict[str, BuildError]:
        own = [str(var.name_hint) for var in mod.functions]
        failed = [name for name in own if name.startswith("coscheduled")]
        return find_failures(builder, mod) | {
            name: BuildError("it builds", "too many words", "none") for name in failed
        }

    monkeypatch.setattr(Builder, "find_failures", fail)
    model = compiled()
    assert model.report.plans == ()
    (left,) = (left for left in model.report.left_apart if "build" in left.reason)
    assert left.reason == "the persistent kernel did not build: too many words"
    assert left.calls > BRANCHES
    assert f"left apart, {left.calls} calls: {left.reason}" in model.explain("all")
    assert "coscheduled_" not in model.explain("all")


def test_a_group_whose_blocks_are_not_all_resident_is_left_apart_with_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    residency = coscheduling.residency

    def crowded(*given: Any) -> Any:
        return replace(residency(*given), resident=0)

    monkeypatch.setattr(coscheduling, "residency", crowded)
    report = compiled().report
    assert report.plans == ()
    assert any(
        "must be resident at once, and are 0 on each of 132" in left.reason
        for left in report.left_apart
    )
