"""OpenCL text as PoCL wants it, and which kernels may fuse products into sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from scheduled import relax_module
from tvm import relax, te, tirx
from tvm.tirx import op

import tvm_tile
from tvm_tile import compat
from tvm_tile.build import Builder
from tvm_tile.build.exact.numerics import rounds_to_integers
from tvm_tile.build.opencl import complete_opencl
from tvm_tile.build.tir_passes import lower_module
from tvm_tile.device import find_device
from tvm_tile.passes import schedule_module

pytestmark = pytest.mark.bank(4)

EMULATED = find_device("emulated")
H200 = find_device("nvidia/h200")
FUNCTIONS = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp",
    "exp2", "exp10", "floor", "log", "log10", "log1p", "log2", "nearbyint", "round", "rsqrt",
    "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
PAIRS = ("atan2", "copysign", "fmod", "hypot", "nextafter", "power", "truncmod")


def scheduled(make: Callable[..., Any], dtype: str = "float32", device: Any = EMULATED) -> Any:
    """A scheduled PrimFunc that applies ``make`` to each element of its inputs."""
    x = te.placeholder((64,), dtype, name="x")
    y = te.compute((64,), lambda i: make(x[i]), name="y")
    mod = tvm.IRModule({"main": te.create_prim_func([x, y])})
    return schedule_module(mod, device)[0]["main"]


def kernel(make: Callable[..., Any], device: Any = EMULATED) -> Any:
    mod = tvm.IRModule({"main": scheduled(make, device=device).with_attr("global_symbol", "main")})
    return lower_module(mod, compat.make_target(device)).kernels[0]


def failures(make: Callable[..., Any], dtype: str = "float32") -> dict[str, Any]:
    return Builder(EMULATED).find_failures(tvm.IRModule({"main": scheduled(make, dtype)}))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pocl_knows_every_function(name: str, dtype: str) -> None:
    assert not failures(getattr(op, name), dtype)


@pytest.mark.parametrize("name", PAIRS)
def test_pocl_knows_every_function_of_two_numbers(name: str) -> None:
    assert not failures(_pair(name))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_nvrtc_knows_every_function(dtype: str) -> None:
    one = {name: scheduled(getattr(op, name), dtype, H200) for name in FUNCTIONS}
    names = [name for name in PAIRS if (name, dtype) != ("nextafter", "float16")]
    two = {name: scheduled(_pair(name), dtype, H200) for name in names}
    assert Builder(H200).find_failures(tvm.IRModule(one | two)) == {}


def test_only_the_names_that_a_kernel_uses_are_defined() -> None:
    source = complete_opencl("y = acosf(x) + exp(x);", contract=True)
    assert source == "#define acosf acos\ny = acosf(x) + exp(x);"


@pytest.mark.parametrize("device", [EMULATED, H200], ids=str)
def test_kernels_that_round_to_integers_are_told_from_others(device: Any) -> None:
    rounding = (op.ceil, op.floor, op.trunc, op.round, op.nearbyint, _truncate)
    assert all(rounds_to_integers(kernel(make, device).module) for make in rounding)
    assert not any(rounds_to_integers(kernel(make, device).module) for make in (op.exp, op.erf))


def test_products_are_not_fused_into_what_is_rounded() -> None:
    """3.5 * 0.2857143 rounds to 1; the exact product is 4e-8 more."""

    def body(x: Any) -> Any:
        scaled = relax.op.multiply(x, relax.const(0.28571429848670959, "float32"))
        return relax.op.ceil(relax.op.subtract(scaled, relax.const(1.0, "float32")))

    model = tvm_tile.compile(relax_module(body, ((4,),)), "emulated")
    assert model(np.full(4, 3.5, "float32")).tolist() == [0.0] * 4


def _pair(name: str) -> Callable[[Any], Any]:
    return lambda x: getattr(op, name)(x, x + tirx.const(1, x.dtype))


def _truncate(x: Any) -> Any:
    return tirx.Cast("float32", tirx.Cast("int32", x))
