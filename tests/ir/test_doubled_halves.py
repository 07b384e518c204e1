"""Halves that are doubled and then subtracted from: as they are written, infinities included."""

from __future__ import annotations

import re

import pytest
from kernels import Case, Input, prim_functions
from tvm import relax
from tvm.relax import op

from tvm_tile.build import Builder, Program
from tvm_tile.device import find_device
from tvm_tile.schedule import schedule

H200 = find_device("nvidia/h200")


def without_its_double(x: relax.Expr) -> relax.Expr:
    two = relax.const(2, str(x.ty.dtype))
    return op.subtract(x, op.multiply(x, two))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(7,), (512, 512)], ids=["single", "vectors"])
def test_they_are_rounded_before_they_are_taken_away(dtype: str, shape: tuple[int, ...]) -> None:
    """NVIDIA's compiler makes ``-x`` of ``x - 2 * x`` where it may fuse the product."""
    case = Case("double", "elementwise", without_its_double, (Input(shape, dtype),))
    (func,) = prim_functions(case, H200).values()
    (choice,) = schedule(func, H200)
    program = Builder(H200).build_functions({"double": choice.func})["double"]
    assert isinstance(program, Program), str(program)
    (kernel,) = program.kernels
    body = kernel.source.rsplit("__launch_bounds__", 1)[-1]
    assert "__hmul_rn(" in body
    assert not re.search(r"\*\s*__float2b?f?(half|loat16)_rn\(0x1p\+1f", body)
