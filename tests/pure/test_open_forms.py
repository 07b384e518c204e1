"""Which form a number has that depends on open extents."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tvm_tile.graph.open_extents import fit

ONE = [(n,) for n in (13, 12, 11, 10)]
STEPS = [(n,) for n in (64, 56, 48, 40)]
TWO = [*itertools.product((13, 12), (4, 3)), (11, 4), (10, 4), (13, 2)]


@pytest.mark.parametrize(
    ("near", "number", "text"),
    [
        (ONE, lambda n: 7, "7"),
        (ONE, lambda n: 2 * n - 3, "2*n - 3"),
        (ONE, lambda n: (n + 1) // 2, "(n + 1) // 2"),
        (ONE, lambda n: n * n, "n*n"),
        (ONE, lambda n: n * (n + 1) // 2, "(n*n + n) // 2"),
        (STEPS, lambda n: n // 4, "n // 4"),
        (STEPS, lambda n: n * n // 16, "n*n // 16"),
        (TWO, lambda n, m: n * m + 1, "n*m + 1"),
        (TWO, lambda n, m: (n + 1) // 2, "(n + 1) // 2"),
        (ONE, lambda n: 64 // n, None),
        (ONE, lambda n: n % 3, None),
        (ONE, lambda n: 2**n, None),
        (ONE, lambda n: n - 2 * ((n + 2) // 3), None),
    ],
)
def test_forms(near: list[tuple[int, ...]], number: Callable[..., int], text: str | None) -> None:
    form = fit({point: number(*point) for point in near})
    assert (form and form.text(("n", "m"))) == text
    if form is not None:
        for n, m in itertools.product(range(8, 257, 8), (1, 2, 5)):
            point = (n, m)[: len(near[0])]
            assert form(point) == number(*point)
