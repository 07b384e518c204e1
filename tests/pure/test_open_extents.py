"""Forms of numbers that depend on open extents."""

from __future__ import annotations

import pytest

from tvm_tile.graph.open_extents import Symbol, far, fit, top, variable


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("7", {(9,): 7, (8,): 7, (7,): 7}),
        ("3*n - 2", {(n,): 3 * n - 2 for n in (9, 8, 7, 6)}),
        ("(n + 1) // 2", {(n,): (n + 1) // 2 for n in (9, 8, 7, 6)}),
        ("n // 32", {(n,): n // 32 for n in (320, 288, 256, 224)}),
        ("(n - 2) // 2", {(n,): (n - 2) // 2 for n in (16, 14, 12, 10)}),
        ("n*m // 4", {(n, m): n * m // 4 for n in (8, 6, 4) for m in (8, 6, 4)}),
        ("n*m + n", {(n, m): n * m + n for n in (8, 7, 6) for m in (5, 4, 3)}),
    ],
)
def test_a_form_is_found_from_a_few_points(text: str, values: dict[tuple[int, ...], int]) -> None:
    form = fit(values)
    assert form is not None
    assert form.text(("n", "m")) == text
    assert all(form(point) == value for point, value in values.items())


def test_what_is_no_form_has_none() -> None:
    assert fit({(n,): 2**n for n in (9, 8, 7, 6)}) is None
    assert fit({(n, m): n * m // 2 for n in (9, 8, 7) for m in (5, 4, 3)}) is None


def test_points_are_at_the_ends_and_between() -> None:
    symbols = (Symbol("n", 1, 10), Symbol("m", 32, 320, 32))
    assert top(symbols) == (10, 320)
    assert far(symbols) == [(1, 32), (4, 128), (1, 320), (10, 32)]
    assert str(symbols[1]) == "m from 32 to 320 in steps of 32"


def test_a_variable_is_an_identifier_of_its_own() -> None:
    names = [variable(i, name) for i, name in enumerate(("n", "x.0", "x_0", "2*s", "int"))]
    assert all(name.isidentifier() for name in names)
    assert len(set(names)) == len(names)
