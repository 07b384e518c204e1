"""Squares become products; other powers stay."""

from __future__ import annotations

import pytest
from kernels import Case, Input, prim_functions
from tvm import relax
from tvm.relax import op

from tvm_tile.device import find_device

H200 = find_device("nvidia/h200")


@pytest.mark.parametrize(
    ("exponent", "is_power"), [(2.0, False), (3.0, False), (4.0, True), (0.5, True), (-2.0, True)]
)
def test_squares_and_cubes_are_products(exponent: float, is_power: bool) -> None:
    def body(x: relax.Expr) -> relax.Expr:
        return op.power(x, relax.const(exponent, "float32"))

    case = Case("power", "elementwise", body, (Input((8, 32)),))
    (function,) = prim_functions(case, H200).values()
    assert ("pow(" in function.script()) == is_power


def test_a_square_is_computed_from_one_load_of_what_was_computed() -> None:
    case = Case(
        "power",
        "elementwise",
        lambda x: op.power(op.exp(x), relax.const(2.0, "float32")),
        (Input((8, 32)),),
    )
    (function,) = prim_functions(case, H200).values()
    text = function.script()
    assert text.count("T.exp(") == 1
    assert "pow(" not in text
