"""NaN comes through extrema, at the price of none: the text that CUDA and HIP kernels call."""

from __future__ import annotations

import re

import pytest

from tvm_tile.build.cubin import instructions
from tvm_tile.build.cuda import END_OF_PRELUDE, compile_cuda, nvrtc_architectures
from tvm_tile.build.hip import assembly_of
from tvm_tile.build.zig import zig_version

ARCHITECTURES = nvrtc_architectures()
NEWER = sorted(
    {number for number in ARCHITECTURES if number in (80, 90) or number == ARCHITECTURES[-1]}
)
HEADERS = f"#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#if 1\n{END_OF_PRELUDE}"
KERNEL = """
extern "C" __global__ void kernel(type* p) {{
  type most = p[threadIdx.x];
  for (int i = 1; i < 9; ++i) most = {maximum}(most, p[threadIdx.x + 32 * i]);
  p[threadIdx.x] = {minimum}(most, p[threadIdx.x + 512]);
}}
"""


def kernel(of: str, maximum: str = "maximum", minimum: str = "minimum") -> str:
    return KERNEL.replace("type", of).format(maximum=maximum, minimum=minimum)


@pytest.mark.skipif(not ARCHITECTURES, reason="needs NVRTC")
@pytest.mark.parametrize("arch", [f"sm_{number}" for number in NEWER])
@pytest.mark.parametrize(
    ("of", "names"),
    [
        ("float", ("fmaxf", "fminf")),
        ("half", ("__hmax", "__hmin")),
        ("half2", ("__hmax2", "__hmin2")),
        ("nv_bfloat16", ("__hmax", "__hmin")),
    ],
)
def test_no_instruction_more(of: str, names: tuple[str, str], arch: str) -> None:
    """From sm_80 on NaN comes through as fast as it is swallowed."""
    exact, plain = (compile_cuda(HEADERS + kernel(of, *n), arch) for n in ((), names))
    assert exact != plain
    assert instructions(exact) <= instructions(plain)


@pytest.mark.skipif(75 not in ARCHITECTURES, reason="needs an NVRTC that knows sm_75")
def test_older_gpus() -> None:
    """They have no such instruction: a comparison and a choice."""
    for of in ("float", "double", "half", "half2"):
        assert instructions(compile_cuda(HEADERS + kernel(of), "sm_75")) > 0


@pytest.mark.skipif(zig_version() == "none", reason="needs ziglang")
def test_amd() -> None:
    """One instruction where there is one; three where there is not, and two with a constant."""
    found = assembly_of(kernel("float"), "gfx950")
    assert len(re.findall(r"v_(?:max|min)imum3_f32", found)) >= 5
    assert not re.search(r"v_cmp|v_cndmask", found)
    found = assembly_of(kernel("float"), "gfx942")
    assert len(re.findall("v_cndmask", found)) == 9
    relu = 'extern "C" __global__ void relu(float* p) { *p = maximum(*p, 0.0f); }'
    found = assembly_of(relu, "gfx942")
    assert len(re.findall(r"v_(?:cmp|cndmask|max)_?", found)) == 2
