"""Constants come to the compiler with all their digits."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scheduled import relax_module
from tvm import relax
from tvm.relax import op

import tvm_tile


@pytest.mark.parametrize("value", [1.2345678901234567e-20, -0.1, 2 / 3, 1e15 / 7, 0.5, 3e20])
@pytest.mark.parametrize("device", ["amd/mi300x", "nvidia/h200"])
def test_a_constant_is_exact(value: float, device: str) -> None:
    constant = relax.const(np.array(value), "float64")
    mod = relax_module(lambda x: op.multiply(x, constant), ((64,),), "float64")
    compiled = tvm_tile.compile(mod, device=device, options=tvm_tile.Options(cache=False))
    (text,) = (kernel.source for kernel in compiled.program.kernels)
    factor = re.search(r"\] \* (.*)\);\n", text)
    assert factor is not None
    # C's text of it, as Python.
    assert eval(re.sub(r"\(double\)|LL|\(int64_t\)", "", factor[1])) == value


@pytest.mark.parametrize("value", [-3.4028234663852886e38, 1 / 3, 0.5, 1e-40, 16777217.0])
def test_a_constant_is_exact_in_opencl(value: float) -> None:
    """TVM prints six digits behind the point."""
    exact = np.float32(value)
    constant = relax.const(np.array(exact), "float32")
    mod = relax_module(lambda x: op.multiply(x, constant), ((64,),))
    compiled = tvm_tile.compile(mod, device="emulated", options=tvm_tile.Options(cache=False))
    (text,) = (kernel.source for kernel in compiled.program.kernels)
    factor = re.search(r"\] \* (.*)\);\n", text)
    assert factor is not None
    names = {"ldexp": np.ldexp, "convert_float": np.float32}
    assert np.float32(eval(re.sub(r"(?<=\d)f|\(long\)", "", factor[1]), names)) == exact
