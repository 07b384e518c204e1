"""Floating-point arithmetic is computed as it is written, on every device: NaN comes through."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.tirx import Max, Min, Not, Select
from warp_emulator import COMPILER, emulate

from tvm_tile.build import Builder, Program
from tvm_tile.build.exact.floats import hide_arithmetic, hide_zeros, show_arithmetic
from tvm_tile.device import find_device
from tvm_tile.passes import schedule_module
from tvm_tile.passes.operators.infinite_extrema import InfiniteExtrema
from tvm_tile.registered import as_written, is_as_written

H200, MI300X = find_device("nvidia/h200"), find_device("amd/mi300x")
ZERO = tirx.const(0.0, "float32")
WRITTEN: dict[str, Callable[[Any, Any], Any]] = {
    "(x + y) - y": lambda x, y: (x + y) - y,
    "x - (x + y)": lambda x, y: x - (x + y),
    "x - x": lambda x, y: tirx.Sub(x, x),
    "x == x": lambda x, y: tirx.EQ(x, x),
    "x != x": lambda x, y: tirx.NE(x, x),
    "not x < y": lambda x, y: Not(x < y),
    "x < y or y <= x": lambda x, y: tirx.Or(x < y, y <= x),
    "x * 0": lambda x, y: tirx.Mul(x, ZERO),
    "x + 0": lambda x, y: tirx.Add(x, ZERO),
    "select - same": lambda x, y: tirx.Sub(Select(x < y, x, y), y),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_simplifier_leaves_it(name: str) -> None:
    """Without hiding, each of these would become something else."""
    x, y = tirx.Var("x", "float32"), tirx.Var("y", "float32")
    written = WRITTEN[name](x, y)
    simplify = tvm.sym.Analyzer().simplify
    assert not tvm_ffi.structural_equal(simplify(written), written)
    simplified = simplify(hide_arithmetic(written))
    entry = (tvm.ir.Call, lambda call: call.args[0] if is_as_written(call) else call)
    found = tvm_ffi.structural_map(simplified, entry, order="post")
    assert tvm_ffi.structural_equal(found, written)


def test_integers_are_simplified() -> None:
    i, j = tirx.Var("i", "int32"), tirx.Var("j", "int32")
    for written in (tirx.Sub(i + j, j), Not(i < j), tirx.Mul(i, tirx.const(0)), Max(Min(i, j), j)):
        assert hide_arithmetic(written).same_as(written)
        assert hide_zeros(written).same_as(written)


def test_shown_as_written() -> None:
    x = tirx.Var("x", "float32")
    stored = tirx.decl_buffer((1,), "float32")
    value = tirx.Sub(as_written(Max(x, tirx.const(1.0, "float32"))), x)
    function = tirx.PrimFunc([x], tirx.BufferStore(stored, value, [0]))
    shown = show_arithmetic(tvm.IRModule({"main": function}))["main"].body.value
    assert not is_as_written(shown.a)
    assert str(shown.a.args[0].value) == "maximum"


@pytest.mark.parametrize("kind", [te.max, te.min])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32"])
def test_extrema_start_at_infinities(kind: Any, dtype: str) -> None:
    x = te.placeholder((4, 8), dtype, "x")
    along = te.reduce_axis((0, 8))
    y = te.compute((4,), lambda i: kind(x[i, along], axis=along))
    before = tvm.IRModule({"main": te.create_prim_func([x, y])})
    after = InfiniteExtrema()(before)
    starts: list[Any] = []
    tvm_ffi.structural_walk(
        after["main"], (tvm.s_tir.SBlock, lambda block: starts.append(block.init))
    )
    (start,) = (float(init.value.value) for init in starts if init is not None)
    is_float = dtype != "int32"
    assert math.isinf(start) == is_float
    assert (start < 0) == (kind is te.max)
    assert after["main"].same_as(before["main"]) != is_float


def test_what_only_looks_like_a_maximum_stays() -> None:
    """A sum that starts at the lowest number means it."""
    x = te.placeholder((4, 8), "float32", "x")
    along = te.reduce_axis((0, 8))
    add = te.comm_reducer(lambda a, b: a + b, tirx.min_value)
    y = te.compute((4,), lambda i: add(x[i, along], axis=along))
    before = tvm.IRModule({"main": te.create_prim_func([x, y])})
    assert InfiniteExtrema()(before)["main"].same_as(before["main"])


def relu_and_pooling(dtype: str) -> tvm.IRModule:
    """What is above a half, or no number; the largest of each three neighbours."""
    x = te.placeholder((6, 66), dtype, "x")
    half = tirx.const(0.5, dtype)
    positive = te.compute((6, 66), lambda i, j: tirx.Max(x[i, j], half), "positive")
    near = te.reduce_axis((0, 3))
    y = te.compute((6, 64), lambda i, j: te.max(x[i, j + near], axis=near), "y")
    functions = {"relu": te.create_prim_func([x, positive]), "most": te.create_prim_func([x, y])}
    return InfiniteExtrema()(tvm.IRModule(functions))


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("device", [H200, MI300X], ids=["cuda", "amd"])
def test_text_of_gpus(device: Any, dtype: str, tmp_path: Path) -> None:
    """CUDA's and HIP's text, run on the CPU."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 66), np.float32).astype(dtype)
    x[1, 3], x[2], x[3, 60], x[4] = np.nan, -np.inf, np.inf, np.nan
    scheduled, kernels = schedule_module(relu_and_pooling(dtype), device)
    neighbours = np.stack([x[:, i : i + 64] for i in range(3)])
    wanted = {"relu": np.maximum(x, x.dtype.type(0.5)), "most": neighbours.max(0)}
    assert len(kernels) == len(wanted)
    for report in kernels:
        function = scheduled[report.name]
        program = Builder(device).build_functions({report.name: function})[report.name]
        assert isinstance(program, Program), str(program)
        (kernel,) = program.kernels
        names = [str(param.name) for param in function.params]
        result = np.zeros(wanted[report.name].shape, dtype)
        given = dict(zip(names, (x.copy(), result), strict=True))
        folder = tmp_path / report.name
        folder.mkdir()
        wave = {"wave": device.warp_size} if device is MI300X else {}
        emulate(
            kernel, report.grid, report.block, given, folder, late=False, backward=False, **wave
        )
        np.testing.assert_array_equal(result, wanted[report.name])
