"""Scheduled TensorIR of small functions, as text to review: what changes shows in a diff.

After a wanted change: ``pytest tests/golden --update-golden``, then read ``git diff``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_cases import GOLDENS, Golden
from golden_text import shortened

from tvm_tile.tile.rules import ORDER

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.name)
def test_scheduled_text(golden: Golden, request: pytest.FixtureRequest) -> None:
    text = golden.text()
    path = FOLDER / f"{golden.name}.py.txt"
    if request.config.getoption("--update-golden"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "if wanted: pytest --update-golden"


def test_every_rule_has_a_golden() -> None:
    shown = {golden.rule for golden in GOLDENS}
    for rule in ORDER:
        assert rule.name in shown, f"add some functions of {rule} to tests/golden_cases.py"


def test_every_golden_has_a_function() -> None:
    kept = {path.name.removesuffix(".py.txt") for path in FOLDER.glob("*.py.txt")}
    assert kept == {golden.name for golden in GOLDENS}


def test_neighbouring_elements_are_a_slice() -> None:
    assert shortened("f(a[0], a[1], a[2], b[2], a[3], a[5])") == "f(*a[0:3], b[2], a[3], a[5])"
    assert shortened("  g(a[7])\n  g(a[8])\n  g(a[9])\n  h()") == "  g(a[7]) ... g(a[9])\n  h()"
    for text in ("g(a[0])\ng(a[1])", "g(a[0])\ng(a[2])\ng(a[4])", "a[0] = b[0]\na[1] = b[1]"):
        assert shortened(text) == text
