"""What was fitted to a device is in its record: no such number stands in decisions' modules.

``tests/data/constants.json`` has the numbers that may stand as constants in ``FOLDERS`` of the
package, by module, each with why it is no parameter of a device's times.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import tvm_tile

PACKAGE = Path(tvm_tile.__file__).parent
FOLDERS = ("tile/**", "plan", "launches", "report", "report/screen", "files")
MODULES = sorted(path for folder in FOLDERS for path in PACKAGE.glob(f"{folder}/*.py"))
DATA = Path(__file__).parent.parent / "data" / "constants.json"
ALLOWED: dict[str, dict[str, str]] = json.loads(DATA.read_text(encoding="utf-8"))
# None, all, powers of two, microseconds of a second, and rounding.
PLAIN_FRACTIONS = (0.0, 1.0, 0.5, 0.25, 0.125, 1e6, 1e-9, 1e-12)


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def has_number(node: ast.AST) -> bool:
    return any(
        isinstance(part, ast.Constant) and type(part.value) in (int, float)
        for part in ast.walk(node)
    )


def numeric_constants(source: str) -> set[str]:
    """Names that a module assigns something with a number in it to."""
    found: set[str] = set()
    for statement in ast.parse(source).body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            continue
        if statement.value is None or not has_number(statement.value):
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        parts = (part for target in targets for part in ast.walk(target))
        found |= {part.id for part in parts if isinstance(part, ast.Name)}
    return found


def fractions(source: str) -> Iterator[tuple[int, float]]:
    """(line, number) of each floating-point literal in a function's body."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            for part in ast.walk(function):
                if isinstance(part, ast.Constant) and isinstance(part.value, float):
                    yield part.lineno, part.value


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_has_no_numbers_but_those_that_are_no_devices_times(path: Path) -> None:
    found = numeric_constants(path.read_text(encoding="utf-8"))
    unexplained = found - set(ALLOWED.get(name_of(path), {}))
    assert not unexplained, "a device's time belongs to its record; else say why in constants.json"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_functions_have_no_fractions_of_their_own(path: Path) -> None:
    found = fractions(path.read_text(encoding="utf-8"))
    assert [place for place in found if place[1] not in PLAIN_FRACTIONS] == []


def test_every_explained_number_is_there_and_explained() -> None:
    for name, reasons in ALLOWED.items():
        found = numeric_constants((PACKAGE / name).read_text(encoding="utf-8"))
        assert set(reasons) <= found
        assert all(reasons.values())


def test_a_fitted_number_would_be_found() -> None:
    source = "_STEP: float = 0.25e-6\n_A, _B = 1, (2.0, x)\n_NAME = 'text'\n_IS = True\n"
    assert numeric_constants(source) == {"_STEP", "_A", "_B"}
    assert list(fractions("def f(x):\n    return 0.7 * x\n")) == [(2, 0.7)]
