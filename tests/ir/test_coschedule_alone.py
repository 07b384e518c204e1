"""CoscheduleTasks as one pass of a pipeline of one's own, behind ScheduleTiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import tvm
from tvm import IRModule, relax
from tvm.relax import op

import tvm_tile
from tvm_tile import compat
from tvm_tile.passes import CoscheduleTasks, LiftWorkspaces, ScheduleTiles
from tvm_tile.passes.coschedule.coschedule_tasks import Apart, Coscheduled

H200 = tvm_tile.find_device("nvidia/h200")
BRANCHES = 4


def branches(dtype: str = "float32") -> IRModule:
    """Branches of two small kernels each, and an argmax, which no rule of ours takes."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64, 512), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            sums = [
                builder.emit(op.sum(op.multiply(x, relax.const(float(n), dtype)), 1))
                for n in range(1, BRANCHES + 1)
            ]
            outputs = [builder.emit(op.nn.softmax(total, 0)) for total in sums]
            outputs.append(builder.emit(op.argmax(x, 1)))
            result = builder.emit_output(relax.Tuple(outputs))
        builder.emit_func_output(result)
    return builder.get()


def coscheduled(
    device: tvm_tile.Device,
    made: list[Coscheduled],
    apart: list[Apart],
    refused: Mapping[str, str] | None = None,
    dtype: str = "float32",
) -> IRModule:
    passes = [
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        ScheduleTiles(device),
        LiftWorkspaces(),
        CoscheduleTasks(device, None, made.append, refused, apart.append),
    ]
    with compat.make_target(device):
        return tvm.transform.Sequential(passes)(branches(dtype))


def called(mod: IRModule) -> list[str]:
    found: list[str] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and str(getattr(expr.op, "name", "")) == "relax.call_tir":
            found.append(str(expr.args[0].name_hint))

    relax.analysis.post_order_visit(mod["main"], visit)
    return found


def test_small_kernels_become_one_and_what_has_no_prediction_stays_apart() -> None:
    made: list[Coscheduled] = []
    apart: list[Apart] = []
    mod = coscheduled(H200, made, apart)
    names = called(mod)
    (one,) = made
    assert one.name in names
    assert one.plan.seconds < one.apart_seconds
    assert len(one.operators) + len(apart) == 2 * BRANCHES + 1
    assert {each.function for each in apart} <= set(names)
    assert [a.reason for a in apart if "argmax" in a.function] == [
        "not one that a persistent kernel can take in"
    ]
    relax.analysis.well_formed(mod)  # raises where it is not


def test_half_precision_stays_apart() -> None:
    made: list[Coscheduled] = []
    apart: list[Apart] = []
    mod = coscheduled(H200, made, apart, dtype="float16")
    assert made == []
    assert {each.function for each in apart} == set(called(mod))


def test_a_refused_kernel_is_not_made_and_its_calls_say_why() -> None:
    made: list[Coscheduled] = []
    coscheduled(H200, made, [])
    again: list[Coscheduled] = []
    apart: list[Apart] = []
    mod = coscheduled(H200, again, apart, {made[0].name: "it does not build"})
    assert made[0].name not in called(mod)
    assert again == []
    assert len(apart) == 2 * BRANCHES + 1
    reasons = [each.reason for each in apart]
    assert reasons.count("it does not build") == len(made[0].operators)


def test_a_device_without_a_barrier_has_nothing_to_say() -> None:
    without = replace(H200, supports_grid_barrier=False, grid_barrier_latency=None)
    made: list[Coscheduled] = []
    apart: list[Apart] = []
    mod = coscheduled(without, made, apart)
    assert not any("coscheduled" in name for name in called(mod))
    assert made == apart == []
