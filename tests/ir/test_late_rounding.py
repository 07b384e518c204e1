"""Kernels round to bfloat16 what they store, and no number on the way there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.tirx import Cast, Max, Select

from tvm_tile.build import Builder, Program
from tvm_tile.build.late_rounding import round_late
from tvm_tile.device import find_device
from tvm_tile.passes import schedule_module

H200 = find_device("nvidia/h200")
NARROW, WIDE = "bfloat16", "float32"
S, X, Y = tirx.Var("s", WIDE), tirx.Var("x", NARROW), tirx.Var("y", NARROW)
ROUNDED = Cast(NARROW, S)
ONE = tirx.const(1.0, NARROW)


def wide(value: Any) -> Any:
    return Cast(WIDE, value)


def stored(value: Any) -> Any:
    return tirx.BufferStore(tirx.decl_buffer((1,), str(value.ty.dtype)), value, [0])


CHANGED: dict[str, tuple[Any, Any]] = {
    "bias, residual": (ROUNDED + X + Y, Cast(NARROW, S + wide(X) + wide(Y))),
    "there and back": (wide(ROUNDED), S),
    "constant": (ROUNDED * ONE, Cast(NARROW, S * tirx.const(1.0, WIDE))),
    "largest": (
        Max(ROUNDED, tirx.const(0.5, NARROW)) + X,
        Cast(NARROW, Max(S, tirx.const(0.5, WIDE)) + wide(X)),
    ),
    "choice": (
        Select(X < Y, ROUNDED, X * Y),
        Cast(NARROW, Select(X < Y, S, wide(X) * wide(Y))),
    ),
    "branches": (
        tirx.if_then_else(X < Y, ROUNDED, ONE),
        Cast(NARROW, tirx.if_then_else(X < Y, S, tirx.const(1.0, WIDE))),
    ),
}
KEPT: dict[str, Any] = {
    "comparison": ROUNDED < X,
    "integer": Cast("int32", ROUNDED),
    "function": tirx.floor(ROUNDED),
    "number": Max(X, Y),
    "extremum of what is loaded": Max(X, ROUNDED),
    "float16": Cast("float16", S) + tirx.Var("h", "float16"),
    "float32": S + S,
}


@pytest.mark.parametrize("name", CHANGED)
def test_one_rounding_is_left(name: str) -> None:
    before, after = CHANGED[name]
    assert tvm_ffi.structural_equal(round_late(stored(before)).value, after)


@pytest.mark.parametrize("name", KEPT)
def test_these_stay_rounded(name: str) -> None:
    assert tvm_ffi.structural_equal(round_late(stored(KEPT[name])).value, KEPT[name])


def test_sums_are_known_to_tvm() -> None:
    """What is added may be rounded later, the step stays: buffer plus something."""
    total, x = (tirx.decl_buffer((4,), NARROW, name) for name in ("total", "x"))
    own = tirx.BufferLoad(total, [0])
    step = tirx.BufferStore(total, own + tirx.BufferLoad(x, [1]), [0])
    assert tvm_ffi.structural_equal(round_late(step), step)
    squared = tirx.BufferStore(total, own + X * X * Y, [0])
    late = tirx.BufferStore(total, own + Cast(NARROW, wide(X) * wide(X) * wide(Y)), [0])
    assert tvm_ffi.structural_equal(round_late(squared), late)


def of_two(count: int, function: Callable[[Any, Any], Any]) -> Any:
    x, y = (te.placeholder((count,), NARROW, name) for name in "xy")
    result = te.compute((count,), lambda i: function(x[i], y[i]), "result")
    return te.create_prim_func([x, y, result])


@pytest.mark.parametrize(("count", "lanes"), [(37, 1), (1 << 16, 8)], ids=["one", "vectors"])
def test_text_of_a_kernel(count: int, lanes: int) -> None:
    """Of vectors of eight there are none in float32."""
    func = of_two(count, lambda x, y: (x + y) * x)
    scheduled, (report,) = schedule_module(tvm.IRModule({"main": func}), H200)
    built = Builder(H200).build_functions({report.name: scheduled[report.name]})[report.name]
    assert isinstance(built, Program), str(built)
    (kernel,) = built.kernels
    _, _, body = kernel.source.rpartition("__launch_bounds__")
    assert (body.count("(nv_bfloat16)("), body.count("(float)")) == (
        (1, 3) if lanes == 1 else (0, 0)
    )
