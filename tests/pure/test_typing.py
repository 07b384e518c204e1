"""The package tells its types to others."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_it_says_that_it_is_typed() -> None:
    assert (ROOT / "tvm_tile" / "py.typed").is_file()


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="needs mypy")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", ""),
        ('tvm_tile.compile("m.onnx", "emulated").explain(detail="all").nothing', "attr-defined"),
        ('number: int = tvm_tile.compile("m.onnx", "emulated")', "assignment"),
        ("tvm_tile.find_device(3)", "arg-type"),
    ],
)
def test_a_program_that_calls_it_is_checked(line: str, found: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    example = (ROOT / "tests" / "typed_example.py").read_text(encoding="utf-8")
    program.write_text(f"{example}\n{line}\n", encoding="utf-8")
    # Whether a function of the package itself is right, `make check` says.
    words = ["--strict", "--follow-imports=silent", str(program)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode == 0) == (not found), done.stdout
    assert found in done.stdout
