"""Where 8-bit integers less a zero point lie, and whether 32 bits hold sums of their products."""

from __future__ import annotations

import itertools

import pytest

from tvm_tile.graph.eight_bits import Span, dtype_for, span_of, sums_fit


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_differences_are_within_their_span(dtype: str) -> None:
    own, zeros = span_of(dtype), Span(-3, 5)
    codes = (own.low, own.low + 1, own.high)
    differences = [code - zero for code, zero in itertools.product(codes, (-3, 0, 5))]
    found = own.less(zeros)
    assert (found.low, found.high) == (min(differences), max(differences))
    assert found.largest == max(map(abs, differences))


@pytest.mark.parametrize(
    ("span", "dtype"),
    [
        (Span(0, 0), "int8"),
        (Span(-128, 127), "int8"),
        (Span(0, 128), "uint8"),
        (Span(0, 255), "uint8"),
        (Span(-1, 128), None),
        (Span(-129, 0), None),
    ],
)
def test_the_type_that_holds_a_span(span: Span, dtype: str | None) -> None:
    assert dtype_for(span) == dtype


def test_sums_are_integers_of_32_bits_to_the_last_product() -> None:
    bytes_ = span_of("uint8")
    deepest = (2**31 - 1) // 255**2
    assert sums_fit(deepest, bytes_, bytes_)
    assert not sums_fit(deepest + 1, bytes_, bytes_)
