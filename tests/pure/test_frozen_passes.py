"""Passes are frozen: nothing that a pass does in one module is left for the next one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "tvm_tile"


def passes() -> Iterator[tuple[str, list[str]]]:
    """The place of each pass, and its decorators."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
                if any("module_pass" in decorator for decorator in decorators):
                    yield f"{path.stem}.{node.name}", decorators


FOUND = dict(passes())


def test_passes_are_found() -> None:
    assert {"fuse_tiles.FuseTiles", "schedule_tiles.ScheduleTiles"} <= FOUND.keys()


@pytest.mark.parametrize("name", FOUND)
def test_a_pass_is_a_frozen_dataclass(name: str) -> None:
    assert "dataclass(frozen=True, slots=True)" in FOUND[name]
