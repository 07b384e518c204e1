"""Casts to wider numbers stand behind what only moves them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from cpu_build import CPU
from kernels import Case, Input, prim_functions
from scheduled import relax_module
from tvm import relax
from tvm.relax import op

from tvm_tile.build import Builder
from tvm_tile.device import find_device
from tvm_tile.graph.extract import extract
from tvm_tile.passes import WidenLate, schedule_module

H200 = find_device("nvidia/h200")


def wide(x: Any) -> Any:
    return op.astype(x, "float32")


def widened(body: Any, dtype: str) -> tuple[Any, Any]:
    """A function of a tensor of shape (4, 6, 10), before and after."""
    before = relax.transform.ConvertToDataflow()(
        relax.transform.Normalize()(relax_module(body, ((4, 6, 10),), dtype))
    )
    after = tvm.transform.Sequential([WidenLate(), relax.transform.DeadCodeElimination()])(before)
    assert relax.analysis.check_well_formed(after)
    return before, after


def run(mod: Any, x: np.ndarray) -> np.ndarray:
    built = tvm.compile(mod, CPU)
    return relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()


MOVES = {
    "slice": lambda x: op.strided_slice(x, [1], [2], [6], [2]),
    "permute": lambda x: op.permute_dims(x, [0, 2, 1]),
    "slice and squeeze": lambda x: op.squeeze(op.strided_slice(x, [1], [2], [3]), [1]),
    "reshape": lambda x: op.reshape(x, (24, 10)),
    "split": lambda x: op.split(x, 2, 1)[1],
}


@pytest.mark.parametrize("name", MOVES)
def test_moves_are_of_narrow_numbers(name: str) -> None:
    def body(x: Any) -> Any:
        return op.sin(MOVES[name](wide(x)))

    before, after = widened(body, "float16")
    for binding in after["main"].body.blocks[0].bindings:
        kind = getattr(getattr(binding.value, "op", None), "name", "")
        if kind not in ("relax.astype", "relax.sin", ""):
            for field in getattr(binding.var.ty, "fields", [binding.var.ty]):
                assert field.dtype == "float16"
    x = np.random.default_rng(0).standard_normal((4, 6, 10)).astype("float16")
    np.testing.assert_array_equal(run(after, x), run(before, x))


def clipped(least: float, most: float) -> Any:
    return lambda x: op.sin(op.astype(op.clip(wide(x), least, most), "float16"))


@pytest.mark.parametrize("bounds", [(0, 6), (-0.5, 1.25), (0, float("inf"))], ids=str)
def test_clips_are_of_narrow_numbers(bounds: tuple[float, float]) -> None:
    before, after = widened(clipped(*bounds), "float16")
    assert "float32" in before.script()
    assert "float32" not in after.script()
    x = np.random.default_rng(0).standard_normal((4, 6, 10)).astype("float16") * 8
    x[0, 0, :5] = np.nan, np.inf, -np.inf, -0.0, 65504
    np.testing.assert_array_equal(run(after, x), run(before, x))


@pytest.mark.parametrize("bounds", [(0, 6.001), (float("nan"), 1), (-1e6, 1e6)], ids=str)
def test_bounds_that_are_no_narrow_numbers_stay_wide(bounds: tuple[float, float]) -> None:
    before, after = widened(clipped(*bounds), "float16")
    tvm.ir.assert_structural_equal(after, before)


@pytest.mark.parametrize(("start", "end"), [("float32", "float16"), ("float16", "int32")])
def test_other_casts_stay(start: str, end: str) -> None:
    before, after = widened(lambda x: op.permute_dims(op.astype(x, end), [0, 2, 1]), start)
    tvm.ir.assert_structural_equal(after, before)


def test_a_gated_unit_reads_half_precision() -> None:
    def body(x: Any, w: Any, b: Any) -> Any:
        y = op.astype(op.matmul(x, w, out_dtype="float32"), "float16")
        parts = relax.BlockBuilder.current().emit(op.split(wide(op.add(y, b)), 2, 1))
        first, second = parts[0], parts[1]
        return op.astype(op.multiply(first, op.sigmoid(second)), "float16")

    case = Case(
        "gate",
        "elementwise wgmma",
        body,
        (Input((4096, 64), "float16"), Input((64, 1024), "float16"), Input((1024,), "float16")),
    )
    functions = prim_functions(case, H200)
    graphs = [extract(func) for func in functions.values()]
    assert len(graphs) == 2
    dtypes = {t.dtype for g in graphs if g for t in (*g.inputs, *g.outputs)}
    assert dtypes == {"float16"}
    scheduled, reports = schedule_module(tvm.IRModule(functions), H200)
    (gate,) = (report for report in reports if report.rule == "elementwise")
    # TVM writes no constants in vectors of eight float32.
    assert gate.tile.endswith("thread 4")
    assert not Builder(H200).find_failures(tvm.IRModule({"gate": scheduled[gate.name]}))
