"""Kernels that spill registers are told that one block may have all of them."""

from __future__ import annotations

import re

import pytest

from tvm_tile.build.cubin import resources_of
from tvm_tile.build.cuda import compile_cuda
from tvm_tile.build.machine_code import with_all_registers

pytestmark = pytest.mark.bank(6)


def kernel(held: int) -> str:
    """A kernel whose threads hold so many numbers across a barrier."""
    loads = "".join(f"  float a{i} = x[t + {i} * 256];\n" for i in range(held))
    stores = "".join(f"  x[t + {i} * 256] = a{i} * a{(i * 7 + 1) % held};\n" for i in range(held))
    return (
        'extern "C" __global__ void __launch_bounds__(256) held(float* x) {\n'
        f"  int t = threadIdx.x;\n{loads}  __syncthreads();\n{stores}}}\n"
    )


def test_what_spills_may_have_all_registers() -> None:
    source = kernel(400)
    binary = compile_cuda(source, "sm_90a")
    assert (resources_of(binary).stack or 0) > 32
    told = with_all_registers(source, binary)
    assert "__launch_bounds__(256, 1)" in told
    assert re.sub(r", 1\)", ")", told, count=1) == source
    assert with_all_registers(told, binary) == told, "told already"


def test_what_does_not_spill_stays() -> None:
    source = kernel(8)
    assert with_all_registers(source, compile_cuda(source, "sm_90a")) == source
    assert with_all_registers(source, b"") == source
