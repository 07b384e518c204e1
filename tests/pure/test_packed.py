"""Text of kernels with pairs of halves: what becomes one instruction, and what stays."""

from __future__ import annotations

import pytest

from tvm_tile.build.cubin import instructions
from tvm_tile.build.cuda import END_OF_PRELUDE, compile_cuda, nvrtc_architectures
from tvm_tile.build.packed import pack_halves

DECLARED = """  half2 a;
  half2 b = *(half2*)(p + 0);
  half4 c;
  half4 d = *(half4*)(p + 4);
  float2 e;
  float4 f;
  nv_bfloat162 g;
"""


def packed(lines: str, *, contract: bool = True) -> str:
    """What lines become behind the declarations, which must stay."""
    text = pack_halves(DECLARED + lines, contract=contract)
    assert text.startswith(DECLARED)
    return text.removeprefix(DECLARED)


@pytest.mark.parametrize(
    ("sign", "name"), [("+", "__hadd2"), ("-", "__hsub2"), ("*", "__hmul2")], ids=str
)
@pytest.mark.parametrize("contract", [False, True])
def test_sums_and_products(sign: str, name: str, *, contract: bool) -> None:
    """Those that may not be contracted are rounded each for itself."""
    before = f"  a.x = (a.x{sign}b.x);\n  a.y = (a.y{sign}b.y);\n"
    after = f"  a = {name}{'' if contract else '_rn'}(a, b);\n"
    assert packed(before, contract=contract) == after


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("contract", [False, True])
def test_extrema(name: str, *, contract: bool) -> None:
    before = f"    a.x = {name}(b.x, a.x);\n    a.y = {name}(b.y, a.y);\n"
    assert packed(before, contract=contract) == f"    a = {name}(b, a);\n"


def test_both_pairs_of_four() -> None:
    before = "".join(f"  c.{part} = (c.{part}*d.{part});\n" for part in "xyzw")
    assert packed(before) == "".join(
        f"  *(half2*)(&c.{part}) = __hmul2(*(half2*)(&c.{part}), *(half2*)(&d.{part}));\n"
        for part in "xz"
    )


def test_a_pair_with_half_of_four() -> None:
    before = "  a.x = (b.x+c.x);\n  a.y = (b.y+c.y);\n"
    assert packed(before) == "  a = __hadd2(b, *(half2*)(&c.x));\n"


def test_casts() -> None:
    before = "".join(f"  c.{part} = (half)(f.{part});\n" for part in "xyzw")
    assert packed(before) == "".join(
        f"  *(half2*)(&c.{first}) = __floats2half2_rn(f.{first}, f.{second});\n"
        for first, second in ("xy", "zw")
    )


def test_what_is_around_stays() -> None:
    before = "  e.x = 1.0f;\n  a.x = (a.x+b.x);\n  a.y = (a.y+b.y);\n  a.x = b.y;\n"
    assert packed(before) == "  e.x = 1.0f;\n  a = __hadd2(a, b);\n  a.x = b.y;\n"


def test_one_behind_the_other() -> None:
    sums = "  a.x = (a.x+b.x);\n  a.y = (a.y+b.y);\n"
    assert packed(3 * sums) == 3 * "  a = __hadd2(a, b);\n"


@pytest.mark.parametrize(
    "lines",
    [
        "  f.x = (f.x+f.x);\n  f.y = (f.y+f.y);\n",  # floats
        "  g.x = (g.x+g.x);\n  g.y = (g.y+g.y);\n",
        "  f.x = maximum(f.x, f.x);\n  f.y = maximum(f.y, f.y);\n",
        "  a.x = (a.x+e.x);\n  a.y = (a.y+e.y);\n",  # halves and floats
        "  e.x = (a.x+b.x);\n  e.y = (a.y+b.y);\n",
        "  a.x = maximum(a.x, e.x);\n  a.y = maximum(a.y, e.y);\n",
        "  a.x = (a.x/b.x);\n  a.y = (a.y/b.y);\n",
        "  a.x = (a.x+b.x);\n",  # one alone
        "  a.y = (a.y+b.y);\n  a.x = (a.x+b.x);\n",  # the other way around
        "  a.x = (a.x+b.x);\n  e.x = 1.0f;\n  a.y = (a.y+b.y);\n",  # not neighbours
        "  a.x = (a.x+b.x);\n  a.y = (a.y-b.y);\n",  # not the same
        "  a.x = (a.x+b.x);\n  a.y = (a.y+c.y);\n",
        "  a.x = (a.x+b.y);\n  a.y = (a.y+b.x);\n",  # crossed
        "  a.x = (a.x+b.x);\n  c.y = (a.y+b.y);\n",
        "  c.y = (c.y+d.y);\n  c.z = (c.z+d.z);\n",  # across the pairs
        "  a.x = (half)(b.x);\n  a.y = (half)(b.y);\n",  # a copy
        "  h.x = (h.x+h.x);\n  h.y = (h.y+h.y);\n",  # of nothing that is known
    ],
)
def test_what_stays(lines: str) -> None:
    assert packed(lines) == lines


KERNEL = (
    f"#include <cuda_fp16.h>\n#if 1\n{END_OF_PRELUDE}"
    + """
extern "C" __global__ void kernel(half2* p) {{
  half2 v[{pairs}];
  for (int i = 0; i < {pairs}; ++i) v[i] = p[threadIdx.x + 32 * i];
  #pragma unroll
  for (int i = 1; i < {pairs}; ++i) {{
    half2 a = v[i - 1];
    half2 b = v[i];
{lines}
    v[i] = a;
  }}
  p[threadIdx.x] = v[{pairs} - 1];
}}
"""
)
"""No two pairs may share an instruction: each step needs what the one before it made."""


@pytest.mark.skipif(not nvrtc_architectures(), reason="needs NVRTC")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("of", ["({}-{})", "maximum({}, {})"])
@pytest.mark.parametrize("contract", [False, True])
def test_no_more_instructions(
    of: str, arch: str, monkeypatch: pytest.MonkeyPatch, *, contract: bool
) -> None:
    """The compiler finds neighbours itself, where they are as plain as here."""
    pairs = 64
    lines = "".join(f"    a.{x} = {of.format(f'a.{x}', f'b.{x}')};\n" for x in "xy")
    source = KERNEL.format(lines=lines, pairs=pairs)
    after = compile_cuda(source, arch, contract=contract)
    monkeypatch.setattr("tvm_tile.build.cuda.pack_halves", lambda text, **_: text)
    before = compile_cuda(source, arch, contract=contract)
    assert instructions(after) <= instructions(before)
