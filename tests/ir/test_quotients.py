"""Which kernels may leave the last bits of their quotients to be rounded away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import te
from tvm.tirx import Select, op

from tvm_tile import compat
from tvm_tile.build import Builder
from tvm_tile.build.cuda import compile_cuda
from tvm_tile.build.exact.numerics import may_round_quotients
from tvm_tile.build.tir_passes import lower_module
from tvm_tile.device import find_device
from tvm_tile.passes import schedule_module

H200 = find_device("nvidia/h200")


def scheduled(make: Callable[[Any], Any], dtype: str) -> Any:
    """A PrimFunc that stores what is made of each half, widened to float32, in ``dtype``."""
    x = te.placeholder((64,), "float16", name="x")
    y = te.compute((64,), lambda i: make(x[i].astype("float32")).astype(dtype), name="y")
    mod = tvm.IRModule({"main": te.create_prim_func([x, y])})
    return schedule_module(mod, H200)[0]["main"]


def silu(x: Any) -> Any:
    return x / (1 + op.exp(-x))


@pytest.mark.parametrize(
    ("make", "dtype", "expected"),
    [
        (silu, "float16", True),
        (silu, "bfloat16", True),
        (silu, "float32", False),
        (silu, "int8", False),
        (lambda x: op.floor(x / 3), "float16", False),
        (lambda x: op.round(1 / x), "bfloat16", False),
        (lambda x: (x / 3).astype("int32"), "float16", False),
        (lambda x: Select(x / 3 < 1, x, -x), "float16", False),
        (lambda x: op.max(x / 3, x), "float16", True),
    ],
)
def test_what_is_rounded_away_need_not_be_exact(
    make: Callable[[Any], Any], dtype: str, expected: bool
) -> None:
    main = scheduled(make, dtype).with_attr("global_symbol", "main")
    lowered = lower_module(tvm.IRModule({"main": main}), compat.make_target(H200))
    assert may_round_quotients(lowered.kernels[0].module) == expected


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_kernels_are_compiled_so(dtype: str) -> None:
    program = Builder(H200).build_functions({"silu": scheduled(silu, dtype)})["silu"]
    (kernel,) = program.kernels  # type: ignore[union-attr]
    exact = dtype == "float32"
    assert kernel.binary == compile_cuda(kernel.source, "sm_90a", exact_quotients=exact)
    assert kernel.binary != compile_cuda(kernel.source, "sm_90a", exact_quotients=not exact)
