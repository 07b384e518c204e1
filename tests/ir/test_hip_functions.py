"""Every function that the prelude of HIP kernels declares is one that a kernel can call."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tvm_tile.build.hip
from tvm_tile.build.hip import compile_hip

pytestmark = pytest.mark.bank(8)

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
PRELUDE = Path(tvm_tile.build.hip.__file__).with_name("hip_prelude.h").read_text()


def named(macro: str) -> list[str]:
    """What a macro is used for, its own definition aside."""
    return [name for name in re.findall(rf"\b{macro}\((\w+)[,)]", PRELUDE) if name != "name"]


def calls() -> list[str]:
    """A statement for each function of the library, of both types and of halves."""
    of_one = named("FROM_LIBRARY")
    of_two = named("OF_TWO_FROM_LIBRARY")
    doubles = re.findall(r'^extern "C" __device__ double (\w+)\(double\)', PRELUDE, re.MULTILINE)
    assert "tanh" in of_one
    assert "pow" in of_two
    assert "exp" in doubles
    return [
        *(f"f[{n}] = {name}f(f[{n}]);" for n, name in enumerate(of_one)),
        *(f"d[{n}] = {name}(d[{n}]);" for n, name in enumerate([*of_one, *doubles])),
        *(f"f[{n}] = {name}f(f[{n}], f[{n} + 50]);" for n, name in enumerate(of_two, 50)),
        *(f"d[{n}] = {name}(d[{n}], d[{n} + 50]);" for n, name in enumerate(of_two, 50)),
        *("f[90] = exp10f(f[90]);", "f[91] = ldexpf(f[91], 3);", "d[91] = ldexp(d[91], 3);"),
        *(f"h[{n}] = {name}(h[{n}]);" for n, name in enumerate(named("IN_BOTH_HALVES"))),
        *(f"b[{n}] = {name}(b[{n}]);" for n, name in enumerate(named("IN_BOTH_HALVES"))),
        "h[90] = hpow(h[90], h[91]); b[90] = hpow(b[90], b[91]);",
    ]


@pytest.mark.parametrize("arch", ARCHS)
def test_kernels_with_functions_of_the_library_link(arch: str) -> None:
    parameters = "float* f, double* d, half* h, nv_bfloat16* b"
    body = "\n".join(calls())
    kernel = f'extern "C" __global__ void __launch_bounds__(64) k({parameters}) {{\n{body}\n}}'
    assert compile_hip(kernel, arch).startswith(b"\x7fELF")


def test_every_function_of_the_library_is_asked_for() -> None:
    """Each by itself, for one processor: a call brings the library along."""
    for call in calls():
        parameters = "float* f, double* d, half* h, nv_bfloat16* b"
        kernel = f'extern "C" __global__ void __launch_bounds__(64) k({parameters}) {{ {call} }}'
        assert compile_hip(kernel, "gfx942"), call
